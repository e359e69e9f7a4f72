"""Region features that a detector made elsewhere: the 36 regions an image that VSRN reads.

They come as one array with its ids, as a folder with a file an image, or as the tsv of origin. The array is that of
SCAN's and VSRN's data, ``{split}_ims.npy`` with ``{split}_ids.txt``; numpy files are memory-mapped, so that only what
is asked for is in memory. The tsv is that of the bottom-up-attention detector, with a line an image. Features are used
as stored.
Source: Anderson et al., Bottom-up and top-down attention for image captioning and VQA, CVPR 2018; the columns as in
its released tsv files of 36 boxes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from annotators.base import file_sha256, fingerprint
from annotators.inputs.embedding_files import listed_ids, load_numpy, open_archive
from mitl.errors import AnnotatorError
from mitl.records import ImageItem

NO_EXTRACTOR = (
    "no extractor of regions ships; make the features of images of your own with a bottom-up-attention detector "
    "(36 boxes an image)"
)

_PICTURES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif"})


class RegionFeatures(ABC):
    """Regions (R, D) float32 by image; the files behind them stay as they are."""

    def __init__(self, path: Path, shape: tuple[int, int], names: Collection[str], digest: str) -> None:
        self.path, self.shape = path, shape
        self._names = names
        self.fingerprint = digest
        """Hash of the features and of which image each belongs to."""

    def find(self, item: ImageItem) -> str | None:
        """The name under which this image's features are kept: its id, or a file name's stem where the id is one."""
        name = Path(item.external_id)
        names = [item.external_id, *([name.stem] if name.suffix.lower() in _PICTURES else [])]
        return next((name for name in names if name in self._names), None)

    @abstractmethod
    def load(self, name: str) -> NDArray[Any]:
        """The array kept under this name, of whatever shape it has."""

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of what is kept under this name, without reading all of it where that is possible."""
        return self.load(name).shape

    def require(self, items: Sequence[ImageItem]) -> None:
        """Raise AnnotatorError where an image has no features or some of another shape, before any work begins."""
        missing = [item for item in items if self.find(item) is None]
        if missing:
            raise AnnotatorError(
                f"{str(self.path)!r} lacks the regions of {len(missing):,} of {len(items):,} images; "
                f"first: {missing[0].external_id!r}; {NO_EXTRACTOR}"
            )
        for item in items:
            self._check(item, self.shape_of(self.find(item) or ""))

    def read(self, item: ImageItem) -> NDArray[np.float32]:
        """(R, D) the regions of one image, in stored order; AnnotatorError where they are missing or not finite."""
        name = self.find(item)
        if name is None:
            raise AnnotatorError(
                f"{str(self.path)!r} lacks the regions of image {item.external_id!r}; {NO_EXTRACTOR}"
            )
        stored = self.load(name)
        self._check(item, stored.shape)
        if stored.dtype.kind not in "fiu":
            raise AnnotatorError(
                f"the regions of image {item.external_id!r} in {str(self.path)!r} are "
                f"{stored.dtype}; they should be float32"
            )
        with np.errstate(over="ignore"):
            regions = np.array(stored, dtype=np.float32)
        if not np.isfinite(regions).all():
            raise AnnotatorError(
                f"the regions of image {item.external_id!r} in {str(self.path)!r} hold "
                f"{np.count_nonzero(~np.isfinite(regions)):,} numbers that are not finite; make them again"
            )
        return regions

    def _check(self, item: ImageItem, shape: tuple[int, ...]) -> None:
        if shape == self.shape:
            return
        regions, width = self.shape
        what = f"image {item.external_id!r} has features of shape {shape} in {str(self.path)!r}"
        if len(shape) == 2 and shape[1] == width:
            what = f"image {item.external_id!r} has {shape[0]} regions in {str(self.path)!r}"
        raise AnnotatorError(f"{what}; these weights read {regions} regions of {width} numbers")


COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")

_LONGEST_LINE = 64 << 20
"""A line of 36 boxes has 0.4 MB."""


class _Line(NamedTuple):
    offset: int
    length: int
    boxes: int
    characters: int


class RegionTable(RegionFeatures):
    """The tsv of origin: image_id, image_w, image_h, num_boxes, boxes, features (base64 of little-endian float32).

    The file is read through once, line by line, for its hash and for where each image's line is; a line is decoded
    when its image is asked for. Of several lines of one image the last counts, as in SCAN's converter.
    """

    def __init__(self, path: Path, shape: tuple[int, int]) -> None:
        digest = hashlib.sha256()
        self._lines: dict[str, _Line] = {}
        for number, (offset, line) in enumerate(_lines(path), 1):
            digest.update(line)
            fields = line.rstrip(b"\r\n").split(b"\t")
            if offset == 0 and fields[0] == b"image_id":
                continue
            if len(fields) != len(COLUMNS) or not fields[3].isdigit():
                raise AnnotatorError(
                    f"line {number} of {str(path)!r} is cut off or no line of region features; it should have "
                    f"the columns {', '.join(COLUMNS)}, separated by tabs"
                )
            name = fields[0].decode("utf-8", "replace").strip()
            self._lines[name] = _Line(offset, len(line), int(fields[3]), len(fields[5]))
        super().__init__(path, shape, self._lines, fingerprint(features=digest.hexdigest()))

    def shape_of(self, name: str) -> tuple[int, ...]:
        """From the length of the text, without decoding it."""
        line = self._lines[name]
        if line.characters != 4 * -(-line.boxes * self.shape[1] * 4 // 3):  # base64 of float32
            return self.load(name).shape
        return line.boxes, self.shape[1]

    def load(self, name: str) -> NDArray[Any]:
        """The decoded features of one line."""
        line = self._lines[name]
        with self.path.open("rb") as file:
            file.seek(line.offset)
            text = file.read(line.length).rstrip(b"\r\n").split(b"\t")[-1]
        try:
            numbers = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4")
            return numbers.reshape(line.boxes, -1)
        except (binascii.Error, ValueError) as error:
            raise AnnotatorError(
                f"the features of image {name!r} in {str(self.path)!r} are cut off or no base64 of float32 numbers "
                f"for {line.boxes} regions; fetch the file again"
            ) from error


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    offset = 0
    with path.open("rb") as file:
        while line := file.readline(_LONGEST_LINE):
            if len(line) == _LONGEST_LINE:
                raise AnnotatorError(
                    f"{str(path)!r} has a line of more than {_LONGEST_LINE >> 20} MiB; it is not a tsv of regions"
                )
            yield offset, line
            offset += len(line)


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
        f"{str(path)!r} is not a file of region features; it should be .npy, .tsv or a folder of .npy files"
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
        self._row_of = _row_of(listed, listed_ids(listed), path, len(self._array))
        digest = fingerprint(features=file_sha256(path), ids=file_sha256(listed))
        super().__init__(path, shape, self._row_of, digest)

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
        # COCO's file names end in the image's id, filled up with zeros; an end of several files names none.
        ends = [file.stem.rpartition("_")[2].lstrip("0") for file in files]
        often = Counter(ends)
        self._file_of = {end: file for end, file in zip(ends, files, strict=True) if often[end] == 1}
        self._file_of.update((file.stem, file) for file in files)
        digest = fingerprint(**{file.name: file_sha256(file) for file in files})
        super().__init__(path, shape, self._file_of, digest)

    def shape_of(self, name: str) -> tuple[int, ...]:
        """From the head of a .npy file alone."""
        file = self._file_of[name]
        return _mapped(file).shape if file.suffix == ".npy" else self.load(name).shape

    def load(self, name: str) -> NDArray[Any]:
        """The array of one file."""
        file = self._file_of[name]
        if file.suffix == ".npy":
            return _mapped(file)
        with open_archive(file) as archive:
            key = next((key for key in ("features", "x") if key in archive), None)
            if key is None:
                raise AnnotatorError(
                    f"{str(file)!r} holds {', '.join(archive.files)}; it should hold 'features' or 'x'"
                )
            regions: NDArray[Any] = archive[key]
            return regions


def _mapped(path: Path) -> NDArray[Any]:
    held = load_numpy(path, mmap_mode="r")
    if isinstance(held, np.ndarray):
        return held
    held.close()
    raise AnnotatorError(f"{str(path)!r} holds an archive, not one array; call it .npz")


def _ids_beside(path: Path) -> Path:
    places = [path.with_suffix(".ids.txt"), path.with_suffix(".ids.npy")]
    if path.stem.endswith("_ims"):
        places.insert(0, path.with_name(f"{path.stem.removesuffix('_ims')}_ids.txt"))
    listed = next((place for place in places if place.exists()), None)
    if listed is None:
        raise AnnotatorError(
            f"{str(path)!r} does not say which image each row belongs to; put the image ids, one a line, into "
            f"{places[0].name!r} beside it, or set 'feature_ids'"
        )
    return listed


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
