"""Region features as numpy files: one array with its ids, or a folder with a file an image.

The array is that of SCAN's and VSRN's data, ``{split}_ims.npy`` with ``{split}_ids.txt``. Both are memory-mapped: of
them only what is asked for is in memory. Features are used as stored.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annotators.fingerprint import file_sha256, fingerprint
from annotators.inputs.region_table import RegionTable
from annotators.inputs.regions import RegionFeatures, names_of
from mitl.errors import AnnotatorError
from mitl.records import ImageItem

_CAPTIONS = 5
"""Captions an image in the data of origin, whose ids or rows may come once a caption."""


def open_regions(path: Path, ids: Path | None, shape: tuple[int, int]) -> RegionFeatures:
    """The region features of a .npy file, a folder or a tsv.

    Args:
        ids: for a .npy file the ids of its rows' images (``.txt``, one a line, or ``.npy``); None takes
            ``{split}_ids.txt`` beside ``{split}_ims.npy``, or ``NAME.ids.txt``. One id a row, or one a caption
            (five in succession) for an array with a row an image, or a row a caption.
        shape: (R, D) that the network reads.

    Raises:
        AnnotatorError: of another form, damaged, of another shape, or without ids.
    """
    array = path.suffix == ".npy"
    if ids is not None and not array:
        raise AnnotatorError(
            f"'feature_ids' belongs to a .npy file of features; {str(path)!r} has ids of its own"
        )
    try:
        if array:
            return RegionArray(path, ids, shape)
        if path.is_dir():
            return RegionFolder(path, shape)
        if ".tsv" in path.suffixes:
            return RegionTable(path, shape)
    except OSError as error:
        raise AnnotatorError(f"{str(path)!r} is not readable: {error}") from error
    raise AnnotatorError(
        f"{str(path)!r} is no file of region features; it should be .npy, .tsv or a folder of .npy files"
    )


class RegionArray(RegionFeatures):
    """One .npy file (N, R, D), memory-mapped, with the image id of each row."""

    def __init__(self, path: Path, ids: Path | None, shape: tuple[int, int]) -> None:
        self._array = _mapped(path)
        if self._array.ndim != 3 or self._array.shape[1:] != shape or self._array.dtype.kind != "f":
            raise AnnotatorError(
                f"{str(path)!r} holds {self._array.dtype} of shape {self._array.shape}; "
                f"these weights read floats of shape (N, {shape[0]}, {shape[1]})"
            )
        listed = ids or _ids_beside(path)
        self._row_of = _row_of(listed, _read_ids(listed), path, len(self._array))
        super().__init__(path, shape, fingerprint(features=file_sha256(path), ids=file_sha256(listed)))

    def find(self, item: ImageItem) -> str | None:
        """The image's id as the list of ids has it."""
        return next((name for name in names_of(item) if name in self._row_of), None)

    def load(self, name: str) -> NDArray[Any]:
        """One row, a view of the file."""
        row: NDArray[Any] = self._array[self._row_of[name]]
        return row


class RegionFolder(RegionFeatures):
    """A folder with ``<image id>.npy`` (R, D), or ``.npz`` with that array as ``features`` or ``x``."""

    def __init__(self, path: Path, shape: tuple[int, int]) -> None:
        files = sorted(file for file in path.iterdir() if file.suffix in (".npy", ".npz"))
        if not files:
            raise AnnotatorError(
                f"the folder {str(path)!r} has no .npy or .npz file; it should have one an image"
            )
        # COCO's file names end in the image's id, filled up with zeros.
        self._file_of = {file.stem.rpartition("_")[2].lstrip("0"): file for file in files}
        self._file_of.update((file.stem, file) for file in files)
        super().__init__(path, shape, fingerprint(**{file.name: file_sha256(file) for file in files}))

    def find(self, item: ImageItem) -> str | None:
        """The file named by the image's id, with or without what COCO's file names put before it."""
        return next((name for name in names_of(item) if name in self._file_of), None)

    def shape_of(self, name: str) -> tuple[int, ...]:
        """From the head of a .npy file alone."""
        file = self._file_of[name]
        return _mapped(file).shape if file.suffix == ".npy" else self.load(name).shape

    def load(self, name: str) -> NDArray[Any]:
        """The array of one file."""
        file = self._file_of[name]
        if file.suffix == ".npy":
            return _mapped(file)
        try:
            with np.load(file, allow_pickle=False) as archive:
                key = next((key for key in ("features", "x") if key in archive), None)
                if key is None:
                    raise AnnotatorError(
                        f"{str(file)!r} holds {', '.join(archive.files)}; it should hold 'features' or 'x'"
                    )
                found: NDArray[Any] = archive[key]
                return found
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise _unreadable(file, error) from error


def _mapped(path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _unreadable(path, error) from error
    return array


def _unreadable(path: Path, error: Exception) -> AnnotatorError:
    return AnnotatorError(f"{str(path)!r} is cut off or no numpy data: {error}; fetch the file again")


def _ids_beside(path: Path) -> Path:
    places = [path.with_suffix(".ids.txt"), path.with_suffix(".ids.npy")]
    if path.stem.endswith("_ims"):
        places.insert(0, path.with_name(f"{path.stem.removesuffix('_ims')}_ids.txt"))
    found = next((place for place in places if place.exists()), None)
    if found is None:
        raise AnnotatorError(
            f"{str(path)!r} does not say which image each row belongs to; put the image ids, one a line, into "
            f"{places[0].name!r} beside it, or set 'feature_ids'"
        )
    return found


def _read_ids(path: Path) -> list[str]:
    if path.suffix == ".npy":
        ids = _mapped(path)
        if ids.ndim != 1 or ids.dtype.kind not in "iuU":
            raise AnnotatorError(
                f"{str(path)!r} holds {ids.dtype} of shape {ids.shape}; it should be a list of image ids"
            )
        return [str(value) for value in ids.tolist()]
    try:
        return path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise AnnotatorError(f"{str(path)!r} is not readable as a list of image ids: {error}") from error


def _row_of(source: Path, ids: Sequence[str], features: Path, rows: int) -> dict[str, int]:
    """Image id -> row; ids or rows may come once a caption instead of once an image."""
    once_a_caption = len(ids) == rows * _CAPTIONS
    if not once_a_caption and len(ids) not in (rows, rows / _CAPTIONS):
        raise AnnotatorError(
            f"{str(features)!r} has {rows:,} rows, but {str(source)!r} lists {len(ids):,} image ids; there should be "
            f"one id a row, or five a row (one a caption)"
        )
    if once_a_caption:
        ids = _once_an_image(source, ids)
    row_of: dict[str, int] = {}
    for place, name in enumerate(ids):
        row = place * (rows // len(ids))
        if row_of.setdefault(name, row) != row and ids[place - 1] != name:
            raise AnnotatorError(f"{str(source)!r} lists image {name!r} at rows {row_of[name]} and {row}")
    return row_of


def _once_an_image(source: Path, ids: Sequence[str]) -> Sequence[str]:
    for place, name in enumerate(ids):
        if name != ids[place - place % _CAPTIONS]:
            raise AnnotatorError(
                f"{str(source)!r} lists five ids a row of features, but in row {place // _CAPTIONS} they differ; "
                "it should list image ids, not caption ids"
            )
    return ids[::_CAPTIONS]
