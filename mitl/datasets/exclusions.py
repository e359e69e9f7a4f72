"""What must not count: lists of meaningless or wrong captions, wrong positives, and images that a training set holds.

Those images are found by perceptual hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mitl.datasets.files import Row, read_rows
from mitl.errors import DatasetError
from mitl.records import Exclusion, ExclusionKind, RetrievalSet

WHAT = "an exclusion list"
REQUIRED = ("kind",)
OPTIONAL = ("image_id", "caption_id", "reason", "source")
NEEDS = {
    ExclusionKind.CAPTION: ("caption_id",),
    ExclusionKind.PAIR: ("caption_id",),
    ExclusionKind.WRONG: ("image_id", "caption_id"),
    ExclusionKind.IMAGE: ("image_id",),
}
"""What each kind cannot do without. A pair without an image means the caption and its own image."""


def paper_exclusions() -> list[Exclusion]:
    """The invalid items of the COCO test split that ECCV Caption lists (Chun et al., appendix C.1).

    18 meaningless captions, 14 captions that are wrong for their own image (``resolve`` fills it in), and one
    image that is also in the training set.
    """
    path = Path(str(files("mitl.datasets") / "data" / "eccv_caption_exclusions.csv"))
    return read_exclusions(path)


def read_exclusions(path: Path) -> list[Exclusion]:
    """The entries of a CSV or Parquet list with ``kind`` (caption, pair, wrong, image), ``image_id``, ``caption_id``.

    ``reason`` and ``source`` may say why and by whom; without a source it is the file's name.

    Raises:
        DatasetError: the file is missing or malformed, a kind is unknown, an id that the kind needs is
            missing, or an entry comes twice.
    """
    entries: dict[tuple[ExclusionKind, str | None, str | None], Exclusion] = {}
    for number, row in enumerate(read_rows(path, WHAT, REQUIRED, OPTIONAL), start=1):
        entry = _entry(row, number, path)
        key = (entry.kind, entry.image_external_id, entry.caption_external_id)
        if key in entries:
            raise DatasetError(f"row {number} of {str(path)!r} repeats an earlier entry; leave it out")
        entries[key] = entry
    return list(entries.values())


def resolve(exclusions: Iterable[Exclusion], data: RetrievalSet, *, strict: bool = True) -> list[Exclusion]:
    """The entries that concern this data set; a pair without an image gets its caption's own image.

    An entry of an unknown id raises DatasetError, or is left out where ``strict`` is off (a published list on a
    part of its data set).
    """
    own = {caption.external_id: caption.image_external_id for caption in data.captions}
    images = {image.external_id for image in data.images}
    resolved = []
    for entry in exclusions:
        image, caption = entry.image_external_id, entry.caption_external_id
        if caption is not None and caption not in own:
            problem = f"caption {caption!r}"
        elif image is not None and image not in images:
            problem = f"image {image!r}"
        else:
            if entry.kind is ExclusionKind.PAIR and image is None and caption is not None:
                entry = replace(entry, image_external_id=own[caption])
            resolved.append(entry)
            continue
        if strict:
            raise DatasetError(
                f"the exclusion list {entry.source!r} names {problem}, which is not in {data.name!r}"
            )
    return resolved


def _entry(row: Row, number: int, path: Path) -> Exclusion:
    cells = {column: str(row[column]).strip() for column in row if row[column] is not None}
    try:
        kind = ExclusionKind(cells.get("kind", ""))
    except ValueError as error:
        known = ", ".join(ExclusionKind)
        raise DatasetError(
            f"row {number} of {str(path)!r} has the kind {cells.get('kind', '')!r}; known: {known}"
        ) from error
    for column in NEEDS[kind]:
        if not cells.get(column):
            raise DatasetError(
                f"row {number} of {str(path)!r} is of the kind {kind.value!r}, but has no {column}"
            )
    return Exclusion(
        kind,
        None if kind is ExclusionKind.CAPTION else cells.get("image_id") or None,
        None if kind is ExclusionKind.IMAGE else cells.get("caption_id") or None,
        reason=cells.get("reason", ""),
        source=cells.get("source") or path.name,
    )


SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
MAX_DISTANCE = 4
"""Of 64 bits. Copies that were scaled or compressed again differ in a few; unrelated pictures in some 32."""
_BLOCK = 4096

Hashes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A picture of ours and the most similar one of the other set."""

    place: int
    """Of ours, in the order given."""
    other: int
    """Of the other set's, in the order given."""
    distance: int
    """Bits in which the hashes differ, 0 to 64."""


def picture_files(folder: Path) -> list[Path]:
    """The pictures below a folder, by name.

    Raises:
        DatasetError: there is no folder, or no picture in it.
    """
    if not folder.is_dir():
        raise DatasetError(
            f"there is no folder {str(folder)!r}; name the folder of the training set's pictures"
        )
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not found:
        raise DatasetError(f"{str(folder)!r} holds no pictures ({', '.join(SUFFIXES)}); name another folder")
    return found


def picture_hashes(paths: Iterable[Path], advance: Callable[[int], None] = lambda n: None) -> Hashes:
    """The perceptual hash (pHash, 64 bits) of each picture.

    Raises:
        DatasetError: the extra is not installed, or a file is not a picture.
    """
    try:
        import imagehash
    except ImportError as error:
        raise DatasetError(
            "looking for duplicates needs the package imagehash; install it with `pip install 'mitl[duplicates]'`"
        ) from error
    from PIL import Image

    found = []
    for path in paths:
        try:
            with Image.open(path) as picture:
                bits = imagehash.phash(picture.convert("RGB")).hash
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            raise DatasetError(f"{str(path)!r} is not a picture that can be read: {error}") from error
        found.append(np.packbits(bits.reshape(-1)).view(">u8")[0])
        advance(1)
    return np.array(found, np.uint64)


def nearest(ours: Hashes, others: Hashes, *, max_distance: int = MAX_DISTANCE) -> list[Duplicate]:
    """Each of our pictures with a picture of the other set at most so many bits away; the nearest, first of equals."""
    return [
        Duplicate(place, other, distance)
        for place, other, distance in _nearest(ours, others)
        if distance <= max_distance
    ]


def _nearest(ours: Hashes, others: Hashes) -> Iterator[tuple[int, int, int]]:
    if not len(others):
        return
    for place, one in enumerate(ours):
        best, at = 65, -1
        for start in range(0, len(others), _BLOCK * 256):
            distances = np.bitwise_count(np.bitwise_xor(others[start : start + _BLOCK * 256], one))
            least = int(distances.argmin())
            if distances[least] < best:
                best, at = int(distances[least]), start + least
        yield place, at, best


def same_set(paths: Sequence[Path], others: Sequence[Path]) -> Path | None:
    """A file that is in both lists, which would be found as its own duplicate; None where there is none."""
    known = {path.resolve() for path in paths}
    return next((path for path in others if path.resolve() in known), None)
