"""Storing submissions of past work: a batch that is over, its HITs, documents and answers, in one transaction."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.crowd.result_file import ResultFile
from mitl.crowd.row_xml import KeptRows, row_document
from mitl.db.store import answers as answer_store
from mitl.db.store import hits as hit_store
from mitl.db.store import imports as import_store
from mitl.db.store import items as item_store
from mitl.db.store import parses as parse_store
from mitl.db.store import submissions as submission_store
from mitl.db.store.imports import PastHit
from mitl.db.store.submissions import NewSubmission
from mitl.errors import DatasetError
from mitl.records import Decision, Environment, Finding, JudgementSource
from mitl.settings import Settings
from mitl.stages.harvesting.deriving import PairedRow, derive
from mitl.stages.harvesting.reading import ProjectItems, Reading, reading_of

APPROVED, REJECTED = "Approved", "Rejected"
NOT_DECIDED = "not_decided"
MAX_SHOWN = 5


@dataclass(frozen=True, slots=True)
class PastSubmission:
    """A submission of somebody else's batch, or of one whose HITs nobody can name."""

    hit_id: str | None
    """On the server that it was posted to."""
    page: str
    """Names the HIT within the environment where it has no id."""
    wanted: int
    assignment_id: str
    worker_id: str
    status: str
    accepted_at: dt.datetime | None
    submitted_at: dt.datetime | None
    answers: str | tuple[tuple[str, str], ...]
    """The fields that the worker filled in, or the document that holds them."""
    kept: KeptRows
    read: PairedRow
    odd_times: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredPast:
    """What was written."""

    batch: str
    batch_id: int
    submissions: int
    """That were not here before."""
    hits: int
    """Likewise."""


@dataclass(frozen=True, slots=True)
class PastBatch:
    """What the batch of past work is written down as."""

    reading: Reading
    reward_cents: int
    template: str


def store_past(
    session: Session,
    settings: Settings,
    environment: Environment,
    file: ResultFile,
    items: ProjectItems,
    past: Sequence[PastSubmission],
    about: PastBatch,
) -> StoredPast:
    """Write these submissions with all that follows from them; those that are here already are read again."""
    tokens = [_token(environment, one) for one in past]
    hit_ids = import_store.past_hits(session, sorted(set(tokens)))
    new_hits = _new_hits(past, tokens, hit_ids)
    batch_id = _batch(session, settings, environment, about, new_hits, hit_ids)
    hit_ids |= import_store.add_past_hits(session, batch_id, new_hits)
    added = submission_store.add_submissions(
        session,
        environment,
        [_new(one, hit_ids[token]) for one, token in zip(past, tokens, strict=True)],
    )
    _decide(session, past, added)
    known = import_store.imports(session)
    if file.sha256 in known:
        import_store.set_columns(session, file.sha256, about.reading.as_json())
    else:
        _remember(session, file, about.reading, batch_id)
    readings = {sha: reading_of(row) for sha, row in known.items()} | {file.sha256: about.reading}
    derive(session, readings, items, sorted({hit_ids[token] for token in tokens}))
    return StoredPast(hit_store.batch(session, batch_id).name, batch_id, len(added), len(new_hits))


def remember_own(session: Session, file: ResultFile, kind: str, batch_id: int) -> None:
    """Keep a file that held submissions of HITs of ours alone."""
    _remember(session, file, Reading(kind), batch_id)


def known_only(past: Sequence[PastSubmission], name: str, *, skip_unknown: bool) -> list[PastSubmission]:
    """The submissions that say something of the project's pairs.

    Raises:
        DatasetError: some answers are about images or captions that the project lacks, and were not to be skipped;
            or all are.
    """
    unknown = Counter(words for one in past for words in one.read.unknown)
    if unknown and not skip_unknown:
        raise DatasetError(
            f"answers in {name!r} are about pairs that this project lacks, {unknown.total():,} in all: "
            f"{_shown(unknown)}; load the data set that they belong to, or leave them out with --skip-unknown"
        )
    found = [one for one in past if one.read.answers or not one.read.unknown]
    if past and not found:
        raise DatasetError(
            f"none of the {len(past):,} submissions in {name!r} is about a pair of this project, as {_shown(unknown)}"
        )
    return found


def _shown(counts: Counter[str]) -> str:
    shown = "; ".join(f"{words} ({count:,})" for words, count in counts.most_common(MAX_SHOWN))
    more = f" and {len(counts) - MAX_SHOWN:,} more" if len(counts) > MAX_SHOWN else ""
    return shown + more


def _token(environment: Environment, one: PastSubmission) -> str:
    """In the place of a request token: HITs are unique by it."""
    name = f"import:{environment}:{one.hit_id or one.page}"
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:48]


def _new_hits(past: Sequence[PastSubmission], tokens: Sequence[str], known: dict[str, int]) -> list[PastHit]:
    by_token: dict[str, list[PastSubmission]] = defaultdict(list)
    for one, token in zip(past, tokens, strict=True):
        if token not in known:
            by_token[token].append(one)
    return [
        PastHit(token, found[0].hit_id, max(len(found), *(one.wanted for one in found)))
        for token, found in by_token.items()
    ]


def _batch(
    session: Session,
    settings: Settings,
    environment: Environment,
    about: PastBatch,
    new_hits: Sequence[PastHit],
    known: dict[str, int],
) -> int:
    """A new batch for new HITs; else the one that holds the HITs already."""
    if not new_hits:
        return import_store.batch_of(session, next(iter(known.values())))
    now = dt.datetime.now(dt.UTC)
    return hit_store.add_batch(
        session,
        round_id=hit_store.open_round(session, item_store.dataset(session).id, now),
        environment=environment,
        direction="both",
        template=about.template,
        reward_cents=about.reward_cents,
        assignments=max(hit.assignments for hit in new_hits),
        seed=settings.seed,
        server_id=None,
        now=now,
        source=JudgementSource.IMPORT,
    ).id


def _new(one: PastSubmission, hit_id: int) -> NewSubmission:
    answers = one.answers if isinstance(one.answers, str) else list(one.answers)
    return NewSubmission(
        hit_id=hit_id,
        worker=one.worker_id,
        mturk_assignment_id=one.assignment_id,
        accepted_at=one.accepted_at,
        submitted_at=one.submitted_at,
        # What a file shows as undecided was paid long ago; nothing here may try to pay for it.
        status=REJECTED if one.status == REJECTED else APPROVED,
        raw_xml=row_document(answers, one.kept),
    )


def _decide(session: Session, past: Sequence[PastSubmission], added: dict[int, NewSubmission]) -> None:
    """What its requester approved counts, what they rejected does not."""
    by_name = {(one.assignment_id, one.worker_id): one for one in past}
    decisions: dict[Decision, list[int]] = defaultdict(list)
    findings: dict[int, list[Finding]] = {}
    for id_, new in added.items():
        one = by_name[new.mturk_assignment_id, new.worker]
        decisions[Decision.REJECT if one.status == REJECTED else Decision.APPROVE].append(id_)
        noted = [Finding("bad_value", f"time {text[:80]!a} cannot be read") for text in one.odd_times]
        if one.status not in (APPROVED, REJECTED, ""):
            noted.append(Finding(NOT_DECIDED, f"the file says {one.status[:40]!a}; its answers are used"))
        findings[id_] = noted
    for decision, ids in decisions.items():
        answer_store.set_decision(session, ids, decision)
    parse_store.add_all_findings(session, findings)


def _remember(session: Session, file: ResultFile, reading: Reading, batch_id: int) -> None:
    import_store.add_import(
        session,
        sha256=file.sha256,
        name=file.name,
        kind=reading.kind,
        columns=reading.as_json(),
        batch_id=batch_id,
        rows=len(file.rows),
        now=dt.datetime.now(dt.UTC),
    )
