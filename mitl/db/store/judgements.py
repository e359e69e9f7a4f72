"""Judgements as stored, with where they stand and whether they count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, false, update
from sqlalchemy.orm import Session

from mitl.db.models import Assignment, Hit, HitItemRow, JudgementRow, PairRow, Rationale, Worker
from mitl.db.store.statements import AT_PLACE, change_among, chunks, query_by_worker, query_submissions
from mitl.records import Environment, Judgement, Outcome, Pair, PairRole
from mitl.records.questions import TEXT, Given

_GOLD_ROLES = [role for role in PairRole if role.is_gold]


@dataclass(frozen=True, slots=True)
class StoredJudgement:
    """A judgement with where it stands."""

    id: int
    assignment_id: int
    hit_id: int
    worker_id: int
    place: int
    record: Judgement


def judgements(session: Session, environment: Environment) -> list[StoredJudgement]:
    """Every judgement of an environment, by submission and place, with its role and rationale."""
    query = _judgements(environment).order_by(JudgementRow.assignment_id, JudgementRow.place)
    return _stored(session.execute(query), _rationale(session, environment))


def gold_judgements(
    session: Session, environment: Environment, submissions: Sequence[int] | None = None
) -> list[StoredJudgement]:
    """The judgements of an environment on controls, by submission and place: pair, role, worker and label alone.

    Args:
        submissions: on these submissions alone.
    """
    query = (
        query_by_worker(
            environment,
            JudgementRow.id,
            JudgementRow.assignment_id,
            Assignment.hit_id,
            Worker.id,
            JudgementRow.place,
            PairRow.left_id,
            PairRow.right_id,
            Worker.mturk_worker_id,
            JudgementRow.label,
            HitItemRow.role,
        )
        .join(JudgementRow, JudgementRow.assignment_id == Assignment.id)
        .join(HitItemRow, AT_PLACE)
        .join(PairRow, PairRow.id == JudgementRow.pair_id)
        .where(HitItemRow.role.in_(_GOLD_ROLES))
        .order_by(JudgementRow.assignment_id, JudgementRow.place)
    )
    parts = [query]
    if submissions is not None:
        parts = [query.where(Assignment.id.in_(chunk)) for chunk in chunks(sorted(submissions))]
    return [
        StoredJudgement(id_, of, hit, worker_id, place, Judgement(Pair(*pair), worker, label, role=role))
        for part in parts
        for id_, of, hit, worker_id, place, *pair, worker, label, role in session.execute(part)
    ]


_IS_ANSWERED = and_(JudgementRow.outcome == Outcome.ANSWERED, JudgementRow.label.is_not(None))


def _judgements(environment: Environment) -> Any:
    return (
        query_submissions(
            environment,
            JudgementRow.id,
            JudgementRow.assignment_id,
            Hit.id,
            Worker.id,
            JudgementRow.place,
            PairRow.left_id,
            PairRow.right_id,
            Worker.mturk_worker_id,
            JudgementRow.label,
            JudgementRow.outcome,
            HitItemRow.role,
            JudgementRow.usable,
            JudgementRow.active_ms,
            JudgementRow.source,
            Assignment.submitted_at,
        )
        .join(JudgementRow, JudgementRow.assignment_id == Assignment.id)
        .join(Worker, Worker.id == Assignment.worker_id)
        .join(HitItemRow, AT_PLACE)
        .join(PairRow, PairRow.id == JudgementRow.pair_id)
    )


def _stored(results: Iterable[Any], rationale: Mapping[int, Given]) -> list[StoredJudgement]:
    found = []
    for row in results:
        found.append(
            StoredJudgement(
                id=row[0],
                assignment_id=row[1],
                hit_id=row[2],
                worker_id=row[3],
                place=row[4],
                record=Judgement(
                    pair=Pair(row[5], row[6]),
                    worker=row[7],
                    label=row[8],
                    outcome=row[9],
                    role=row[10],
                    usable=row[11],
                    given=rationale.get(row[0], {}),
                    active_ms=row[12],
                    source=row[13],
                    submitted_at=row[14],
                ),
            )
        )
    return found


def _rationale(session: Session, environment: Environment) -> Mapping[int, Given]:
    query = (
        query_submissions(environment, Rationale.judgement_id, Rationale.kind, Rationale.value)
        .join(JudgementRow, JudgementRow.assignment_id == Assignment.id)
        .join(Rationale, Rationale.judgement_id == JudgementRow.id)
        .where(Rationale.kind != TEXT.name)
        .order_by(Rationale.id)
    )
    values: dict[int, dict[str, tuple[str, ...]]] = defaultdict(dict)
    for judgement_id, kind, value in session.execute(query):
        of_judgement = values[judgement_id]
        of_judgement[kind] = (*of_judgement.get(kind, ()), value)
    return values


def use_answered(session: Session, assignment_ids: Sequence[int], usable: bool) -> None:
    """Whether aggregation may read what was answered on these pages; what was not answered is never read."""
    counts = _IS_ANSWERED if usable else false()
    change_among(
        session, update(JudgementRow).values(usable=counts), JudgementRow.assignment_id, assignment_ids
    )


def set_usable(session: Session, assignment_id: int, places: Sequence[int], usable: bool) -> None:
    """Whether aggregation may read the judgements at these places of a submission."""
    of_page = (JudgementRow.assignment_id == assignment_id) & JudgementRow.place.in_(places)
    session.execute(update(JudgementRow).where(of_page).values(usable=usable))
