"""A matrix of similarities made elsewhere, with the ids of its rows and columns."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.stages.evaluating.models.id_files import checked_ids, id_texts, ids_beside, listed_ids

ARRAYS = ("similarities", "image_ids", "caption_ids")
_BLOCK = 1 << 9
"""Rows that are looked at in one go."""


@dataclass(frozen=True, slots=True, eq=False)
class SimilarityTable:
    """Similarities (I, C), higher is closer: a row an image, a column a caption; ids are external."""

    path: Path
    image_row: Mapping[str, int]
    caption_column: Mapping[str, int]
    values: NDArray[Any]


def read_similarities(
    path: Path, image_ids: Path | None = None, caption_ids: Path | None = None
) -> SimilarityTable:
    """The matrix of a .npz with ``similarities``, ``image_ids`` and ``caption_ids``, or of a .npy.

    A .npy stays on disk until it is used; its ids are in the files given (.npy, else a text with one a line), or
    beside it in ``NAME.image_ids.npy`` or ``.txt`` and ``NAME.caption_ids.npy`` or ``.txt``.

    Raises:
        MetricError: missing, unreadable, not (I, C) real numbers, NaN among them, ids doubled or of another number.
    """
    if path.suffix == ".npy":
        values = _load(path, mmap=True)
        images = listed_ids(image_ids or ids_beside(path, "image_ids"))
        captions = listed_ids(caption_ids or ids_beside(path, "caption_ids"))
    elif path.suffix == ".npz":
        if image_ids or caption_ids:
            raise MetricError(f"{str(path)!r} has ids of its own; leave --image-ids and --caption-ids out")
        values, images, captions = _from_npz(path)
    else:
        raise MetricError(f"{str(path)!r} is no file of similarities; it should end in .npy or .npz")
    return _checked(path, values, images, captions)


def _checked(path: Path, values: object, images: Sequence[str], captions: Sequence[str]) -> SimilarityTable:
    if not isinstance(values, np.ndarray) or values.ndim != 2 or values.dtype.kind not in "fiu":
        found = f"{values.dtype} of shape {values.shape}" if isinstance(values, np.ndarray) else "no array"
        raise MetricError(
            f"similarities in {str(path)!r} are {found}; they should be real numbers of shape (images, captions)"
        )
    if values.shape != (len(images), len(captions)):
        turned = values.shape == (len(captions), len(images))
        raise MetricError(
            f"similarities in {str(path)!r} are {values.shape}, but {len(images)} image ids and {len(captions)} "
            f"caption ids were given{'; turn the matrix: a row is an image' if turned else ''}"
        )
    table = SimilarityTable(
        path, checked_ids(path, images, "image"), checked_ids(path, captions, "caption"), values
    )
    _refuse_nan(path, values, images, captions)
    return table


def _refuse_nan(path: Path, values: NDArray[Any], images: Sequence[str], captions: Sequence[str]) -> None:
    if values.dtype.kind != "f":
        return
    for start in range(0, len(values), _BLOCK):
        wrong = np.isnan(values[start : start + _BLOCK])
        if wrong.any():
            row, column = (int(place[0]) for place in np.nonzero(wrong))
            raise MetricError(
                f"the similarity of image {images[start + row]} and caption {captions[column]} in {str(path)!r} is "
                "NaN, so neither has a rank; mend the model's output"
            )


def _from_npz(path: Path) -> tuple[object, list[str], list[str]]:
    archive = _load(path, mmap=False)
    if isinstance(archive, np.ndarray):
        raise MetricError(f"{str(path)!r} holds one array, not an archive; call it .npy")
    with archive:
        missing = [name for name in ARRAYS if name not in archive]
        if missing:
            raise MetricError(
                f"{str(path)!r} lacks the array {missing[0]!r}; it holds {', '.join(archive.files) or 'none'}"
            )
        try:
            values, images, captions = (archive[name] for name in ARRAYS)
        except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise MetricError(f"{str(path)!r} is not readable without pickles: {error}") from error
    return values, id_texts(path, images), id_texts(path, captions)


def _load(path: Path, *, mmap: bool) -> Any:
    if not path.is_file():
        raise MetricError(f"there is no file {str(path)!r}; it should hold similarities")
    try:
        return np.load(path, mmap_mode="r" if mmap else None, allow_pickle=False)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise MetricError(f"{str(path)!r} is not readable as numpy data without pickles: {error}") from error
