"""Accepting, returning and submitting: an assignment from the worker's side."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BindParameter,
    Connection,
    and_,
    bindparam,
    case,
    exists,
    func,
    literal_column,
    null,
    or_,
    select,
    update,
)

from mitl.crowd_server.protocol.ids import entity_id
from mitl.crowd_server.store import accounts
from mitl.crowd_server.store.database import Books, Prepared, Wide, add_row, every, first
from mitl.crowd_server.store.models import (
    IS_LIVE,
    WORK,
    AssignmentState,
    Consent,
    CrowdAssignment,
    CrowdHit,
    CrowdWorker,
    HitType,
    Invitation,
    Study,
    WorkerBlock,
)
from mitl.crowd_server.store.workers import WorkerRow
from mitl.db.base import columns
from mitl.records import Environment


@dataclass(frozen=True, slots=True)
class OpenGroup:
    """A HIT type with the number of HITs that one worker may take."""

    hit_type_id: int
    mturk_id: str
    title: str
    description: str
    reward_cents: int
    duration_s: int
    auto_approval_s: int
    requirements: str
    available: int
    sample: str
    """The first HIT of the group, for a preview."""


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """One worker's go at one HIT, with what its page shows."""

    id: int
    mturk_id: str
    state: AssignmentState
    accepted_at: dt.datetime
    deadline_at: dt.datetime
    submitted_at: dt.datetime | None
    auto_approve_at: dt.datetime | None
    environment: Environment
    hit_id: int
    hit: str
    worker: str
    hit_type: str
    title: str
    description: str
    reward_cents: int
    duration_s: int
    auto_approval_s: int
    hit_type_id: int

    def is_live(self, now: dt.datetime) -> bool:
        """Whether the worker may still submit."""
        return self.state is AssignmentState.ACCEPTED and self.deadline_at > now

    def has_run_out(self, now: dt.datetime) -> bool:
        """Whether its time ended before it was submitted or given back."""
        return self.state is AssignmentState.ACCEPTED and self.deadline_at <= now


_LEASE: Wide = (
    select(
        *columns(
            LeaseRow,
            CrowdAssignment,
            hit=CrowdHit.mturk_id,
            worker=CrowdWorker.mturk_id,
            hit_type=HitType.mturk_id,
            title=HitType.title,
            description=HitType.description,
            reward_cents=HitType.reward_cents,
            duration_s=HitType.duration_s,
            auto_approval_s=HitType.auto_approval_s,
            hit_type_id=HitType.id,
        )
    )
    .select_from(WORK)
    .join(CrowdWorker)
)
_ME: BindParameter[Any] = bindparam("me")
_NOW: BindParameter[Any] = bindparam("now")
_GIVEN_OUT = (
    HitType.environment == bindparam("environment"),
    HitType.paused_at.is_(None),
    ~exists().where(WorkerBlock.worker_id == _ME),
    # Looked at again here: since the page was asked for, the invitation may have been revoked, the consent withdrawn.
    ~exists().where(
        CrowdWorker.id == _ME, Invitation.id == CrowdWorker.invitation_id, Invitation.revoked_at.is_not(None)
    ),
    ~exists().where(
        Study.environment == bindparam("environment"),
        Consent.version == Study.version,
        Consent.worker_id == _ME,
        Consent.given.is_(False),
    ),
)
_OPEN = (
    # Written out, because SQLite cannot tell from a parameter that the index of open HITs serves.
    CrowdHit.slots_left > literal_column("0"),
    CrowdHit.expires_at > _NOW,
    CrowdHit.deleted_at.is_(None),
)
_LIVE_LEASES = (
    select(func.count(CrowdAssignment.id))
    .where(CrowdAssignment.hit_id == CrowdHit.id, IS_LIVE)
    .correlate(CrowdHit)
)
_FREE = (*_GIVEN_OUT, *_OPEN, CrowdHit.slots_left > _LIVE_LEASES.scalar_subquery())
_BARRED = or_(
    CrowdAssignment.submitted_at.is_not(None),
    and_(CrowdAssignment.state == AssignmentState.RETURNED, CrowdAssignment.deadline_at > _NOW),
)
_MINE = and_(CrowdAssignment.hit_id == CrowdHit.id, CrowdAssignment.worker_id == _ME)
# A list looks at every HIT, of which few are at work: leases are counted once for all, and texts read once for a group.
_AT_WORK = (
    select(CrowdAssignment.hit_id, func.count().label("leases"))
    .where(CrowdAssignment.environment == bindparam("environment"), IS_LIVE)
    .group_by(CrowdAssignment.hit_id)
    .subquery()
)
_AVAILABLE = (
    select(CrowdHit.hit_type_id, func.count().label("available"), func.min(CrowdHit.id).label("first_id"))
    .outerjoin(_AT_WORK, _AT_WORK.c.hit_id == CrowdHit.id)
    .where(
        *_OPEN,
        CrowdHit.environment == bindparam("environment"),
        CrowdHit.slots_left > func.coalesce(_AT_WORK.c.leases, 0),
        CrowdHit.id.not_in(
            select(CrowdAssignment.hit_id).where(CrowdAssignment.worker_id == _ME, or_(_BARRED, IS_LIVE))
        ),
    )
    .group_by(CrowdHit.hit_type_id)
    .subquery()
)
_GROUPS = Prepared(
    select(
        *columns(
            OpenGroup,
            HitType,
            hit_type_id=HitType.id,
            available=_AVAILABLE.c.available,
            sample=CrowdHit.mturk_id,
        )
    )
    .join(_AVAILABLE, _AVAILABLE.c.hit_type_id == HitType.id)
    .join(CrowdHit, CrowdHit.id == _AVAILABLE.c.first_id)
    .where(*_GIVEN_OUT)
    .order_by(HitType.id)
)
_CURRENT = Prepared(
    _LEASE.where(CrowdAssignment.worker_id == _ME, IS_LIVE).order_by(CrowdAssignment.id).limit(1)
)
_FIND = Prepared(_LEASE.where(CrowdAssignment.id == bindparam("own")))
_AT_HAND = Prepared(
    select(HitType.requirements, CrowdAssignment.id, CrowdAssignment.accepted_at)
    .select_from(CrowdWorker)
    .outerjoin(
        HitType,
        and_(HitType.mturk_id == bindparam("hit_type"), HitType.environment == CrowdWorker.environment),
    )
    .outerjoin(CrowdAssignment, and_(CrowdAssignment.worker_id == CrowdWorker.id, IS_LIVE))
    .where(CrowdWorker.id == _ME)
    .order_by(CrowdAssignment.id)
    .limit(1)
)
_IDLE_ID = (
    select(CrowdAssignment.mturk_id)
    .where(CrowdAssignment.hit_id == CrowdHit.id)
    .group_by(CrowdAssignment.mturk_id)
    # Not where its time is over: by another server's clock, or once this one is set back, it may still be submitted.
    .having(func.max(case((CrowdAssignment.state == AssignmentState.RETURNED, 0), else_=1)) == 0)
    .order_by(func.min(CrowdAssignment.id))
    .limit(1)
    .correlate(CrowdHit)
    .scalar_subquery()
)
"""An AssignmentId of the HIT that was given back, if there is one: MTurk gives such ids out again."""
_NEXT = Prepared(
    select(CrowdHit.id, HitType.duration_s, _IDLE_ID, null())
    .join(HitType, HitType.id == CrowdHit.hit_type_id)
    .where(HitType.mturk_id == bindparam("hit_type"), *_FREE, ~exists().where(_MINE))
    .order_by(CrowdHit.id)
    .limit(1)
)
_AGAIN = Prepared(
    select(CrowdHit.id, HitType.duration_s, _IDLE_ID, CrowdAssignment.id)
    .join(HitType, HitType.id == CrowdHit.hit_type_id)
    .join(CrowdAssignment, CrowdAssignment.hit_id == CrowdHit.id)
    .where(HitType.mturk_id == bindparam("hit_type"), *_FREE, CrowdAssignment.worker_id == _ME, ~_BARRED)
    .order_by(CrowdHit.id)
    .limit(1)
)
_RENEW = Prepared(
    update(CrowdAssignment)
    .where(CrowdAssignment.id == bindparam("own"))
    .values(
        mturk_id=bindparam("new_id"),
        state=AssignmentState.ACCEPTED,
        accepted_at=_NOW,
        deadline_at=bindparam("until"),
    )
)
_RETURN = (
    update(CrowdAssignment)
    .where(CrowdAssignment.id == bindparam("own"))
    .values(state=AssignmentState.RETURNED)
    .returning(CrowdAssignment.hit_id)
)
_WITHDRAW = (
    update(CrowdAssignment)
    .where(CrowdAssignment.worker_id == _ME, IS_LIVE)
    .values(state=AssignmentState.RETURNED, deadline_at=_NOW)
    .returning(CrowdAssignment.hit_id)
)
_SUBMIT = Prepared(
    update(CrowdAssignment)
    .where(
        CrowdAssignment.id == bindparam("own"), CrowdAssignment.accepted_at == bindparam("accepted"), IS_LIVE
    )
    .values(
        state=AssignmentState.SUBMITTED,
        submitted_at=_NOW,
        auto_approve_at=bindparam("approve_at"),
        answer=bindparam("xml"),
    )
    .returning(CrowdAssignment.id)
)
# Where clocks differ or are set back, two people may submit for one place: both did the work, and the HIT wanted it.
_TAKE_SLOT = Prepared(
    update(CrowdHit)
    .where(CrowdHit.id == bindparam("hit"))
    .values(
        slots_left=CrowdHit.slots_left - case((CrowdHit.slots_left > 0, 1), else_=0),
        max_assignments=CrowdHit.max_assignments + case((CrowdHit.slots_left > 0, 0), else_=1),
    )
)


def groups(books: Books, worker: WorkerRow) -> list[OpenGroup]:
    """HIT types with HITs that this worker may take, oldest first; qualifications are the caller's business."""
    values = {"environment": worker.environment, "me": worker.id, "now": books.now}
    return every(books.connection, OpenGroup, _GROUPS, **values)


def at_hand(
    books: Books, worker: WorkerRow, hit_type: str
) -> tuple[str | None, tuple[int, dt.datetime] | None]:
    """A HIT type's QualificationRequirements, None where there is no such type; and the HIT that the worker has open.

    The HIT is its assignment row and when it was accepted.
    """
    values = {"me": worker.id, "now": books.now, "hit_type": hit_type}
    requirements, own_id, accepted_at = _AT_HAND.rows(books.connection, values)[0]
    return requirements, None if own_id is None else (own_id, accepted_at)


def current(books: Books, worker: WorkerRow) -> LeaseRow | None:
    """The one assignment that this worker has open."""
    return first(books.connection, LeaseRow, _CURRENT, me=worker.id, now=books.now)


def find(connection: Connection, assignment_id: int) -> LeaseRow | None:
    """An assignment by its row."""
    return first(connection, LeaseRow, _FIND, own=assignment_id)


def accept(books: Books, worker: WorkerRow, hit_type: str) -> tuple[int, dt.datetime] | None:
    """Lease one HIT of this type that the worker has not done: (assignment row, time); None where there is none.

    HITs come in the order of posting, those that this worker had before last. One that they gave back is not
    offered to them again until its old deadline.
    """
    connection, now = books.connection, books.now
    values = {"environment": worker.environment, "hit_type": hit_type, "me": worker.id, "now": now}
    rows = _NEXT.rows(connection, values) or _AGAIN.rows(connection, values)
    if not rows:
        return None
    hit_id, duration_s, idle_id, own_id = rows[0]
    mturk_id = idle_id or entity_id()
    until = now + dt.timedelta(seconds=duration_s)
    if own_id is not None:
        _RENEW.rows(connection, {"own": own_id, "new_id": mturk_id, "now": now, "until": until})
        return int(own_id), now
    own_id = add_row(
        connection,
        CrowdAssignment,
        environment=worker.environment,
        hit_id=hit_id,
        worker_id=worker.id,
        mturk_id=mturk_id,
        state=AssignmentState.ACCEPTED,
        accepted_at=now,
        deadline_at=until,
        feedback="",
        answer="",
    )
    return own_id, now


def give_back(books: Books, assignment_id: int) -> None:
    """Return a HIT: it is free for others at once."""
    accounts.settle_soon(books, books.connection.scalars(_RETURN, {"own": assignment_id}).all())


def withdraw(books: Books, worker: WorkerRow) -> None:
    """Return what this worker has open; they may take it again at once, should they change their mind."""
    returned = books.connection.scalars(_WITHDRAW, {"me": worker.id, "now": books.now})
    accounts.settle_soon(books, returned.all())


def submit(books: Books, lease: LeaseRow, answer: str) -> bool:
    """Keep a worker's answer, once; False where the lease is over or another by now."""
    approve_at = books.now + dt.timedelta(seconds=lease.auto_approval_s)
    sent = {"own": lease.id, "accepted": lease.accepted_at, "now": books.now, "approve_at": approve_at}
    if not _SUBMIT.rows(books.connection, sent | {"xml": answer}):
        return False
    _TAKE_SLOT.rows(books.connection, {"hit": lease.hit_id})
    return True
