"""A plain table of pairs: one row for each caption with the image it describes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from mitl.datasets.assembling import assemble
from mitl.datasets.files import Row, read_rows
from mitl.datasets.images import ImageFolder, Picture, locate
from mitl.errors import DatasetError
from mitl.records import Caption, RetrievalSet

WHAT = "a table of pairs"
TEXT_COLUMNS = ("caption", "text")
OPTIONAL = ("caption_id", *TEXT_COLUMNS, "file", "url")


def read_table(
    path: Path, *, images: Path | None = None, url_template: str | None = None, name: str = "table"
) -> RetrievalSet:
    """The pairs of a CSV or Parquet file with ``image_id`` and ``caption`` (or ``text``).

    ``caption_id`` may be missing: then captions are ``<image_id>#<k>``, k from 0 in the order of an image's rows.
    ``file`` is looked up in the folder ``images``, else beside the table; ``url`` is the image's address. Ids
    are integers if all of them are, else strings.

    Raises:
        DatasetError: the file is missing or malformed, a cell is empty, a caption id comes twice, or two rows
            disagree about one image.
    """
    rows = read_rows(path, WHAT, ("image_id",), OPTIONAL)
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
        made_id = f"{image_id}#{seen[image_id]}"
        caption_id = _cell(row, "caption_id", number, path) if "caption_id" in row else made_id
        seen[image_id] += 1
        captions.append(Caption(caption_id, image_id, _cell(row, str(text_column), number, path)))
        picture = Picture(image_id, file_name=_maybe(row, "file"), url=_maybe(row, "url"))
        if pictures.setdefault(image_id, picture) != picture:
            raise DatasetError(
                f"row {number} of {str(path)!r} gives image {image_id!r} another file or url than before"
            )
    listed = list(pictures.values())
    found = locate(listed, folder=images or _beside(path, listed), url_template=url_template)
    return assemble(name, "table", found, captions, source=path)


def _beside(path: Path, pictures: list[Picture]) -> Path | None:
    """The table's own folder if any of its files lies there."""
    place = ImageFolder(path.resolve().parent)
    return place.folder if any(place.find(picture) for picture in pictures) else None


def _cell(row: Row, column: str, number: int, path: Path) -> str:
    value = _maybe(row, column)
    if value is None:
        raise DatasetError(f"row {number} of {str(path)!r} has no {column}")
    return value


def _maybe(row: Row, column: str) -> str | None:
    value = row.get(column)
    text = "" if value is None else str(value).strip()
    return text or None
