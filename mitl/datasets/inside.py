"""Pictures, sounds and videos that a table holds itself: looked at once, and written as files named by their hash."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mitl.datasets.images import picture_errors
from mitl.datasets.row_sources import RowSource
from mitl.errors import DatasetError
from mitl.protocol.media import HEAD, NOUNS, format_of, media_fault
from mitl.records import PartKind

PICTURES = "pictures"
"""Folder, within that for what a table holds itself, of the pictures, sounds or videos that were inside it."""
_SUFFIXES = {"JPEG": ".jpg", "PNG": ".png", "GIF": ".gif", "WEBP": ".webp", "BMP": ".bmp", "TIFF": ".tif"}


@dataclass(frozen=True, slots=True)
class Inside:
    """What is inside a table, by the rows' numbers."""

    names: dict[int, str] = field(default_factory=dict)
    """The file that a picture's bytes become."""
    paths: dict[int, str] = field(default_factory=dict)
    """What the table calls the picture."""


def look_inside(source: RowSource, column: str, kept: Collection[int], kind: PartKind) -> Inside:
    """The names of all pictures in the rows that are kept.

    Raises:
        DatasetError: a picture cannot be read; a sound or a video is in no format that is known.
    """
    found = Inside()
    for number, content, path in _contents(source, column, kept):
        if path:
            found.paths[number] = path
        if content is not None:
            where = source.where(number)
            found.names[number] = hashlib.sha256(content).hexdigest()[:32] + _suffix(content, kind, where)
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


def _suffix(content: bytes, kind: PartKind, where: str) -> str:
    if kind is PartKind.IMAGE:
        return _picture_suffix(content, where)
    fault = media_fault(content[:HEAD], kind) if content else "is empty"
    medium = format_of(content[:HEAD])
    if fault or medium is None:
        raise DatasetError(f"the {NOUNS[kind]} in {where} {fault}")
    return f".{medium.suffix}"


def _picture_suffix(content: bytes, where: str) -> str:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content)) as picture:
            kind = picture.format or ""
            picture.verify()
    except picture_errors() as error:
        told = "it is none" if isinstance(error, UnidentifiedImageError) else str(error).partition("\n")[0]
        raise DatasetError(f"the picture in {where} cannot be read: {told}") from error
    return _SUFFIXES.get(kind, f".{kind.lower()}")
