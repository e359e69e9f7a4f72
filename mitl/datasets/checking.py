"""Every picture of a data set opened once: what is missing, unreadable, cut off, there twice or animated, by name."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mitl.datasets.images import picture_errors
from mitl.errors import DatasetError
from mitl.progress import Progress, no_progress
from mitl.records import Image, RetrievalSet, several


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found; a line for each picture that is not as it should be."""

    lines: tuple[str, ...]
    missing: int
    unreadable: int
    repeated: int
    """Pictures that are byte for byte another image's."""
    animated: int
    unseen: int
    """Images with an address alone, which nobody looked at."""


def check_pictures(
    data: RetrievalSet, project: Path, files: Mapping[str, str], progress: Progress = no_progress
) -> Checked:
    """Open and decode the file of every image.

    Args:
        project: the folder from which relative files are named.
        files: image id -> the file that its table names, where it is known.

    Raises:
        DatasetError: no picture can be used and no image has an address, so that there would be nothing to show.
    """
    lines: dict[str, list[str]] = {kind: [] for kind in ("missing", "unreadable", "repeated", "animated")}
    first: dict[bytes, str] = {}
    unseen = 0
    with progress("check pictures", total=len(data.images)) as advance:
        for image in data.images:
            if image.file is None and image.url is not None:
                unseen += 1
            else:
                kind, line = _look(image, project, files, first)
                if kind:
                    lines[kind].append(f"image {image.external_id!r}: {line}")
            advance(1)
    found = Checked(
        lines=tuple(line for some in lines.values() for line in some),
        missing=len(lines["missing"]),
        unreadable=len(lines["unreadable"]),
        repeated=len(lines["repeated"]),
        animated=len(lines["animated"]),
        unseen=unseen,
    )
    if found.missing + found.unreadable == len(data.images):
        raise DatasetError(
            f"none of the {several(len(data.images), 'picture')} can be used, as {found.lines[0]}; put the files "
            "there, or name their folder with --images"
        )
    return found


def _look(
    image: Image, project: Path, files: Mapping[str, str], first: dict[bytes, str]
) -> tuple[str | None, str]:
    """(what is wrong or None, in words)."""
    from PIL import Image as Pictures
    from PIL import UnidentifiedImageError

    if image.file is None:
        named = files.get(image.external_id)
        return "missing", f"there is no file {named!r}" if named else "no file is named or found"
    path = project / image.file
    try:
        content = path.read_bytes()
        with warnings.catch_warnings(action="ignore"), Pictures.open(path) as picture:
            frames = getattr(picture, "n_frames", 1)
            picture.load()
    except FileNotFoundError:
        return "missing", f"there is no file {image.file!r}"
    except UnidentifiedImageError:
        kind = "is empty" if not content else "is no picture"
        return "unreadable", f"{image.file!r} {kind}"
    except picture_errors() as error:
        told = getattr(error, "strerror", None) or str(error)
        return "unreadable", f"{image.file!r} cannot be read: {told}"
    known = first.setdefault(hashlib.sha256(content).digest(), image.external_id)
    if known != image.external_id:
        return "repeated", f"{image.file!r} is the same picture as image {known!r}"
    if frames > 1:
        return "animated", f"{image.file!r} is animated ({frames} frames); machines see the first one alone"
    return None, ""
