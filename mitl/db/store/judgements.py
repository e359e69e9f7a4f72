"""Judgements as stored, with where they stand and whether they count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from mitl.db.models import Assignment, Batch, Hit, HitItem, Judgement, Pair, Rationale, Worker
from mitl.records import Concept, Environment, RationaleKind, Shortcoming
from mitl.records import Judgement as JudgementRecord
from mitl.records import Pair as PairRecord


@dataclass(frozen=True, slots=True)
class StoredJudgement:
    """A judgement with where it stands."""

    id: int
    assignment_id: int
    hit_id: int
    worker_id: int
    place: int
    record: JudgementRecord


def judgements(session: Session, environment: Environment) -> list[StoredJudgement]:
    """Every judgement of an environment, by submission and place, with its role and rationale."""
    rationale = _rationale(session, environment)
    query: Any = (
        select(
            Judgement.id,
            Judgement.assignment_id,
            Hit.id,
            Worker.id,
            Judgement.place,
            Pair.image_id,
            Pair.caption_id,
            Worker.mturk_worker_id,
            Judgement.label,
            Judgement.outcome,
            HitItem.role,
            Judgement.usable,
            Judgement.active_ms,
            Judgement.source,
            Assignment.submitted_at,
        )
        .join(Assignment, Assignment.id == Judgement.assignment_id)
        .join(Worker, Worker.id == Assignment.worker_id)
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .join(HitItem, (HitItem.hit_id == Hit.id) & (HitItem.place == Judgement.place))
        .join(Pair, Pair.id == Judgement.pair_id)
        .where(Batch.environment == environment)
        .order_by(Judgement.assignment_id, Judgement.place)
    )
    found = []
    for result in session.execute(query):
        row: list[Any] = list(result)
        shortcomings, concepts = rationale.get(row[0], ((), ()))
        found.append(
            StoredJudgement(
                id=row[0],
                assignment_id=row[1],
                hit_id=row[2],
                worker_id=row[3],
                place=row[4],
                record=JudgementRecord(
                    pair=PairRecord(row[5], row[6]),
                    worker=row[7],
                    label=row[8],
                    outcome=row[9],
                    role=row[10],
                    usable=row[11],
                    shortcomings=shortcomings,
                    concepts=concepts,
                    active_ms=row[12],
                    source=row[13],
                    submitted_at=row[14],
                ),
            )
        )
    return found


_Rationale = tuple[tuple[Shortcoming, ...], tuple[Concept, ...]]


def _rationale(session: Session, environment: Environment) -> Mapping[int, _Rationale]:
    query = (
        select(Rationale.judgement_id, Rationale.kind, Rationale.value)
        .join(Judgement, Judgement.id == Rationale.judgement_id)
        .join(Assignment, Assignment.id == Judgement.assignment_id)
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .where(Batch.environment == environment, Rationale.kind != RationaleKind.TEXT)
        .order_by(Rationale.id)
    )
    values: dict[int, tuple[list[Shortcoming], list[Concept]]] = defaultdict(lambda: ([], []))
    for judgement_id, kind, value in session.execute(query):
        if kind is RationaleKind.SHORTCOMING:
            values[judgement_id][0].append(Shortcoming(value))
        else:
            values[judgement_id][1].append(Concept(value))
    return {key: (tuple(first), tuple(second)) for key, (first, second) in values.items()}


def set_usable(session: Session, ids: Sequence[int], usable: bool) -> None:
    """Whether aggregation may read these judgements."""
    for start in range(0, len(ids), 1000):
        chunk = list(ids[start : start + 1000])
        session.execute(update(Judgement).where(Judgement.id.in_(chunk)).values(usable=usable))


def free_text(session: Session, assignment_id: int) -> dict[int, str]:
    """Place → what the worker wrote there in their own words."""
    query = (
        select(Judgement.place, Rationale.value)
        .join(Judgement, Judgement.id == Rationale.judgement_id)
        .where(Judgement.assignment_id == assignment_id, Rationale.kind == RationaleKind.TEXT)
    )
    return dict(session.execute(query).all())
