"""Lists of pairs that must not count: meaningless captions, wrong captions, wrong positives, duplicate images."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from mitl.datasets.columns import NAMES
from mitl.datasets.files import Row, cell_id, read_rows, text_of
from mitl.errors import DatasetError
from mitl.records import Exclusion, ExclusionKind, RetrievalSet

WHAT = "an exclusion list"
REQUIRED = ("kind",)
OPTIONAL = ("image_id", "caption_id", "reason", "source")
OTHERWISE = (*NAMES["image"].split(), "imageid", "img_id", "imgid", "iid")
"""What an image may be called by mistake: an entry that seems to name none takes its caption's own away."""
NEEDS = {
    ExclusionKind.CAPTION: ("caption_id",),
    ExclusionKind.PAIR: ("caption_id",),
    ExclusionKind.WRONG: ("image_id", "caption_id"),
    ExclusionKind.IMAGE: ("image_id",),
}
"""What each kind cannot do without. A pair without an image means the caption and its own image."""


def paper_exclusions() -> list[Exclusion]:
    """The invalid items of the COCO test split that ECCV Caption lists (Chun et al., appendix C.1).

    18 meaningless captions, 14 captions that are wrong for their own image (``resolve`` fills it in), and one
    image that is also in the training set.
    """
    path = Path(str(files("mitl.datasets") / "data" / "eccv_caption_exclusions.csv"))
    return read_exclusions(path)


def read_exclusions(path: Path) -> list[Exclusion]:
    """The entries of a CSV or Parquet list with ``kind`` (caption, pair, wrong, image), ``image_id``, ``caption_id``.

    ``reason`` and ``source`` may say why and by whom; without a source it is the file's name.

    Raises:
        DatasetError: the file is missing or malformed, a kind is unknown, an id that the kind needs is
            missing, or an entry comes twice.
    """
    entries: dict[tuple[ExclusionKind, str | None, str | None], Exclusion] = {}
    for number, row in enumerate(read_rows(path, WHAT, REQUIRED, (*OPTIONAL, *OTHERWISE)), start=1):
        entry = _entry(row, number, path)
        key = (entry.kind, entry.image_external_id, entry.caption_external_id)
        if key in entries:
            raise DatasetError(f"row {number} of {str(path)!r} repeats an earlier entry; leave it out")
        entries[key] = entry
    return list(entries.values())


def resolve(exclusions: Iterable[Exclusion], data: RetrievalSet, *, strict: bool = True) -> list[Exclusion]:
    """The entries that concern this data set; a pair without an image gets its caption's own image.

    An entry of an unknown id raises DatasetError, or is left out where ``strict`` is off (a published list on a
    part of its data set).
    """
    image_of = {caption.external_id: caption.image_external_id for caption in data.captions}
    images = {image.external_id for image in data.images}
    resolved = []
    for entry in exclusions:
        image, caption = entry.image_external_id, entry.caption_external_id
        if caption is not None and caption not in image_of:
            problem = f"caption {caption!r}"
        elif image is not None and image not in images:
            problem = f"image {image!r}"
        else:
            if entry.kind is ExclusionKind.PAIR and image is None and caption is not None:
                entry = replace(entry, image_external_id=image_of[caption])
            resolved.append(entry)
            continue
        if strict:
            raise DatasetError(
                f"the exclusion list {entry.source!r} names {problem}, which is not in {data.name!r}"
            )
    return resolved


def _entry(row: Row, number: int, path: Path) -> Exclusion:
    where = f"row {number} of {str(path)!r}"
    cells = {column: text for column in row if (text := text_of(row[column]))}
    try:
        kind = ExclusionKind(cells.get("kind", ""))
    except ValueError as error:
        kinds = ", ".join(ExclusionKind)
        raise DatasetError(f"{where} has the kind {cells.get('kind', '')!r}; known: {kinds}") from error
    for column in NEEDS[kind]:
        if not cells.get(column):
            raise DatasetError(f"{where} is of the kind {kind.value!r}, but has no {column}")
    other = next((column for column in OTHERWISE if cells.get(column)), None)
    if other is not None and kind is ExclusionKind.PAIR and not cells.get("image_id"):
        raise DatasetError(
            f"{where} names an image as its {other}; call the column image_id, or take it out "
            "where the caption's own image is meant"
        )
    image, caption = (
        cell_id(row[column], column, where) if column in cells else None
        for column in ("image_id", "caption_id")
    )
    return Exclusion(
        kind,
        None if kind is ExclusionKind.CAPTION else image,
        None if kind is ExclusionKind.IMAGE else caption,
        reason=cells.get("reason", ""),
        source=cells.get("source") or path.name,
    )
