"""How far each HIT type is, and how fast it goes.

The operator's page asks every few seconds, so nothing here reads all assignments, except ``spans``. What was
submitted follows from the HITs' own slots. What waits, was rejected or is under way is found by the index
(environment, state, auto_approve_at), and so is the last hour: what was submitted after some time has its
auto-approval after that time and the shortest delay of all types. A HIT may get a type of another delay.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import Connection, and_, bindparam, case, func, or_, select, update

from mitl.crowd_server.store import accounts
from mitl.crowd_server.store.database import Books, Wide, every
from mitl.crowd_server.store.models import (
    DONE_STATES,
    WORK,
    AssignmentState,
    CrowdAssignment,
    CrowdHit,
    CrowdWorker,
    HitType,
)
from mitl.db.base import columns
from mitl.records import Environment

HOUR = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """How one HIT type stands; numbers of assignments, except the HITs'."""

    id: int
    mturk_id: str
    environment: Environment
    title: str
    reward_cents: int
    paused_at: dt.datetime | None
    hits: int
    open_hits: int
    """Neither expired nor deleted."""
    wanted: int
    done: int
    """Submitted, whatever became of them."""
    left: int
    """Can still be submitted: on open HITs."""
    expires_at: dt.datetime | None
    """When the last open HIT expires."""
    waiting: int
    """Submitted and not decided."""
    rejected: int
    working: int
    """Held by a worker just now."""

    @property
    def state(self) -> str:
        """empty, done, expired (with some never submitted), paused or open."""
        if not self.hits:
            return "empty"
        if self.left:
            return "paused" if self.paused_at is not None else "open"
        return "done" if self.done >= self.wanted else "expired"

    @property
    def is_over(self) -> bool:
        """Whether nothing is under way, nothing can come, and nothing waits for a decision."""
        return not (self.left or self.working or self.waiting)


@dataclass(frozen=True, slots=True)
class Recent:
    """What came in during the last hour."""

    count: int
    first_accepted_at: dt.datetime


@dataclass(frozen=True, slots=True)
class Span:
    """From the first acceptance to the last submission of a HIT type."""

    count: int
    first_accepted_at: dt.datetime
    last_submitted_at: dt.datetime


@dataclass(frozen=True, slots=True)
class ActiveRow:
    """One worker at work."""

    worker: str
    environment: Environment
    title: str
    accepted_at: dt.datetime
    deadline_at: dt.datetime


_NOW = bindparam("now", type_=CrowdHit.expires_at.type)
_OPEN = and_(CrowdHit.deleted_at.is_(None), CrowdHit.expires_at > _NOW)
_HITS: Wide = select(
    CrowdHit.hit_type_id,
    func.count(),
    func.count(case((_OPEN, 1))),
    func.sum(CrowdHit.max_assignments),
    func.sum(CrowdHit.max_assignments - CrowdHit.slots_left),
    func.sum(case((_OPEN, CrowdHit.slots_left), else_=0)),
    func.max(case((_OPEN, CrowdHit.expires_at))),
).group_by(CrowdHit.hit_type_id)
_IN_STATE = (
    CrowdAssignment.environment.in_(tuple(Environment)),
    CrowdAssignment.state.in_(
        (AssignmentState.ACCEPTED, AssignmentState.SUBMITTED, AssignmentState.REJECTED),
    ),
    or_(CrowdAssignment.state != AssignmentState.ACCEPTED, CrowdAssignment.deadline_at > _NOW),
)
_STATES = (
    select(CrowdHit.hit_type_id, CrowdAssignment.state, func.count())
    .join(CrowdHit, CrowdHit.id == CrowdAssignment.hit_id)
    .where(*_IN_STATE)
    .group_by(CrowdHit.hit_type_id, CrowdAssignment.state)
)
_RECENT = (
    select(CrowdHit.hit_type_id, func.count(), func.min(CrowdAssignment.accepted_at))
    .select_from(WORK)
    .where(
        CrowdAssignment.environment.in_(tuple(Environment)),
        CrowdAssignment.state.in_(DONE_STATES),
        CrowdAssignment.auto_approve_at > bindparam("after", type_=CrowdHit.expires_at.type),
        CrowdAssignment.submitted_at > bindparam("since", type_=CrowdHit.expires_at.type),
    )
    .group_by(CrowdHit.hit_type_id)
)
_SPANS: Wide = (
    select(
        CrowdHit.hit_type_id,
        func.count(),
        func.min(CrowdAssignment.accepted_at),
        func.max(CrowdAssignment.submitted_at),
    )
    .join(CrowdHit, CrowdHit.id == CrowdAssignment.hit_id)
    .where(CrowdAssignment.submitted_at.is_not(None))
    .group_by(CrowdHit.hit_type_id)
)
_ACTIVE = (
    select(*columns(ActiveRow, CrowdAssignment, worker=CrowdWorker.mturk_id, title=HitType.title))
    .select_from(WORK)
    .join(CrowdWorker)
    .where(
        CrowdAssignment.environment.in_(tuple(Environment)),
        CrowdAssignment.state == AssignmentState.ACCEPTED,
        CrowdAssignment.deadline_at > _NOW,
    )
    .order_by(CrowdAssignment.accepted_at, CrowdAssignment.id)
)


def groups(connection: Connection, now: dt.datetime) -> list[GroupRow]:
    """One row per HIT type, newest first."""
    hits = {
        type_id: (count, still, int(wanted), int(done), int(left), until)
        for type_id, count, still, wanted, done, left, until in connection.execute(_HITS, {"now": now})
    }
    states = {(type_id, state): count for type_id, state, count in connection.execute(_STATES, {"now": now})}
    types = connection.execute(
        select(
            HitType.id,
            HitType.mturk_id,
            HitType.environment,
            HitType.title,
            HitType.reward_cents,
            HitType.paused_at,
        ).order_by(HitType.id.desc())
    )
    return [
        GroupRow(
            *row,
            *hits.get(row.id, (0, 0, 0, 0, 0, None)),
            waiting=states.get((row.id, AssignmentState.SUBMITTED), 0),
            rejected=states.get((row.id, AssignmentState.REJECTED), 0),
            working=states.get((row.id, AssignmentState.ACCEPTED), 0),
        )
        for row in types
    ]


def recent(connection: Connection, now: dt.datetime) -> dict[int, Recent]:
    """Submissions of the last hour by HIT type."""
    since, delay_s = now - HOUR, connection.scalar(select(func.min(HitType.auto_approval_s)))
    rows = connection.execute(_RECENT, {"since": since, "after": since + dt.timedelta(seconds=delay_s or 0)})
    return {type_id: Recent(count, first) for type_id, count, first in rows}


def spans(connection: Connection) -> dict[int, Span]:
    """From first to last by HIT type; reads every assignment, so callers keep the answer for a while."""
    return {row[0]: Span(*row[1:]) for row in connection.execute(_SPANS)}


def active(connection: Connection, now: dt.datetime) -> list[ActiveRow]:
    """Who holds a HIT just now, longest first."""
    return every(connection, ActiveRow, _ACTIVE, now=now)


def set_paused(connection: Connection, group: GroupRow, since: dt.datetime | None) -> bool:
    """Give out no more of its HITs, or, with None, give them out again; False where that was so already."""
    to_change = HitType.paused_at.is_not(None) if since is None else HitType.paused_at.is_(None)
    change = update(HitType).where(HitType.id == group.id, to_change).values(paused_at=since)
    return connection.execute(change).rowcount == 1


def expire_some(connection: Connection, group: GroupRow, now: dt.datetime, *, limit: int) -> int:
    """Expire the first ``limit`` of its open HITs and settle their money; how many there were.

    Few at a time, because one writes at a time: workers who submit meanwhile wait for one portion alone. What a
    portion did stands, so an interruption costs nothing but another call.
    """
    is_open = (CrowdHit.hit_type_id == group.id, CrowdHit.deleted_at.is_(None), CrowdHit.expires_at > now)
    query = select(CrowdHit.id).where(CrowdHit.environment == group.environment, *is_open)
    ids = connection.scalars(query.order_by(CrowdHit.id).limit(limit)).all()
    if ids:
        connection.execute(update(CrowdHit).where(CrowdHit.id.in_(ids)).values(expires_at=now))
    for hit_id in ids:
        accounts.settle_hit(Books(connection, group.environment, now), hit_id)
    return len(ids)
