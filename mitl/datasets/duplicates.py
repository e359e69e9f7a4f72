"""Near-duplicate pictures by perceptual hash: images of a data set that a training set holds too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mitl.core.pictures import FORMATS, upright
from mitl.datasets.images import SUFFIXES, kind_of_name, picture_errors
from mitl.errors import DatasetError
from mitl.records import PartKind

MAX_DISTANCE = 4
"""Of 64 bits. Copies that were scaled or compressed again differ in a few; unrelated pictures in some 32."""
_BLOCK = 1 << 20

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
    paths = sorted(path for path in folder.rglob("*") if kind_of_name(path.name) is PartKind.IMAGE)
    if not paths:
        suffixes = ", ".join(SUFFIXES[PartKind.IMAGE])
        raise DatasetError(f"{str(folder)!r} holds no pictures ({suffixes}); name another folder")
    return paths


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

    hashes = []
    for path in paths:
        try:
            with Image.open(path, formats=FORMATS) as picture:
                bits = imagehash.phash(upright(picture)).hash
        except picture_errors() as error:
            raise DatasetError(f"{str(path)!r} is not a picture that can be read: {error}") from error
        hashes.append(np.packbits(bits.reshape(-1)).view(">u8")[0])
        advance(1)
    return np.array(hashes, np.uint64)


def nearest(ours: Hashes, others: Hashes, *, max_distance: int = MAX_DISTANCE) -> list[Duplicate]:
    """Each of our pictures with a picture of the other set at most so many bits away; the nearest, first of equals."""
    found = []
    for place, bits in enumerate(ours):
        best, at = 65, -1
        for start in range(0, len(others), _BLOCK):
            distances = np.bitwise_count(np.bitwise_xor(others[start : start + _BLOCK], bits))
            least = int(distances.argmin())
            if distances[least] < best:
                best, at = int(distances[least]), start + least
        if at >= 0 and best <= max_distance:
            found.append(Duplicate(place, at, best))
    return found


def same_set(paths: Sequence[Path], others: Sequence[Path]) -> Path | None:
    """A file that is in both lists, which would be found as its own duplicate; None where there is none."""
    resolved = {path.resolve() for path in paths}
    return next((path for path in others if path.resolve() in resolved), None)
