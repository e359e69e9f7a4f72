"""Pictures that a table holds itself: looked at once, and written as files named by a hash of their bytes."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mitl.datasets.images import picture_errors
from mitl.datasets.row_sources import RowSource
from mitl.errors import DatasetError

PICTURES = "pictures"
"""Folder, within that for what a table holds itself, of the pictures that were inside it."""
_SUFFIXES = {"JPEG": ".jpg", "PNG": ".png", "GIF": ".gif", "WEBP": ".webp", "BMP": ".bmp", "TIFF": ".tif"}


@dataclass(frozen=True, slots=True)
class Inside:
    """What is inside a table, by the rows' numbers."""

    names: dict[int, str] = field(default_factory=dict)
    """The file that a picture's bytes become."""
    paths: dict[int, str] = field(default_factory=dict)
    """What the table calls the picture."""


def look_inside(source: RowSource, column: str, kept: Collection[int]) -> Inside:
    """The names of all pictures in the rows that are kept.

    Raises:
        DatasetError: a picture cannot be read.
    """
    found = Inside()
    for number, content, path in _contents(source, column, kept):
        if path:
            found.paths[number] = path
        if content is not None:
            suffix = _suffix(content, source.where(number))
            found.names[number] = hashlib.sha256(content).hexdigest()[:32] + suffix
    return found


def write_pictures(source: RowSource, column: str, inside: Inside, folder: Path) -> None:
    """Write what `look_inside` found into ``pictures`` in the folder, where it is not there yet."""
    for number, content, _ in _contents(source, column, inside.names):
        target = folder / PICTURES / inside.names[number]
        if content is not None and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f".{target.name}.part")
            part.write_bytes(content)
            part.replace(target)


def _contents(
    source: RowSource, column: str, kept: Collection[int]
) -> Iterator[tuple[int, bytes | None, str | None]]:
    """(row, bytes, path) of each picture; either may be missing."""
    for number, row in enumerate(source.rows([column]), start=1):
        cell = row[column]
        if number in kept and cell is not None:
            yield (
                (number, cell.get("bytes"), cell.get("path"))
                if isinstance(cell, dict)
                else (number, cell, None)
            )


def _suffix(content: bytes, where: str) -> str:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content)) as picture:
            kind = picture.format or ""
            picture.verify()
    except picture_errors() as error:
        told = "it is none" if isinstance(error, UnidentifiedImageError) else str(error).partition("\n")[0]
        raise DatasetError(f"the picture in {where} cannot be read: {told}") from error
    return _SUFFIXES.get(kind, f".{kind.lower()}")
