"""Where pictures, sounds and videos are: files in a folder, addresses made from a template, or inside a table."""

from __future__ import annotations

import hashlib
import io
import os
import string
import unicodedata
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from mitl.addresses import http_host
from mitl.core.pictures import FORMATS, SPOILED
from mitl.core.whole_files import part_name
from mitl.datasets.row_sources import RowSource
from mitl.errors import DatasetError
from mitl.protocol.media import HEAD, NOUNS, format_of, media_fault
from mitl.records import Image, PartKind

COCO_ORIGIN = "https://s3.amazonaws.com/images.cocodataset.org"
"""Serves COCO's pictures over https under a valid certificate, which the host of ``coco_url`` does not."""
SUFFIXES = {
    PartKind.IMAGE: (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"),
    PartKind.AUDIO: (".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a", ".aac"),
    PartKind.VIDEO: (".mp4", ".webm", ".mov", ".mkv", ".avi", ".m4v", ".ogv"),
}
"""How the names of files end, by what they hold."""
FIELDS = ("image_id", "file_name", "folder")


def picture_errors() -> tuple[type[Exception], ...]:
    """What Pillow raises for bytes that are no picture, or not a whole one."""
    from PIL import Image as Pictures

    return (OSError, *SPOILED, Pictures.DecompressionBombError)


def kind_of_name(name: str) -> PartKind | None:
    """What a file of this name holds, as far as its suffix tells."""
    return next((kind for kind, ends in SUFFIXES.items() if name.lower().endswith(ends)), None)


@dataclass(frozen=True, slots=True)
class Picture:
    """What a reader knows of one image; ``folder`` is the source's own sub-folder, such as ``val2014``."""

    image_id: str
    file_name: str | None = None
    folder: str | None = None
    url: str | None = None
    width: int | None = None
    height: int | None = None


class UrlTemplate:
    """Addresses such as ``https://host/{folder}/{file_name}`` or ``https://host/{image_id:012d}.jpg``.

    Raises:
        DatasetError: the template is malformed, no http address, or names an unknown field.
    """

    def __init__(self, template: str) -> None:
        self.template = template
        try:
            parsed = list(string.Formatter().parse(template))
        except ValueError as error:
            raise DatasetError(f"the image URL template {template!r} is malformed: {error}") from error
        fields = [(name, spec or "") for _, name, spec, _ in parsed if name is not None]
        for name, _ in fields:
            if name not in FIELDS:
                raise DatasetError(
                    f"the image URL template {template!r} names {{{name}}}; known: "
                    + ", ".join(f"{{{known}}}" for known in FIELDS)
                )
        if not http_host(template):
            raise DatasetError(
                f"the image URL template {template!r} should start with https:// or http:// and name a host"
            )
        if all(name == "folder" for name, _ in fields):
            raise DatasetError(
                f"the image URL template {template!r} gives images the same address; "
                "put {image_id} or {file_name} where they differ"
            )
        self.fields = fields

    def url(self, picture: Picture) -> str:
        """The address of one picture; DatasetError where it lacks what the template asks for."""
        values: dict[str, object] = {}
        for name, spec in self.fields:
            value = getattr(picture, name)
            if value is None:
                raise DatasetError(
                    f"image {picture.image_id!r} has no {name}, "
                    f"which the URL template {self.template!r} asks for"
                )
            values[name] = int(value) if spec.endswith("d") and value.isdecimal() else quote(value)
        try:
            return self.template.format(**values)
        except (ValueError, LookupError) as error:
            raise DatasetError(
                f"image {picture.image_id!r} does not fit the URL template {self.template!r}: {error}"
            ) from error


class ImageFolder:
    """A folder of image files, flat or with the source's sub-folders; DatasetError where it is not a folder."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise DatasetError(
                f"there is no image folder {str(folder)!r}; name the one that holds the files with --images"
            )
        self.folder = folder.resolve()

    def find(self, picture: Picture) -> str | None:
        """The absolute path of a picture's file, or None.

        No name leads out of the folder; a link that lies in it may, as those of the hub's cache and git-annex do.
        """
        if picture.file_name is None:
            return None
        names = [picture.file_name]
        if picture.folder:
            names.append(f"{picture.folder}/{picture.file_name}")
        if "\\" in picture.file_name:  # written on Windows
            names.append(picture.file_name.replace("\\", "/"))
        # macOS takes accents apart in names of files, tables seldom do.
        names += [unicodedata.normalize(form, name) for name in names for form in ("NFC", "NFD")]
        for name in dict.fromkeys(names):
            path = self.folder / name
            for place in map(Path, (os.path.realpath(path), os.path.normpath(path))):
                # Path.is_file raises for a name that is longer than file systems allow.
                if place.is_relative_to(self.folder) and os.path.isfile(place):  # noqa: PTH113
                    return str(place)
        return None


def locate(
    pictures: Sequence[Picture],
    *,
    folder: Path | None = None,
    url_template: str | None = None,
    nouns: str = "images",
) -> list[Image]:
    """Images, called ``nouns``, with the file found in the folder and the address from the template, where given.

    Without a template an image keeps the address that its source gave; a file that is not there leaves the
    image with its address alone.

    Raises:
        DatasetError: the template or the folder is of no use, or the folder holds none of the pictures.
    """
    place = ImageFolder(folder) if folder is not None else None
    template = UrlTemplate(url_template) if url_template is not None else None
    images = [
        Image(
            picture.image_id,
            file=place.find(picture) if place else None,
            url=template.url(picture) if template else picture.url,
            width=picture.width,
            height=picture.height,
        )
        for picture in pictures
    ]
    if place and images and not any(image.file for image in images):
        example = min((repr(entry.name) for entry in place.folder.iterdir()), default="nothing")
        raise DatasetError(
            f"the folder {str(folder)!r} holds none of the {len(images):,} {nouns}; it should hold files such as "
            f"{pictures[0].file_name or pictures[0].image_id!r}, and holds {example}; name the right one "
            "with --images"
        )
    return images


PICTURES = "pictures"
"""Folder, within that for what a table holds itself, of the pictures, sounds or videos that were inside it."""
_SUFFIXES = {"JPEG": ".jpg", "MPO": ".jpg", "TIFF": ".tif"}
"""Of Pillow's formats those whose files do not end in the format's name."""


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
    inside = Inside()
    for number, content, path in _contents(source, column, kept):
        if path:
            inside.paths[number] = path
        if content is not None:
            where = source.where(number)
            inside.names[number] = hashlib.sha256(content).hexdigest()[:32] + _suffix(content, kind, where)
    return inside


def write_pictures(source: RowSource, column: str, inside: Inside, folder: Path) -> None:
    """Write what `look_inside` found into ``pictures`` in the folder, where it is not there yet."""
    for number, content, _ in _contents(source, column, inside.names):
        target = folder / PICTURES / inside.names[number]
        if content is not None and not target.exists():
            write_whole(target, content)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all; of many at once, so none waits for the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = part_name(path)
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


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
        with (
            warnings.catch_warnings(action="ignore"),
            Image.open(io.BytesIO(content), formats=FORMATS) as picture,
        ):
            kind = picture.format or ""
            picture.verify()
    except picture_errors() as error:
        told = "it is none" if isinstance(error, UnidentifiedImageError) else str(error).partition("\n")[0]
        raise DatasetError(f"the picture in {where} cannot be read: {told}") from error
    return _SUFFIXES.get(kind, f".{kind.lower()}")
