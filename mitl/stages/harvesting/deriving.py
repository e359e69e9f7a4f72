"""From the kept rows of past work to HIT items and judgements; done at import, and again by ``--reparse``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy.orm import Session

from mitl.crowd.mapped_rows import MappedRow
from mitl.crowd.row_xml import kept_rows
from mitl.db.store import imports as import_store
from mitl.db.store import items as item_store
from mitl.db.store import parses as parse_store
from mitl.db.store.bulk import chunks
from mitl.db.store.imports import StoredDocument
from mitl.progress import Progress
from mitl.records import (
    Environment,
    Finding,
    JudgementSource,
    Pair,
    PairRole,
    ParsedAnswers,
    PlaceAnswer,
)
from mitl.settings import Settings
from mitl.stages.harvesting.reading import ProjectItems, Reading, project_items, read_rows, reading_of

UNKNOWN_ID = "unknown_id"
_WINDOW = 5000
"""HITs whose submissions are read at once."""

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
    findings = [*row.findings, *(Finding(UNKNOWN_ID, words) for words in unknown)]
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
        roles = {
            hit: [(pair, _role(before, given)) for (pair, before), given in page.items()]
            for hit, page in pages.items()
        }
        import_store.set_items(session, roles)
        places = {hit: {spot: n for n, spot in enumerate(page, start=1)} for hit, page in pages.items()}
        parses = {document.id: _placed(read[document.id], places[document.hit_id]) for document in documents}
        parse_store.set_parses(session, parses, source=JudgementSource.IMPORT)
        count += len(documents)
    return count


def rederive(session: Session, settings: Settings, environment: Environment, progress: Progress) -> int:
    """Read the kept rows of all past work of an environment again; returns how many submissions."""
    batches = import_store.past_batches(session, environment)
    if not batches:
        return 0
    readings = {sha: reading_of(row) for sha, row in import_store.imports(session).items()}
    items = project_items(session, settings, item_store.dataset(session))
    hits = [hit for batch in batches for hit in import_store.hits_of(session, batch)]
    count = 0
    with progress("past work", len(hits)) as advance:
        for window in chunks(hits, _WINDOW):
            count += derive(session, readings, items, window)
            advance(len(window))
    return count


def _read(document: StoredDocument, readings: Mapping[str, Reading], items: ProjectItems) -> PairedRow:
    kept = kept_rows(document.raw_xml)
    reading = None if kept is None else readings.get(kept.sha256)
    if kept is None or reading is None:
        finding = Finding(parse_store.UNREADABLE, "the rows that it was read from are not with it")
        return PairedRow((), (finding,), ())
    return paired(read_rows(reading, kept), items, numbered=reading.numbered)


def _pages(
    documents: Sequence[StoredDocument], read: Mapping[int, PairedRow]
) -> dict[int, dict[_Spot, PairRole]]:
    """HIT → what stood on its page, in the order of its first submissions; workers may have met it in another."""
    pages: dict[int, dict[_Spot, PairRole]] = defaultdict(dict)
    for document in documents:
        page, row = pages[document.hit_id], read[document.id]
        for spot, role in zip(_spots(row), row.roles or [PairRole.CANDIDATE] * len(row.answers), strict=True):
            page.setdefault(spot, role)
    return pages


def _role(before: int, given: PairRole) -> PairRole:
    """As the file says; a candidate that stood on the page before is its repeat."""
    return PairRole.REPEAT if before and given is PairRole.CANDIDATE else given


def _spots(row: PairedRow) -> list[_Spot]:
    seen: Counter[Pair] = Counter()
    spots = []
    for pair, _ in row.answers:
        spots.append((pair, seen[pair]))
        seen[pair] += 1
    return spots


def _placed(row: PairedRow, places: Mapping[_Spot, int]) -> ParsedAnswers:
    answers = [
        replace(answer, place=places[spot])
        for spot, (_, answer) in zip(_spots(row), row.answers, strict=True)
        if answer is not None
    ]
    return ParsedAnswers(tuple(sorted(answers, key=lambda answer: answer.place)), row.findings)
