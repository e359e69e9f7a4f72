"""From the kept rows of past work to HIT items and judgements; done at import, and by ``--reparse``."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy.orm import Session

from mitl.crowd.batch_csv import expanded_cells, find_layout
from mitl.crowd.column_map import ColumnMap, column_map
from mitl.crowd.mapped_rows import MappedAnswer, MappedRow, read_mapped
from mitl.crowd.parsed_csv import KIND as OFFICIAL
from mitl.crowd.parsed_csv import official_answer
from mitl.crowd.result_file import KeptRows, kept_rows
from mitl.db.store import imports as import_store
from mitl.db.store import items as item_store
from mitl.db.store import parses as parse_store
from mitl.db.store.imports import ImportRow
from mitl.db.store.items import DatasetRow
from mitl.db.store.parses import RawSubmission
from mitl.db.store.statements import chunks
from mitl.errors import AnswerError, DatasetError
from mitl.positives.ids import release_ids
from mitl.progress import Progress
from mitl.records import (
    Environment,
    Finding,
    IdKind,
    JudgementSource,
    Pair,
    PairRole,
    Parsed,
    PlaceAnswer,
    several,
)


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
        captions = self.by_text.get(text, ())
        of_this_image = [caption for caption, of_image in captions if of_image == image]
        candidates = of_this_image[:1] or [caption for caption, _ in captions]
        return candidates[0] if len(candidates) == 1 else None


def project_items(session: Session, dataset: DatasetRow) -> ProjectItems:
    """The project's images and captions by their names."""
    images, names = item_store.names(session, dataset.id)
    by_text: dict[str, list[tuple[int, int]]] = {}
    for caption in item_store.captions(session, dataset.id):
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


_WINDOW = 5000
"""HITs whose submissions are read at once."""

MAX_PLACES = (1 << 16) - 1
"""Of a HIT; what packs the places of answers gives them 16 bits."""

_Spot = tuple[Pair, int]
"""A pair, and how often it stood on the page before."""


@dataclass(frozen=True, slots=True)
class PairedRow:
    """What the rows of one submission say of the project's pairs."""

    answers: tuple[tuple[Pair, PlaceAnswer | None], ...]
    findings: tuple[Finding, ...]
    unknown: tuple[str, ...]
    """Images and captions that the project lacks, in words."""
    roles: tuple[PairRole, ...] = ()
    """Of each answer; candidates where it is empty."""


def paired(row: MappedRow, items: ProjectItems, *, numbered: bool) -> PairedRow:
    """The answers of a row by the project's own ids."""
    answers, roles, unknown = [], [], []
    for answer in row.answers:
        pair = items.pair(answer, numbered=numbered)
        if pair is None:
            what = "caption" if not answer.by_text else "caption text"
            unknown.append(f"image {answer.image[:80]!r} with {what} {answer.caption[:80]!r}")
        else:
            answers.append((pair, answer.answer))
            roles.append(answer.role)
    findings = [*row.findings, *(Finding(parse_store.UNKNOWN_ID, words) for words in unknown)]
    return PairedRow(tuple(answers), tuple(findings), tuple(unknown), tuple(roles))


def derive(
    session: Session, readings: Mapping[str, Reading], items: ProjectItems, hit_ids: Sequence[int]
) -> int:
    """Read the kept rows of these HITs again and write their items and judgements; returns how many submissions.

    Args:
        readings: how each file is read, by the hash of its bytes.
    """
    count = 0
    for window in chunks(hit_ids, _WINDOW):
        documents = import_store.documents(session, window)
        read = {document.id: _read(document, readings, items) for document in documents}
        pages = _pages(documents, read)
        longest = max(map(len, pages.values()), default=0)
        if longest > MAX_PLACES:
            raise DatasetError(
                f"a HIT of past work would hold {several(longest, 'pair')}, and the most is {MAX_PLACES:,}; if its "
                "column says the same in every row, name another, or none, as hit in the file of --columns"
            )
        roles = {
            # A candidate that stood on the page before is its repeat; else it is as the file says.
            hit: [
                (pair, PairRole.REPEAT if before and role is PairRole.CANDIDATE else role)
                for (pair, before), role in page.items()
            ]
            for hit, page in pages.items()
        }
        import_store.set_items(session, roles)
        places = {hit: {spot: n for n, spot in enumerate(page, start=1)} for hit, page in pages.items()}
        parses = {document.id: _placed(read[document.id], places[document.hit_id]) for document in documents}
        parse_store.forget_reading(session, list(parses))
        parse_store.set_parses(session, parses, source=JudgementSource.IMPORT)
        count += len(documents)
    return count


def rederive(session: Session, environment: Environment, progress: Progress) -> int:
    """Read the kept rows of all past work of an environment again; returns how many submissions."""
    hits = import_store.all_past_hits(session, environment)
    if not hits:
        return 0
    readings = {sha: reading_of(row) for sha, row in import_store.imports(session).items()}
    items = project_items(session, item_store.dataset(session))
    count = 0
    with progress("past work", len(hits)) as advance:
        for window in chunks(hits, _WINDOW):
            count += derive(session, readings, items, window)
            advance(len(window))
    return count


def _read(document: RawSubmission, readings: Mapping[str, Reading], items: ProjectItems) -> PairedRow:
    kept = kept_rows(document.raw_xml)
    reading = None if kept is None else readings.get(kept.sha256)
    if kept is None or reading is None:
        finding = Finding(parse_store.UNREADABLE, "the rows that it was read from are not with it")
        return PairedRow((), (finding,), ())
    return paired(read_rows(reading, kept), items, numbered=reading.numbered)


def _pages(
    documents: Sequence[RawSubmission], read: Mapping[int, PairedRow]
) -> dict[int, dict[_Spot, PairRole]]:
    """HIT → what stood on its page, in the order of its first submissions; workers may have met it in another."""
    pages: dict[int, dict[_Spot, PairRole]] = defaultdict(dict)
    for document in documents:
        page, row = pages[document.hit_id], read[document.id]
        for spot, role in zip(_spots(row), row.roles or [PairRole.CANDIDATE] * len(row.answers), strict=True):
            page.setdefault(spot, role)
    return pages


def _spots(row: PairedRow) -> list[_Spot]:
    seen: Counter[Pair] = Counter()
    spots = []
    for pair, _ in row.answers:
        spots.append((pair, seen[pair]))
        seen[pair] += 1
    return spots


def _placed(row: PairedRow, places: Mapping[_Spot, int]) -> Parsed[PlaceAnswer]:
    answers = [
        replace(answer, place=places[spot])
        for spot, (_, answer) in zip(_spots(row), row.answers, strict=True)
        if answer is not None
    ]
    return Parsed(tuple(sorted(answers, key=lambda answer: answer.place)), row.findings)
