"""Money that is promised and not paid yet: work that is out or undecided, calls that are planned and not made."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, case, func, select
from sqlalchemy.orm import Session

from mitl.db.models import Assignment, Batch, Hit, Journal, Worker
from mitl.records import Environment, HitState, JournalState, JudgementSource

COST = "cost_cents"
"""Where the request of a journalled call keeps what the call will cost in all, its fee included."""
COSTLY = ("bonus", "extend")
"""Kinds of calls that cost beyond what their HIT promises; their requests keep ``environment`` and ``cost_cents``."""

_SUBMITTED, _REJECTED, _OVERRIDE = "Submitted", "Rejected", "override"


@dataclass(frozen=True, slots=True)
class Promise:
    """Assignments of one price that are not settled: still to come, undecided, or decided and not yet paid."""

    reward_cents: int
    hit_assignments: int
    """Different workers that each of their HITs asks; the fee's rule depends on it."""
    count: int


def promises(session: Session, environment: Environment) -> list[Promise]:
    """What the HITs of an environment may still cost, those that are planned and not posted included.

    A HIT that is not closed promises every assignment that is neither paid nor refused; a closed one those that
    were submitted and are not settled, and the refused ones that a person decided to pay after all.
    """
    unsettled = case((Assignment.status == _SUBMITTED, 1), (_to_override(), 1), else_=0)
    per_hit = (
        select(
            Batch.reward_cents.label("reward"),
            Hit.assignments.label("wanted"),
            (Hit.state != HitState.CLOSED).label("live"),
            func.count(Assignment.id).label("submitted"),
            func.coalesce(func.sum(unsettled), 0).label("unsettled"),
        )
        .join(Batch, Batch.id == Hit.batch_id)
        .outerjoin(Assignment, Assignment.hit_id == Hit.id)
        .outerjoin(Worker, Worker.id == Assignment.worker_id)
        .where(Batch.environment == environment, Batch.source == JudgementSource.CROWD)
        .group_by(Hit.id, Hit.assignments, Hit.state, Batch.reward_cents)
        .subquery()
    )
    found: dict[tuple[int, int], int] = {}
    rows = session.execute(select(per_hit, func.count().label("hits")).group_by(*per_hit.c))
    for reward, wanted, live, submitted, waiting, hits in rows:
        to_come = max(wanted - submitted, 0) if live else 0
        key = (reward, wanted)
        found[key] = found.get(key, 0) + hits * (to_come + int(waiting))
    return [Promise(*key, count) for key, count in sorted(found.items()) if count]


def promised_calls_cents(session: Session, environment: Environment) -> int:
    """What planned calls beyond the HITs' own promise will cost, fees included: bonuses, additional assignments."""
    query = select(Journal.request).where(Journal.kind.in_(COSTLY), Journal.state != JournalState.DONE)
    requests = [json.loads(request) for request in session.scalars(query)]
    return sum(
        int(request.get(COST, 0)) for request in requests if request.get("environment") == environment.value
    )


def _to_override() -> ColumnElement[bool]:
    """A refused submission whose refusal is planned to be taken back."""
    planned = (
        select(Journal.id)
        .where(
            Journal.kind == _OVERRIDE,
            Journal.state != JournalState.DONE,
            Journal.key == Assignment.mturk_assignment_id + ":" + Worker.mturk_worker_id,
        )
        .exists()
    )
    return and_(Assignment.status == _REJECTED, planned)
