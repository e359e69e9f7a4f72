"""The compact captions file: one Parquet table of captions with COCO's ids."""

from __future__ import annotations

from pathlib import Path

from mitl.datasets.assembling import assemble
from mitl.datasets.coco import coco_url, read_caption_ids, select
from mitl.datasets.files import read_rows
from mitl.datasets.images import Picture, locate
from mitl.errors import DatasetError
from mitl.records import Caption, IdKind, RetrievalSet

FILE_NAME = "COCO_val2014_{:012d}.jpg"
"""Karpathy's test and validation images are all of val2014."""
WHAT = "captions with the columns caption_id, image_id, text"


def read_compact(
    path: Path,
    *,
    caption_ids: Path | None = None,
    images: Path | None = None,
    url_template: str | None = None,
    name: str = "coco",
) -> RetrievalSet:
    """The captions of a Parquet or CSV file with ``caption_id``, ``image_id``, ``text``, and their images.

    A column ``file_name`` says what the image files are called; without it they are COCO val2014's.

    Raises:
        DatasetError: the file is missing or malformed, ids are not integers or come twice, or a listed caption
            is not there.
    """
    rows = read_rows(path, WHAT, ("caption_id", "image_id", "text"), ("file_name",))
    captions: dict[str, Caption] = {}
    pictures: dict[str, Picture] = {}
    for number, row in enumerate(rows, start=1):
        caption_id, image_id = (
            _integer(row[column], column, number, path) for column in ("caption_id", "image_id")
        )
        if not isinstance(row["text"], str):
            raise DatasetError(f"row {number} of {str(path)!r} has no text")
        if caption_id in captions:
            raise DatasetError(f"caption id {caption_id!r} comes twice in {str(path)!r}; ids must be unique")
        captions[caption_id] = Caption(caption_id, image_id, row["text"].strip())
        file_name = row.get("file_name") or FILE_NAME.format(int(image_id))
        pictures.setdefault(image_id, Picture(image_id, file_name, "val2014", coco_url(file_name)))
    chosen = list(captions.values())
    if caption_ids is not None:
        chosen = select(captions, read_caption_ids(caption_ids), str(path))
    used = dict.fromkeys(caption.image_external_id for caption in chosen)
    found = locate([pictures[id_] for id_ in used], folder=images, url_template=url_template)
    return assemble(name, "coco", found, chosen, source=path, ids=IdKind.INTEGER)


def _integer(value: object, column: str, number: int, path: Path) -> str:
    try:
        return str(int(str(value)))
    except ValueError:
        raise DatasetError(
            f"row {number} of {str(path)!r} has {column} {value!r}, but COCO's ids are integers"
        ) from None
