"""Composed queries, an image with a text that changes it: CIRR's folder and CIRCO's.

Sources: github.com/Cuberick-Orion/CIRR, branch ``cirr_dataset`` (Liu et al., ICCV 2021); github.com/miccunifi/CIRCO
(Baldrati et al., ICCV 2023).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mitl.datasets.assembling import assemble, chosen_split
from mitl.datasets.files import caption_text, cell_id, read_json, text_of
from mitl.datasets.images import ImageFolder, Picture, locate
from mitl.datasets.table import TableReading, Told
from mitl.errors import DatasetError
from mitl.records import Caption, RetrievalSet, several
from mitl.records.forms import COMPOSED

CIRR, CIRCO = "cirr", "circo"
_QUERIES = {
    CIRR: ("captions", re.compile(r"cap\.rc2\.(.+)\.json")),
    CIRCO: ("annotations", re.compile(r"(.+)\.json")),
}
"""Kind → the folder of its queries, and the files there, by their splits."""
_CIRR_ROW = ("pairid", "reference", "caption")
_CIRCO_ROW = ("id", "reference_img_id", "relative_caption")
"""The columns of a query's id, reference and text."""
_SURELY = 1.0
"""``target_soft`` of what CIRR's workers found to be as good as the target."""
_COCO_FILE = re.compile(r"\d{12}\.jpg")


@dataclass(frozen=True, slots=True)
class _Query:
    id: str
    reference: str
    text: str | None
    positives: tuple[str, ...]
    """The first one is the target that it was written for."""


def composed_set_kind(folder: Path) -> str | None:
    """Which of the two kinds of folder this is; None where it is neither."""
    if any((folder / "captions").glob("cap.rc2.*.json")):
        return CIRR
    if any((folder / "annotations" / f"{split}.json").is_file() for split in ("val", "test")):
        return CIRCO
    return None


def read_composed_set(
    folder: Path, kind: str, reading: TableReading, told: Told, images: Path | None = None
) -> RetrievalSet:
    """The queries of one split with their targets, and the images of its gallery, references among them.

    Further images that fit as well as the target (``target_soft`` of 1.0; ``gt_img_ids``) are original positives too,
    but for the query's own reference. Queries with an empty text are refused, or left out by ``reading.skip_empty``.

    Args:
        images: the folder of the image files; of CIRCO all of them are searched.
        told: receives how it was read and what was left out.

    Raises:
        DatasetError: a file is missing or malformed, a query has no target or no text, or names an image that is not
            in the gallery.
        UsageError: there are several splits and none is named, or another one is.
    """
    below, pattern = _QUERIES[kind]
    files = {
        match[1]: path
        for path in sorted((folder / below).iterdir())
        if (match := pattern.fullmatch(path.name))
    }
    split = chosen_split(folder, files, reading.split)
    path = files[split]
    queries = list((_cirr_queries if kind == CIRR else _circo_queries)(path))
    left_out = sum(query.text is None for query in queries)
    if left_out and not reading.skip_empty:
        empty = next(query.id for query in queries if query.text is None)
        raise DatasetError(
            f"query {empty!r} of {str(path)!r} has no text; mend it, or leave such out with --skip-empty"
        )
    queries = [query for query in queries if query.text is not None]
    if kind == CIRR:
        gallery = folder / "image_splits" / f"split.rc2.{split}.json"
        pictures, where = _cirr_gallery(gallery), gallery.name
    else:
        pictures, where = _circo_gallery(queries, images)
    _check_known(queries, pictures, path, where)
    told.lines.append(
        f"read as: {kind} ({split}), reference, image and query = {path.name}, images that are searched = {where}"
    )
    if left_out:
        told.lines.append(f"left out {several(left_out, 'query', 'queries')} without a text")
    told.files |= {picture.image_id: str(picture.file_name) for picture in pictures.values()}
    own_folder = ImageFolder(folder)
    place = images or (folder if any(map(own_folder.find, pictures.values())) else None)
    data = assemble(
        folder.name,
        kind,
        locate(list(pictures.values()), folder=place),
        [Caption(query.id, query.positives[0], str(query.text), query.reference) for query in queries],
        source=folder,
        sides=COMPOSED.sides,
    )
    return data.with_positives(
        sorted((image_id, query.id) for query in queries for image_id in query.positives[1:])
    )


def _rows(path: Path, needed: tuple[str, str, str]) -> Iterator[tuple[Mapping[str, Any], str]]:
    rows = read_json(path, f"a list of queries with {', '.join(sorted(needed))}")
    if not isinstance(rows, list):
        raise DatasetError(
            f"{str(path)!r} holds no JSON list of queries; write [{{…}}, {{…}}], each with {', '.join(sorted(needed))}"
        )
    for number, row in enumerate(rows, start=1):
        where = f"query {number} of {str(path)!r}"
        if not isinstance(row, dict) or not row.keys() >= set(needed):
            raise DatasetError(
                f"{where} is no object with {', '.join(sorted(needed))}; mend it, or fetch the file again"
            )
        yield row, where


def _cirr_queries(path: Path) -> Iterator[_Query]:
    for row, where in _rows(path, _CIRR_ROW):
        soft = row.get("target_soft") or {}
        alike = isinstance(soft, dict) and [name for name, score in soft.items() if score == _SURELY]
        yield _query(row, where, _CIRR_ROW, row.get("target_hard"), alike)


def _circo_queries(path: Path) -> Iterator[_Query]:
    for row, where in _rows(path, _CIRCO_ROW):
        alike = row.get("gt_img_ids") or []
        yield _query(row, where, _CIRCO_ROW, row.get("target_img_id"), alike)


def _query(
    row: Mapping[str, Any], where: str, columns: tuple[str, str, str], target: object, alike: object
) -> _Query:
    name, reference, text = columns
    if text_of(target) is None:
        raise DatasetError(
            f"{where} has no target, as in splits whose answers are kept secret; name another with --split"
        )
    if not isinstance(alike, list):
        raise DatasetError(
            f"{where} has further targets in another form than its set's; fetch the file again"
        )
    read: Callable[[object], str] = lambda value: cell_id(value, "image", where)  # noqa: E731
    reference_id = read(row[reference])
    positives = dict.fromkeys(
        image_id for image_id in map(read, [target, *alike]) if image_id != reference_id
    )
    if next(iter(positives), None) != read(target):
        raise DatasetError(f"{where} has {reference_id!r} as its reference and as its target; take it out")
    cell = row[text]
    return _Query(
        cell_id(row[name], name, where),
        reference_id,
        caption_text(cell, text, where) if text_of(cell) else None,
        tuple(positives),
    )


def _cirr_gallery(path: Path) -> dict[str, Picture]:
    names = read_json(path, "the file of each image by its name")
    if not isinstance(names, dict) or not all(isinstance(file, str) for file in names.values()):
        raise DatasetError(f"{str(path)!r} holds no JSON object of image names and files; fetch it again")
    return {
        name: Picture(
            name, file_name=cell_id(file, "file", f"image {name!r} of {str(path)!r}").removeprefix("./")
        )
        for name, file in names.items()
    }


def _circo_gallery(queries: list[_Query], images: Path | None) -> tuple[dict[str, Picture], str]:
    """(images by id, where they are from): COCO's files in the folder, else those that queries name."""
    if images is None:
        named = dict.fromkeys(
            image_id for query in queries for image_id in (query.reference, *query.positives)
        )
        return {
            image_id: _coco_picture(image_id) for image_id in named
        }, "those that queries name; --images takes the folder of all"
    ImageFolder(images)
    files = sorted(entry.name for entry in images.iterdir() if _COCO_FILE.fullmatch(entry.name))
    return {
        image_id: _coco_picture(image_id) for image_id in (str(int(file[:12])) for file in files)
    }, f"the files in {images.name}"


def _coco_picture(image_id: str) -> Picture:
    return Picture(image_id, file_name=f"{image_id:0>12}.jpg")


def _check_known(queries: list[_Query], pictures: Mapping[str, Picture], path: Path, where: str) -> None:
    for query in queries:
        for image_id in (query.reference, *query.positives):
            if image_id not in pictures:
                raise DatasetError(
                    f"query {query.id!r} of {str(path)!r} names image {image_id!r}, which is not among the "
                    f"{len(pictures):,} of {where}, as {next(iter(pictures), 'none')!r}; take files of one version"
                )
