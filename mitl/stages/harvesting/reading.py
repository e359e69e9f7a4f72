"""What rows of past work say of the project's own pairs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.crowd.batch_csv import expanded_cells, find_layout
from mitl.crowd.column_map import ColumnMap, column_map
from mitl.crowd.mapped_rows import MappedAnswer, MappedRow, read_mapped
from mitl.crowd.parsed_answer import official_answer
from mitl.crowd.parsed_csv import KIND as OFFICIAL
from mitl.crowd.row_xml import KeptRows
from mitl.db.store import items as item_store
from mitl.db.store.imports import ImportRow
from mitl.db.store.items import DatasetRow
from mitl.errors import AnswerError
from mitl.positives.ids import release_ids
from mitl.records import Finding, IdKind, Pair
from mitl.settings import Settings


@dataclass(frozen=True, slots=True)
class Reading:
    """How the rows of one file are to be read; kept with the file, so that they can be read again."""

    kind: str
    mapping: ColumnMap | None = None
    places: tuple[int, ...] = (0,)
    """The numbers in the names of the mapped columns."""
    numbered: bool = False
    """Whether ids are the integers that a release shows for ids that are texts."""

    def as_json(self) -> str:
        """To be kept in ``import_file.columns``."""
        tables = None if self.mapping is None else dict(self.mapping.tables)
        content = {"mapping": tables, "places": self.places, "numbered": self.numbered}
        return json.dumps(content, sort_keys=True)


def reading_of(row: ImportRow) -> Reading:
    """As it was kept."""
    content = json.loads(row.columns or "{}")
    tables = content.get("mapping")
    mapping = None if tables is None else column_map(tables, row.name)
    return Reading(row.kind, mapping, tuple(content.get("places", (0,))), content.get("numbered", False))


def read_rows(reading: Reading, kept: KeptRows) -> MappedRow:
    """What the rows of one submission say, image and caption still as the file names them."""
    if reading.kind == OFFICIAL:
        cells = {name: cell.strip() for name, cell in kept.cells.items()}
        answer, findings = official_answer(cells)
        answered = MappedAnswer(cells["iid"], cells["cid"], by_text=False, answer=answer)
        return MappedRow((answered,), tuple(findings))
    if reading.mapping is None:
        return MappedRow()
    layout = reading.mapping.layout(find_layout(kept.columns))
    assert layout is not None, "a file without a layout was brought in"
    try:
        cells = expanded_cells(layout, kept.cells)
    except AnswerError as error:
        return MappedRow((), (Finding("unreadable", str(error)),))
    return read_mapped(reading.mapping, cells, reading.places)


@dataclass(frozen=True, slots=True)
class ProjectItems:
    """The data set's images and captions by the names that files have for them."""

    id_kind: IdKind
    images: Mapping[str, int]
    captions: Mapping[str, int]
    by_text: Mapping[str, Sequence[tuple[int, int]]]
    """Caption → the captions of this text, each with its image."""
    numbered: tuple[Mapping[str, int], Mapping[str, int]]
    """Images and captions by the integers that a release shows for text ids."""

    def pair(self, answer: MappedAnswer, *, numbered: bool = False) -> Pair | None:
        """The pair that an answer is about; None where the project lacks the image or the caption."""
        images, captions = self.numbered if numbered else (self.images, self.captions)
        integers = numbered or self.id_kind is IdKind.INTEGER
        image = images.get(_id(answer.image, integers))
        if answer.by_text:
            caption = self._caption_of_text(answer.caption.strip(), image)
        else:
            caption = captions.get(_id(answer.caption, integers))
        return None if image is None or caption is None else Pair(image, caption)

    def _caption_of_text(self, text: str, image: int | None) -> int | None:
        """Of captions that read alike the image's own; else there must be one alone."""
        found = self.by_text.get(text, ())
        own = [caption for caption, of_image in found if of_image == image]
        candidates = own[:1] or [caption for caption, _ in found]
        return candidates[0] if len(candidates) == 1 else None


def project_items(session: Session, settings: Settings, dataset: DatasetRow) -> ProjectItems:
    """The project's images and captions by their names."""
    images = {item.id: item.external_id for item in item_store.images(session, dataset.id, settings.project)}
    captions = item_store.captions(session, dataset.id)
    names = {caption.id: caption.external_id for caption in captions}
    by_text: dict[str, list[tuple[int, int]]] = {}
    for caption in captions:
        by_text.setdefault(caption.text.strip(), []).append((caption.id, caption.image_id))
    numbered = tuple(
        {str(number): item for item, number in release_ids(dataset.id_kind, ids, noun).number.items()}
        for ids, noun in ((images, "image"), (names, "caption"))
    )
    return ProjectItems(
        dataset.id_kind,
        {name: id_ for id_, name in images.items()},
        {name: id_ for id_, name in names.items()},
        by_text,
        (numbered[0], numbered[1]),
    )


def _id(text: str, integers: bool) -> str:
    """The id as the data set writes it: 00042 and 42.0 are 42 where ids are integers."""
    text = text.strip()
    whole = text.removesuffix(".0")
    return str(int(whole)) if integers and re.fullmatch(r"[0-9]{1,19}", whole) else text
