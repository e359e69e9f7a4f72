"""A plain table of pairs: captions with the image they describe, one caption a row or one image a row."""

from __future__ import annotations

import hashlib
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mitl.datasets.assembling import assemble
from mitl.datasets.files import Row, is_parquet, open_parquet, read_rows
from mitl.datasets.images import ImageFolder, Picture, locate
from mitl.errors import DatasetError
from mitl.records import Caption, RetrievalSet

WHAT = "a table of pairs"
TEXT_COLUMNS = ("caption", "text")
OPTIONAL = ("caption_id", *TEXT_COLUMNS, "file", "url")
PICTURES = "pictures"
"""Folder, within that for what a table holds itself, of the pictures that were inside it."""
_LIST_AS_TEXT = re.compile(r"""\[\s*(['"]).*\1\s*,?\s*\]""", re.DOTALL)
_SUFFIXES = {"JPEG": ".jpg", "PNG": ".png", "GIF": ".gif", "WEBP": ".webp", "BMP": ".bmp", "TIFF": ".tif"}
_ROWS_AT_ONCE = 64
"""Rows whose pictures are in memory together."""


def read_table(
    path: Path,
    *,
    images: Path | None = None,
    url_template: str | None = None,
    name: str = "table",
    unpack: Path | None = None,
) -> RetrievalSet:
    """The pairs of a CSV or Parquet file with ``image_id`` and ``caption`` (or ``text``).

    A Parquet file may have a row an image, with its captions (and their ``caption_id``s) as lists. ``caption_id`` may
    be missing: then captions are ``<image_id>#<k>``, k from 0 in the order of an image's rows. ``file`` is looked up
    in the folder ``images``, else beside the table; ``url`` is the image's address. Pictures inside a Parquet file
    (a column of bytes, or a structure of ``bytes`` and ``path`` as the ``datasets`` library writes it) are written to
    ``pictures`` in the folder ``unpack``, and named relative to its parent.

    Ids are integers if all of them are, else strings.

    Raises:
        DatasetError: the file is missing or malformed, a cell is empty, a caption id comes twice, two rows
            disagree about one image, a list was written as text, or a picture inside cannot be read.
    """
    rows = read_rows(path, WHAT, ("image_id",), OPTIONAL, lists=("caption_id", *TEXT_COLUMNS))
    text_column = next((column for column in TEXT_COLUMNS if rows and column in rows[0]), None)
    if rows and text_column is None:
        raise DatasetError(
            f"{str(path)!r} has no column 'caption' or 'text'; a table of pairs needs one of them"
        )
    seen: Counter[str] = Counter()
    captions: list[Caption] = []
    pictures: dict[str, Picture] = {}
    for number, row in enumerate(rows, start=1):
        image_id = _cell(row, "image_id", number, path)
        for caption_id, text in _captions(row, str(text_column), number, path):
            captions.append(Caption(caption_id or f"{image_id}#{seen[image_id]}", image_id, text))
            seen[image_id] += 1
        picture = Picture(image_id, file_name=_maybe(row, "file"), url=_maybe(row, "url"))
        if pictures.setdefault(image_id, picture) != picture:
            raise DatasetError(
                f"row {number} of {str(path)!r} gives image {image_id!r} another file or url than before"
            )
    listed = list(pictures.values())
    found = locate(listed, folder=images or _beside(path, listed), url_template=url_template)
    data = assemble(name, "table", found, captions, source=path)
    column = _picture_column(path)
    if column is None or images is not None or unpack is None:
        return data
    # Last, so that a table that will not do leaves no pictures behind.
    files = _unpacked(path, column, unpack)
    unpacked = (replace(image, file=files.get(image.external_id, image.file)) for image in data.images)
    return replace(data, images=tuple(unpacked))


def _captions(row: Row, column: str, number: int, path: Path) -> Iterator[tuple[str | None, str]]:
    """(id or None, text) of a row's captions."""
    if not isinstance(row.get(column), list):
        text = _cell(row, column, number, path)
        if _LIST_AS_TEXT.fullmatch(text):
            raise DatasetError(
                f"row {number} of {str(path)!r} has a list written as text in {column!r} ({text[:40]!r}…); give each "
                "caption a row of its own, or write a Parquet column of lists"
            )
        yield (_cell(row, "caption_id", number, path) if "caption_id" in row else None), text
        return
    texts = [_text(one) for one in row[column]]
    ids = [_text(one) for one in row["caption_id"]] if isinstance(row.get("caption_id"), list) else None
    if not texts or not all(texts):
        raise DatasetError(f"row {number} of {str(path)!r} has an empty {column} among its {len(texts)}")
    if "caption_id" in row and (ids is None or len(ids) != len(texts) or not all(ids)):
        raise DatasetError(
            f"row {number} of {str(path)!r} has {len(texts)} captions, but 'caption_id' does not list an id for each"
        )
    yield from zip(ids or [None] * len(texts), map(str, texts), strict=True)


def _picture_column(path: Path) -> str | None:
    """The column of a Parquet file whose cells hold pictures; DatasetError where several do."""
    if not is_parquet(path):
        return None
    with open_parquet(path, WHAT) as file:
        columns = [field.name for field in file.schema_arrow if _holds_pictures(field)]
    if len(columns) > 1:
        raise DatasetError(
            f"{str(path)!r} holds pictures in several columns ({', '.join(columns)}), and one picture an image is "
            "needed; leave the others out, or name a folder with --images"
        )
    return columns[0] if columns else None


def _holds_pictures(field: Any) -> bool:
    import pyarrow as pa

    kind = field.type
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field(kind.get_field_index("bytes")).type
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _unpacked(path: Path, column: str, folder: Path) -> dict[str, str]:
    """Image id → the picture's file, relative to the parent of ``folder``; each is named by a hash of its bytes."""
    names: dict[str, str] = {}
    for number, image_id, content in _contents(path, column):
        name = hashlib.sha256(content).hexdigest()[:32] + _suffix(content, number, path)
        if names.setdefault(image_id, name) != name:
            raise DatasetError(
                f"row {number} of {str(path)!r} gives image {image_id!r} another picture than before"
            )
    # All of them will do: only now is any written.
    for _, image_id, content in _contents(path, column):
        target = folder / PICTURES / names[image_id]
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f".{target.name}.part")
            part.write_bytes(content)
            part.replace(target)
    return {image_id: f"{folder.name}/{PICTURES}/{name}" for image_id, name in names.items()}


def _contents(path: Path, column: str) -> Iterator[tuple[int, str, bytes]]:
    """(row, image id, bytes) of each picture; a structure without bytes may name a file, which `file` finds."""
    number = 0
    with open_parquet(path, WHAT) as file:
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=["image_id", column]):
            for row in batch.to_pylist():
                number += 1
                cell = row[column]
                content = cell.get("bytes") if isinstance(cell, dict) else cell
                if content is not None:
                    yield number, _cell(row, "image_id", number, path), content


def _suffix(content: bytes, number: int, path: Path) -> str:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as picture:
            kind = picture.format or ""
            picture.verify()
    except (
        OSError,
        SyntaxError,
        ValueError,
        Image.DecompressionBombError,
    ) as error:  # what Pillow cannot read
        raise DatasetError(f"the picture in row {number} of {str(path)!r} cannot be read: {error}") from error
    return _SUFFIXES.get(kind, f".{kind.lower()}")


def _beside(path: Path, pictures: list[Picture]) -> Path | None:
    """The table's own folder if any of its files lies there."""
    place = ImageFolder(path.resolve().parent)
    return place.folder if any(place.find(picture) for picture in pictures) else None


def _cell(row: Row, column: str, number: int, path: Path) -> str:
    value = _maybe(row, column)
    if value is None:
        raise DatasetError(f"row {number} of {str(path)!r} has no {column}")
    return value


def _maybe(row: Mapping[str, Any], column: str) -> str | None:
    return _text(row.get(column))


def _text(value: object) -> str | None:
    text = "" if value is None else str(value).strip()
    return text or None
