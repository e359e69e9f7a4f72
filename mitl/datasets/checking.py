"""Every file of a data set opened once: what is missing, unreadable, cut off, silent, doubled or animated, by name."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mitl.core.pictures import FORMATS
from mitl.datasets.images import picture_errors
from mitl.datasets.media import have_decoders, header_fault, sound_samples, video_frames
from mitl.errors import DatasetError
from mitl.progress import Progress, no_progress
from mitl.protocol.media import NOUNS
from mitl.records import Image, PartKind, RetrievalSet

HEADERS_ONLY = (
    "sounds and videos were checked by their headers alone; install mitl[media], which decodes them"
)


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found; a line for each file that is not as it should be."""

    lines: tuple[str, ...]
    faults: dict[str, int]
    """How many are missing, unreadable, silent (of nothing but zeros), repeated (byte for byte another's), animated."""
    unseen: int
    """Items with an address alone, which nobody looked at."""


def check_items(
    data: RetrievalSet, project: Path, files: Mapping[str, str], progress: Progress = no_progress
) -> Checked:
    """Open and decode the file of every image, sound or video.

    Without the extra ``media`` only the headers of sounds and videos are looked at, which a line says.

    Args:
        project: the folder from which relative files are named.
        files: image id -> the file that its table names, where it is known.

    Raises:
        DatasetError: no file can be used and no item has an address, so that there would be nothing to show.
    """
    lines: dict[str, list[str]] = {
        kind: [] for kind in ("missing", "unreadable", "silent", "repeated", "animated")
    }
    kind_of_file = data.form.left_part
    noun = data.form.sides[0]
    first: dict[bytes, str] = {}
    unseen = 0
    nouns = "pictures" if kind_of_file is PartKind.IMAGE else data.form.nouns[0]
    with progress(f"check {nouns}", total=len(data.images)) as advance:
        for image in data.images:
            if image.file is None and image.url is not None:
                unseen += 1
            else:
                kind, line = _look(image, project, files, first, kind_of_file)
                if kind:
                    lines[kind].append(f"{noun} {image.external_id!r}: {line}")
            advance(1)
    told = [line for some in lines.values() for line in some]
    if len(lines["missing"]) + len(lines["unreadable"]) == len(data.images):
        several = len(data.images) > 1
        who = f"none of the {len(data.images):,} {nouns} can" if several else f"the only {nouns[:-1]} cannot"
        option = "--images" if kind_of_file is PartKind.IMAGE else "--media"
        raise DatasetError(
            f"{who} be used, as {told[0]}; put the files there, or name their folder with {option}"
        )
    if kind_of_file is not PartKind.IMAGE and not have_decoders():
        told.append(HEADERS_ONLY)
    return Checked(tuple(told), {kind: len(some) for kind, some in lines.items()}, unseen)


def _look(
    image: Image, project: Path, files: Mapping[str, str], first: dict[bytes, str], kind: PartKind
) -> tuple[str | None, str]:
    """(what is wrong or None, in words)."""
    if image.file is None:
        named = files.get(image.external_id)
        if named and Path(named).is_absolute() and Path(named).is_file():
            return "missing", f"{named!r} lies outside the folder of the table"
        return "missing", f"there is no file {named!r}" if named else "no file is named or found"
    path = project / image.file
    try:
        content = path.read_bytes()
        wrong = _look_at_picture(path, content) if kind is PartKind.IMAGE else _listen(path, content, kind)
    except FileNotFoundError:
        return "missing", f"there is no file {image.file!r}"
    except DatasetError as error:
        return "unreadable", f"{image.file!r} {error}"
    except picture_errors() as error:
        told = getattr(error, "strerror", None) or str(error)
        return "unreadable", f"{image.file!r} cannot be read: {told}"
    earliest = first.setdefault(hashlib.sha256(content).digest(), image.external_id)
    if earliest != image.external_id:
        same = "picture" if kind is PartKind.IMAGE else NOUNS[kind]
        return "repeated", f"{image.file!r} is the same {same} as {NOUNS[kind]} {earliest!r}"
    return (wrong[0], f"{image.file!r} {wrong[1]}") if wrong else (None, "")


_GLANCE = 16
"""Pixels across of the frames that are decoded to see whether a video is whole."""


def _look_at_picture(path: Path, content: bytes) -> tuple[str, str] | None:
    from PIL import Image as Pictures
    from PIL import UnidentifiedImageError

    try:
        with warnings.catch_warnings(action="ignore"), Pictures.open(path, formats=FORMATS) as picture:
            # Phones put a smaller copy or a map of depth behind a photograph, as MPO.
            frames = 1 if picture.format == "MPO" else getattr(picture, "n_frames", 1)
            picture.load()
    except UnidentifiedImageError:
        raise DatasetError("is empty" if not content else "is no picture") from None
    return (
        ("animated", f"is animated ({frames} frames); machines see the first one alone")
        if frames > 1
        else None
    )


def _listen(path: Path, content: bytes, kind: PartKind) -> tuple[str, str] | None:
    """What is wrong with a sound or a video that can be read; DatasetError for one that cannot."""
    if fault := header_fault(content, kind):
        raise DatasetError(fault)
    if not have_decoders():
        return None
    if kind is PartKind.VIDEO:
        video_frames(path, size=_GLANCE)
        return None
    return None if sound_samples(path).any() else ("silent", "is silent: every sample is zero")
