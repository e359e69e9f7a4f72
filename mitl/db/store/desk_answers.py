"""Answers as the review desk shows them: of a submission, of a worker, and beside a submission."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from mitl.db.models import (
    Assignment,
    Batch,
    Hit,
    HitItem,
    Judgement,
    Pair,
    Worker,
)
from mitl.db.models import Rationale as RationaleRow
from mitl.records import (
    Environment,
    Label,
    Outcome,
    PairRole,
    RationaleKind,
)
from mitl.records import Pair as PairRecord


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """One answer with who gave it and where, without its reasons."""

    assignment_id: int
    worker_id: int
    worker: str
    place: int
    pair: PairRecord
    role: PairRole
    outcome: Outcome
    label: Label | None
    active_ms: int | None


def _answers() -> Any:
    return (
        select(
            Judgement.assignment_id,
            Worker.id,
            Worker.mturk_worker_id,
            Judgement.place,
            Pair.image_id,
            Pair.caption_id,
            HitItem.role,
            Judgement.outcome,
            Judgement.label,
            Judgement.active_ms,
        )
        .join(Assignment, Assignment.id == Judgement.assignment_id)
        .join(Worker, Worker.id == Assignment.worker_id)
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .join(HitItem, (HitItem.hit_id == Hit.id) & (HitItem.place == Judgement.place))
        .join(Pair, Pair.id == Judgement.pair_id)
        .order_by(Judgement.assignment_id, Judgement.place)
    )


def _rows(session: Session, query: Any) -> list[AnswerRow]:
    return [
        AnswerRow(assignment, worker_id, worker, place, PairRecord(image, caption), role, outcome, label, ms)
        for assignment, worker_id, worker, place, image, caption, role, outcome, label, ms in session.execute(
            query
        )
    ]


def answers_of(session: Session, assignment_id: int) -> list[AnswerRow]:
    """The answers of one submission by place."""
    return _rows(session, _answers().where(Judgement.assignment_id == assignment_id))


def answers_of_worker(session: Session, worker_id: int) -> list[AnswerRow]:
    """The answers of one worker by submission and place."""
    return _rows(session, _answers().where(Assignment.worker_id == worker_id))


def answers_beside(session: Session, environment: Environment, assignment_id: int) -> list[AnswerRow]:
    """What other submissions say about the pairs of this one."""
    pairs = select(Judgement.pair_id).where(Judgement.assignment_id == assignment_id)
    return _rows(
        session,
        _answers().where(
            Batch.environment == environment,
            Judgement.pair_id.in_(pairs),
            Judgement.assignment_id != assignment_id,
        ),
    )


def reasons(session: Session, assignment_id: int) -> dict[int, list[str]]:
    """Place → the ticked reasons of a submission, in order."""
    found: dict[int, list[str]] = defaultdict(list)
    query = (
        select(Judgement.place, RationaleRow.value)
        .join(Judgement, Judgement.id == RationaleRow.judgement_id)
        .where(Judgement.assignment_id == assignment_id, RationaleRow.kind != RationaleKind.TEXT)
        .order_by(RationaleRow.id)
    )
    for place, value in session.execute(query):
        found[place].append(value)
    return found
