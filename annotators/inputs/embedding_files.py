"""Embeddings made elsewhere, read from .npy, .npz or Parquet with the data set's own ids; nothing is unpickled."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from annotators.base import file_sha256
from mitl.errors import AnnotatorError

BROKEN = (
    *(ValueError, OSError, EOFError, RuntimeError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),
)
"""What numpy's readers raise where a file contradicts itself."""


def load_numpy(path: Path, mmap_mode: Literal["r"] | None = None) -> Any:
    """What `np.load` makes of a file; AnnotatorError where it cannot be read."""
    try:
        return np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    except BROKEN as error:
        raise AnnotatorError(
            f"{str(path)!r} is not readable as numpy data without pickles, as np.save and np.savez write it: "
            f"{str(error).partition('. ')[0]}"
        ) from error


@contextmanager
def open_archive(path: Path, advice: str = "fetch the file again") -> Iterator[NpzFile]:
    """The arrays of a .npz; AnnotatorError, with this advice, where it is none or what is read of it is broken."""
    archive = load_numpy(path)
    if isinstance(archive, np.ndarray):
        raise AnnotatorError(f"{str(path)!r} holds one array, not an archive; call it .npy")
    with archive:
        try:
            yield archive
        except BROKEN as error:
            raise AnnotatorError(
                f"{str(path)!r} is not readable without pickles: {error!s:.200}; {advice}"
            ) from error


def read_archive(path: Path, *names: str) -> dict[str, NDArray[Any]]:
    """The arrays of a .npz that are named, else all of them; AnnotatorError where one is missing or unreadable."""
    advice = "save ids as integers or as texts, as ids.astype(str) makes them"
    with open_archive(path, advice) as archive:
        missing = next((name for name in names if name not in archive), None)
        if missing is not None:
            raise AnnotatorError(
                f"{str(path)!r} lacks the array {missing!r}; it holds {', '.join(archive.files) or 'none'}"
            )
        return {name: archive[name] for name in names or archive.files}


def ids_beside(path: Path, what: str = "ids") -> Path | None:
    """The file of ids that lies beside another: arrays, else a text with one a line; None where there is none."""
    files = (path.with_suffix(f".{what}.{end}") for end in ("npy", "txt"))
    return next((file for file in files if file.is_file()), None)


def listed_ids(path: Path) -> list[str]:
    """The ids of a .npy, else of a text with one a line; AnnotatorError where they cannot be read."""
    if not path.is_file():
        raise AnnotatorError(f"there is no file {str(path)!r}; it should hold ids, one a line or as .npy")
    if path.suffix == ".npy":
        return id_texts(path, load_numpy(path))
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise AnnotatorError(f"{str(path)!r} is not readable as a list of ids: {error}") from error


def id_texts(path: Path, ids: object) -> list[str]:
    """One array of integers or texts as texts; AnnotatorError where it is anything else."""
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "iuU":
        held = f"{ids.dtype} of shape {ids.shape}" if isinstance(ids, np.ndarray) else "an archive"
        raise AnnotatorError(f"ids in {str(path)!r} are {held}; they should be a list of integers or texts")
    return [str(value) for value in ids.tolist()]


_BLOCK = 1 << 14
"""Rows that are looked at in one go."""
_NAMED = 3
"""Ids that an error names."""


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddingTable:
    """Embeddings (N, D) or (N, K, D) by external id, float32, or float16 where the file's are."""

    path: Path
    row_of: dict[str, int]
    embedding: NDArray[Any]
    ids_path: Path | None = None
    """The file of the ids, where they lie in one of their own."""

    @property
    def sha256(self) -> tuple[str, ...]:
        """Hashes of the file and of its ids' file: what rankings are keyed by."""
        return tuple(file_sha256(path) for path in (self.path, self.ids_path) if path is not None)

    def rows(self, external_ids: Sequence[str], what: str) -> NDArray[Any]:
        """The embeddings of these ids, in that order, a view where it is the file's; AnnotatorError where some lack."""
        missing = [id_ for id_ in external_ids if id_ not in self.row_of]
        if missing:
            raise AnnotatorError(
                f"{str(self.path)!r} lacks {len(missing)} of {len(external_ids)} {what}; "
                f"first: {missing[0]!r}{self._own_look(len(missing) == len(external_ids))}"
            )
        positions = np.array([self.row_of[id_] for id_ in external_ids], dtype=np.int64)
        if np.array_equal(positions, np.arange(len(positions))):
            return self.embedding[: len(positions)]
        return self.embedding[positions]

    def _own_look(self, none_fits: bool) -> str:
        """Where no id fits, most often both sides write them in other ways: one of the file's own."""
        first_id = next(iter(self.row_of), None)
        return f"; its own ids look like {first_id!r}" if none_fits and first_id is not None else ""


def read_embeddings(path: Path, ids_path: Path | None = None, what: str = "items") -> EmbeddingTable:
    """The embeddings of a .npz, Parquet or .npy file; a .npy of float32 or float16 stays on disk until it is used.

    A .npz file holds ``ids`` and ``embedding``, a Parquet file has columns of these names (``id``). The ids of a
    .npy file are in ``ids_path`` (.npy, else a text with one a line), or beside it in ``NAME.ids.npy`` or
    ``NAME.ids.txt``. Errors call the items ``what``.

    Raises:
        AnnotatorError: unreadable, not (N, D) or (N, K, D) finite numbers, an item of zeros alone, ids repeated or too
            few.
    """
    if path.suffix == ".npy":
        beside = ids_path or ids_beside(path)
        if beside is None:
            lines = path.with_suffix(".ids.txt").name
            raise AnnotatorError(f"{str(path)!r} has no ids beside it; write them to {lines!r}, one a line")
        return _table(path, what, listed_ids(beside), load_numpy(path, mmap_mode="r"), beside)
    if ids_path is not None:
        raise AnnotatorError(f"{str(path)!r} has ids of its own; leave {str(ids_path)!r} out")
    readers = {".npz": _from_npz, ".parquet": _from_parquet}
    reader = readers.get(path.suffix)
    if reader is None:
        raise AnnotatorError(
            f"{str(path)!r} is not an embedding file; it should end in .npy, .npz or .parquet"
        )
    return _table(path, what, *reader(path))


def _table(
    path: Path, what: str, ids: Sequence[str], raw: object, ids_path: Path | None = None
) -> EmbeddingTable:
    if (
        not isinstance(raw, np.ndarray)
        or raw.ndim not in (2, 3)
        or 0 in raw.shape
        or not np.issubdtype(raw.dtype, np.number)
    ):
        held = (
            f"{raw.dtype} of shape {raw.shape}" if isinstance(raw, np.ndarray) else "a zip archive of arrays"
        )
        raise AnnotatorError(
            f"embeddings in {str(path)!r} are {held}; they should be numbers of shape (N, D), or (N, K, D) for K "
            "vectors an item"
        )
    if np.iscomplexobj(raw):
        raise AnnotatorError(f"embeddings in {str(path)!r} are complex; they should be real numbers")
    row_of = _row_of(path, ids, len(raw))
    # A number beyond float32 becomes infinite here and is refused below.
    with np.errstate(over="ignore"):
        embedding = np.ascontiguousarray(raw, np.float16 if raw.dtype == np.float16 else np.float32)
    refuse_unusable(f"{what} in {str(path)!r}", ids, embedding)
    return EmbeddingTable(path, row_of, embedding, ids_path)


def refuse_unusable(what: str, ids: Sequence[str], embedding: NDArray[Any]) -> None:
    """Refuse embeddings (N, D) or (N, K, D) that cannot be compared, of the items ``ids``, called ``what``.

    An item of zeros alone is equally similar to every other one, so only ties would rank it. Scripts leave such rows
    for files that they could not read.

    Raises:
        AnnotatorError: an item has a number that is not finite, or zeros alone.
    """
    faults: dict[str, list[int]] = {"not finite": [], "all zeros": []}
    for start in range(0, len(embedding), _BLOCK):
        block = embedding[start : start + _BLOCK]
        block = block.reshape(len(block), -1)
        faults["not finite"] += (start + np.flatnonzero(~np.isfinite(block).all(axis=1))).tolist()
        faults["all zeros"] += (start + np.flatnonzero(~block.any(axis=1))).tolist()
    for fault, rows in faults.items():
        if rows:
            first = ", ".join(repr(ids[row]) for row in rows[:_NAMED])
            raise AnnotatorError(
                f"the embeddings of {len(rows):,} of {len(embedding):,} {what} are {fault}; first: {first}; "
                "encode these items again"
            )


def _row_of(path: Path, ids: Sequence[str], rows: int) -> dict[str, int]:
    if len(ids) != rows:
        raise AnnotatorError(f"{str(path)!r} has {rows} embeddings, but {len(ids)} ids")
    row_of: dict[str, int] = {}
    for row, id_ in enumerate(ids):
        if row_of.setdefault(id_, row) != row:
            raise AnnotatorError(f"{str(path)!r} has id {id_!r} twice")
    return row_of


def _from_npz(path: Path) -> tuple[list[str], NDArray[Any]]:
    arrays = read_archive(path, "ids", "embedding")
    return id_texts(path, arrays["ids"]), arrays["embedding"]


def _from_parquet(path: Path) -> tuple[list[str], NDArray[Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(path).names
        missing = [name for name in ("id", "embedding") if name not in names]
        if missing:
            raise AnnotatorError(
                f"{str(path)!r} lacks the column {missing[0]!r}; it holds {', '.join(names)}"
            )
        table = pq.read_table(path, columns=["id", "embedding"])  # others may be pictures
        ids = [str(value) for value in table["id"].to_pylist()]
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise AnnotatorError(f"{str(path)!r} is not readable as Parquet: {reason}") from error
    return ids, _array_of_lists(path, table["embedding"])


def _array_of_lists(path: Path, column: Any) -> NDArray[Any]:
    """(N, D) or (N, K, D) from a column of lists, or of lists of lists, all of one length."""
    import pyarrow as pa
    import pyarrow.compute as pc

    shape = [len(column)]
    try:
        while not pa.types.is_primitive(column.type):
            widths = pc.unique(pc.list_value_length(column)).to_pylist()
            if len(widths) != 1 or not widths[0]:
                raise ValueError(f"{len(widths)} lengths")
            shape.append(widths[0])
            column = pc.list_flatten(column)
        if len(shape) == 1 or column.null_count:
            raise ValueError("no lists, or empty cells")
        array: NDArray[Any] = column.to_numpy().reshape(shape)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise AnnotatorError(
            f"the embeddings in {str(path)!r} should be lists of one length, none empty"
        ) from error
    return array
