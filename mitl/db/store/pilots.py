"""Pilot batches: how far they are, and how long their work took."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from mitl.db.models import Assignment, Hit, Judgement
from mitl.db.store.hits import LIVE_STATES
from mitl.records import Decision

_KEPT = tuple(decision for decision in Decision if decision.keeps_answers)


@dataclass(frozen=True, slots=True)
class MeasuredPage:
    """What one submission's page measured."""

    places: int
    """Pairs whose time was measured."""
    active_ms: int
    """On those pairs together, as the page claims."""
    accepted_at: dt.datetime | None
    submitted_at: dt.datetime | None


def pilot_progress(session: Session, batch_id: int) -> tuple[int, int]:
    """HITs of a pilot that are not closed, and all of them; what asks again later is no part of it."""
    query = select(
        func.coalesce(func.sum(case((Hit.state.in_(list(LIVE_STATES)), 1), else_=0)), 0), func.count()
    ).where(Hit.batch_id == batch_id, Hit.attempt == 1)
    out, hits = session.execute(query).one()
    return int(out), int(hits)


def measured_pages(session: Session, batch_id: int) -> list[MeasuredPage]:
    """The submissions of a batch whose answers are kept, in order of arrival; those that measured nothing are left
    out."""
    query = (
        select(func.count(), func.sum(Judgement.active_ms), Assignment.accepted_at, Assignment.submitted_at)
        .join(Assignment, Assignment.id == Judgement.assignment_id)
        .join(Hit, Hit.id == Assignment.hit_id)
        .where(Hit.batch_id == batch_id, Judgement.active_ms > 0, Assignment.decision.in_(_KEPT))
        .group_by(Assignment.id, Assignment.accepted_at, Assignment.submitted_at)
        .order_by(Assignment.id)
    )
    return [
        MeasuredPage(places, int(active_ms or 0), accepted_at, submitted_at)
        for places, active_ms, accepted_at, submitted_at in session.execute(query)
    ]
