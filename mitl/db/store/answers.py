"""Workers, their submissions as received and parsed, and what was noticed about them."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from mitl.db.models import (
    Assignment,
    Batch,
    Finding,
    Hit,
    Judgement,
    Pair,
    Rationale,
    Worker,
)
from mitl.db.store.bulk import add_rows
from mitl.db.store.proposals import ensure_pairs
from mitl.records import (
    Decision,
    Environment,
    JudgementSource,
    ParsedAnswers,
    RationaleKind,
)
from mitl.records import Finding as FindingRecord
from mitl.records import HitItem as HitItemRecord
from mitl.records import Pair as PairRecord


def submission_key(mturk_assignment_id: str, worker: str) -> str:
    """Names a submission in the journal and the ledger; an assignment id may come again after a return."""
    return f"{mturk_assignment_id}:{worker}"


@dataclass(frozen=True, slots=True)
class AssignmentRow:
    """A submission as stored, without its raw answer document."""

    id: int
    hit_id: int
    batch: str
    number: int
    attempt: int
    mturk_hit_id: str | None
    worker_id: int
    worker: str
    """The worker's id on the requester API."""
    excluded: bool
    mturk_assignment_id: str
    accepted_at: dt.datetime | None
    submitted_at: dt.datetime | None
    status: str
    decision: Decision

    @property
    def key(self) -> str:
        """Names the submission in the journal and the ledger."""
        return submission_key(self.mturk_assignment_id, self.worker)


def worker_id(session: Session, environment: Environment, mturk_worker_id: str) -> int:
    """The row of a worker, made at first sight."""
    found = session.scalar(
        select(Worker.id).where(Worker.environment == environment, Worker.mturk_worker_id == mturk_worker_id)
    )
    if found is not None:
        return found
    row = Worker(
        environment=environment, mturk_worker_id=mturk_worker_id, excluded_at=None, capped_at=None, note=None
    )
    session.add(row)
    session.flush()
    return row.id


def add_assignment(
    session: Session,
    *,
    hit_id: int,
    worker_id: int,
    mturk_assignment_id: str,
    accepted_at: dt.datetime | None,
    submitted_at: dt.datetime | None,
    status: str,
    raw_xml: str,
) -> int | None:
    """Insert a submission with its raw document; None where it is stored already."""
    known = session.scalar(
        select(Assignment.id).where(
            Assignment.mturk_assignment_id == mturk_assignment_id, Assignment.worker_id == worker_id
        )
    )
    if known is not None:
        return None
    row = Assignment(
        hit_id=hit_id,
        worker_id=worker_id,
        mturk_assignment_id=mturk_assignment_id,
        accepted_at=accepted_at,
        submitted_at=submitted_at,
        status=status,
        decision=Decision.NONE,
        raw_xml=raw_xml,
    )
    session.add(row)
    session.flush()
    return row.id


def set_answers(
    session: Session,
    assignment_id: int,
    parsed: ParsedAnswers,
    items: Sequence[HitItemRecord],
    source: JudgementSource = JudgementSource.CROWD,
) -> None:
    """Write what was parsed from a submission, in place of an earlier parse of it."""
    _forget_parse(session, assignment_id)
    pair_ids = ensure_pairs_of(session, items)
    rows = []
    for answer in parsed.answers:
        rows.append(
            {
                "assignment_id": assignment_id,
                "place": answer.place,
                "pair_id": pair_ids[answer.place],
                "outcome": answer.outcome,
                "label": answer.label,
                "active_ms": answer.active_ms,
                "usable": False,
                "source": source,
            }
        )
    add_rows(session, Judgement, rows)
    places = dict(
        session.execute(
            select(Judgement.place, Judgement.id).where(Judgement.assignment_id == assignment_id)
        ).all()
    )
    rationale: list[dict[str, Any]] = []
    for answer in parsed.answers:
        given = [(RationaleKind.SHORTCOMING, value.value) for value in answer.shortcomings]
        given += [(RationaleKind.CONCEPT, value.value) for value in answer.concepts]
        given += [(RationaleKind.TEXT, answer.text)] if answer.text else []
        rationale += [{"judgement_id": places[answer.place], "kind": kind, "value": v} for kind, v in given]
    add_rows(session, Rationale, rationale)
    add_findings(session, assignment_id, parsed.findings)


def ensure_pairs_of(session: Session, items: Sequence[HitItemRecord]) -> dict[int, int]:
    """Place → row id of the pair that stands there."""
    wanted = {item.pair for item in items}
    found: dict[PairRecord, int] = {}
    query = select(Pair.image_id, Pair.caption_id, Pair.id).where(
        Pair.image_id.in_({pair.image_id for pair in wanted}),
        Pair.caption_id.in_({pair.caption_id for pair in wanted}),
    )
    for image, caption, id_ in session.execute(query):
        found[PairRecord(image, caption)] = id_
    if not wanted <= found.keys():
        found = ensure_pairs(session, wanted)
    return {item.place: found[item.pair] for item in items}


def add_findings(session: Session, assignment_id: int, findings: Iterable[FindingRecord]) -> None:
    """Note something about a submission; the same note is not written twice."""
    known = {
        tuple(row)
        for row in session.execute(
            select(Finding.code, Finding.detail).where(Finding.assignment_id == assignment_id)
        )
    }
    new = {(finding.code, finding.detail) for finding in findings} - known
    add_rows(
        session,
        Finding,
        ({"assignment_id": assignment_id, "code": code, "detail": detail} for code, detail in sorted(new)),
    )


def _forget_parse(session: Session, assignment_id: int) -> None:
    ids = select(Judgement.id).where(Judgement.assignment_id == assignment_id)
    session.execute(delete(Rationale).where(Rationale.judgement_id.in_(ids)))
    session.execute(delete(Judgement).where(Judgement.assignment_id == assignment_id))


def raw_xml(session: Session, assignment_id: int) -> str:
    """The answer document of a submission, as received."""
    return session.execute(select(Assignment.raw_xml).where(Assignment.id == assignment_id)).scalar_one()


def stored_counts(session: Session, environment: Environment) -> dict[int, int]:
    """How many submissions of each HIT are stored."""
    query = (
        select(Assignment.hit_id, func.count())
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .where(Batch.environment == environment)
        .group_by(Assignment.hit_id)
    )
    return dict(session.execute(query).all())


def assignments(
    session: Session,
    environment: Environment,
    decisions: Sequence[Decision] = tuple(Decision),
) -> list[AssignmentRow]:
    """The submissions of an environment with one of these decisions, in order of arrival."""
    query = (
        select(
            Assignment.id,
            Assignment.hit_id,
            Batch.name,
            Hit.number,
            Hit.attempt,
            Hit.mturk_hit_id,
            Worker.id,
            Worker.mturk_worker_id,
            Worker.excluded_at,
            Assignment.mturk_assignment_id,
            Assignment.accepted_at,
            Assignment.submitted_at,
            Assignment.status,
            Assignment.decision,
        )
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .join(Worker, Worker.id == Assignment.worker_id)
        .where(Batch.environment == environment, Assignment.decision.in_(list(decisions)))
        .order_by(Assignment.submitted_at, Assignment.id)
    )
    rows: list[list[Any]] = [list(row) for row in session.execute(query)]
    for row in rows:
        row[8] = row[8] is not None  # excluded_at → excluded
    return [AssignmentRow(*row) for row in rows]


def set_decision(session: Session, assignment_ids: Sequence[int], decision: Decision) -> None:
    """Write what was decided about these submissions."""
    for start in range(0, len(assignment_ids), 1000):
        chunk = list(assignment_ids[start : start + 1000])
        session.execute(update(Assignment).where(Assignment.id.in_(chunk)).values(decision=decision))


def set_status(session: Session, assignment_id: int, status: str) -> None:
    """Write what the API says of a submission."""
    session.execute(update(Assignment).where(Assignment.id == assignment_id).values(status=status))


def exclude_worker(session: Session, worker_id: int, note: str, now: dt.datetime) -> None:
    """The worker gets no further HITs."""
    session.execute(
        update(Worker)
        .where(Worker.id == worker_id, Worker.excluded_at.is_(None))
        .values(excluded_at=now, note=note)
    )


def findings(session: Session, environment: Environment) -> dict[int, list[FindingRecord]]:
    """What was noticed about each submission."""
    query = (
        select(Finding.assignment_id, Finding.code, Finding.detail)
        .join(Assignment, Assignment.id == Finding.assignment_id)
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .where(Batch.environment == environment)
        .order_by(Finding.id)
    )
    found: dict[int, list[FindingRecord]] = defaultdict(list)
    for assignment_id, code, detail in session.execute(query):
        found[assignment_id].append(FindingRecord(code, detail))
    return found


def decision_counts(session: Session, environment: Environment) -> dict[Decision, int]:
    """How many submissions stand at each decision."""
    query = (
        select(Assignment.decision, func.count())
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .where(Batch.environment == environment)
        .group_by(Assignment.decision)
    )
    return dict(session.execute(query).all())
