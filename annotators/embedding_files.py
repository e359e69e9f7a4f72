"""Embeddings made elsewhere, read from .npy, .npz or Parquet with the data set's own ids."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import AnnotatorError


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddingTable:
    """Embeddings (N, D) or (N, K, D) float32 by external id."""

    path: Path
    row_of: dict[str, int]
    embedding: NDArray[np.float32]

    def rows(self, external_ids: Sequence[str], what: str) -> NDArray[np.float32]:
        """The embeddings of these ids, in that order; AnnotatorError says how many are missing."""
        missing = [id_ for id_ in external_ids if id_ not in self.row_of]
        if missing:
            raise AnnotatorError(
                f"{str(self.path)!r} lacks {len(missing)} of {len(external_ids)} {what}; "
                f"first: {missing[0]!r}"
            )
        positions = np.array([self.row_of[id_] for id_ in external_ids], dtype=np.int64)
        return self.embedding[positions]


def read_embeddings(path: Path) -> EmbeddingTable:
    """The embeddings of a .npz, Parquet or .npy file.

    A .npz file holds ``ids`` and ``embedding``, a Parquet file has columns of these names (``id``), and a .npy
    file lies beside its ids in ``NAME.ids.npy`` or ``NAME.ids.txt`` (one a line).

    Raises:
        AnnotatorError: unreadable, not (N, D) or (N, K, D) finite numbers, ids repeated or too few.
    """
    readers = {".npz": _from_npz, ".npy": _from_npy, ".parquet": _from_parquet}
    reader = readers.get(path.suffix)
    if reader is None:
        raise AnnotatorError(f"{str(path)!r} is no embedding file; it should end in .npy, .npz or .parquet")
    ids, raw = reader(path)
    return EmbeddingTable(path, _row_of(path, ids, len(raw)), _checked(path, ids, raw))


def _checked(path: Path, ids: Sequence[str], raw: NDArray[Any]) -> NDArray[np.float32]:
    if raw.ndim not in (2, 3) or 0 in raw.shape or not np.issubdtype(raw.dtype, np.number):
        raise AnnotatorError(
            f"embeddings in {str(path)!r} are {raw.dtype} of shape {raw.shape}; they should be numbers "
            f"of shape (N, D), or (N, K, D) for K vectors an item"
        )
    if np.iscomplexobj(raw):
        raise AnnotatorError(f"embeddings in {str(path)!r} are complex; they should be real numbers")
    # A number beyond float32 becomes infinite here and is named below.
    with np.errstate(over="ignore"):
        embedding = np.ascontiguousarray(raw, dtype=np.float32)
    finite = np.isfinite(embedding).reshape(len(embedding), -1).all(axis=1)
    if not finite.all():
        first = int(np.argmin(finite))
        raise AnnotatorError(
            f"{int((~finite).sum())} embeddings in {str(path)!r} are not finite; first: id {ids[first]!r}"
        )
    return embedding


def _row_of(path: Path, ids: Sequence[str], rows: int) -> dict[str, int]:
    if len(ids) != rows:
        raise AnnotatorError(f"{str(path)!r} has {rows} embeddings, but {len(ids)} ids")
    row_of: dict[str, int] = {}
    for row, id_ in enumerate(ids):
        if row_of.setdefault(id_, row) != row:
            raise AnnotatorError(f"{str(path)!r} has id {id_!r} twice")
    return row_of


def _load_numpy(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise AnnotatorError(
            f"{str(path)!r} is not readable as numpy data without pickles: {error}"
        ) from error


def _from_npz(path: Path) -> tuple[list[str], NDArray[Any]]:
    with _load_numpy(path) as archive:
        missing = [key for key in ("ids", "embedding") if key not in archive]
        if missing:
            raise AnnotatorError(
                f"{str(path)!r} lacks the array {missing[0]!r}; it holds {', '.join(archive.files)}"
            )
        try:
            return _id_texts(path, archive["ids"]), archive["embedding"]
        except ValueError as error:
            raise AnnotatorError(f"{str(path)!r} is not readable without pickles: {error}") from error


def _from_npy(path: Path) -> tuple[list[str], NDArray[Any]]:
    arrays, lines = path.with_suffix(".ids.npy"), path.with_suffix(".ids.txt")
    if arrays.exists():
        ids = _id_texts(path, _load_numpy(arrays))
    elif lines.exists():
        ids = lines.read_text(encoding="utf-8").splitlines()
    else:
        raise AnnotatorError(f"{str(path)!r} has no ids beside it; write them to {lines.name!r}, one a line")
    return ids, _load_numpy(path)


def _from_parquet(path: Path) -> tuple[list[str], NDArray[Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise AnnotatorError(f"{str(path)!r} is not readable as Parquet: {error}") from error
    missing = [name for name in ("id", "embedding") if name not in table.column_names]
    if missing:
        raise AnnotatorError(
            f"{str(path)!r} lacks the column {missing[0]!r}; it holds {', '.join(table.column_names)}"
        )
    ids = [str(value) for value in table["id"].to_pylist()]
    rows = table["embedding"].to_pylist()
    widths = {len(row) if isinstance(row, list) else -1 for row in rows}
    if len(widths) != 1 or widths == {-1}:
        raise AnnotatorError(f"the embeddings in {str(path)!r} should be lists of one length, none empty")
    return ids, np.array(rows, dtype=np.float64)


def _id_texts(path: Path, ids: NDArray[Any]) -> list[str]:
    if ids.ndim != 1 or ids.dtype.kind not in "iuU":
        raise AnnotatorError(
            f"ids of {str(path)!r} are {ids.dtype} of shape {ids.shape}; they should be "
            f"a list of integers or texts"
        )
    return [str(value) for value in ids.tolist()]
