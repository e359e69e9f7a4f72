"""What falls due by the clock alone: auto-approval, and the release of money that nobody can earn any more.

Nothing runs at night. Each request first asks whether something is due in its environment and, if so, writes
what should have been written at that time.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter

from sqlalchemy import Connection, and_, bindparam, case, exists, func, or_, select, update

from mitl.crowd_server.models import Assignment, AssignmentState, Hit, HitType
from mitl.crowd_server.store import accounts
from mitl.records import Environment

_IS_DUE = select(
    or_(
        exists().where(
            Assignment.environment == bindparam("environment"),
            Assignment.state == AssignmentState.SUBMITTED,
            Assignment.auto_approve_at <= bindparam("now"),
        ),
        exists().where(Hit.environment == bindparam("environment"), Hit.settle_at <= bindparam("now")),
    )
)
"""Statements of every request are built once: SQLAlchemy takes longer to build one than SQLite to run it."""


def is_due(connection: Connection, environment: Environment, now: dt.datetime) -> bool:
    """Whether ``settle`` would change anything."""
    return bool(connection.execute(_IS_DUE, {"environment": environment, "now": now}).scalar_one())


def settle(connection: Connection, environment: Environment, now: dt.datetime) -> None:
    """Approve what is due for auto-approval, then release what expired HITs no longer need."""
    _auto_approve(connection, environment, now)
    rows = connection.execute(
        select(Hit.id).where(Hit.environment == environment, Hit.settle_at <= now)
    ).scalars()
    for hit_id in rows.all():
        settle_hit(connection, environment, hit_id, now)


def settle_hit(connection: Connection, environment: Environment, hit_id: int, now: dt.datetime) -> None:
    """Make the money held for one HIT fit what can still be earned on it.

    Before its expiry that is every assignment not yet decided; after it, those submitted and those still under
    a running lease. Holding more (after an extension) raises InsufficientFunds where the balance is too small.
    """
    hit = connection.execute(
        select(
            Hit.max_assignments,
            Hit.slots_left,
            Hit.held_slots,
            Hit.expires_at,
            Hit.deleted_at,
            HitType.reward_cents,
        )
        .join(HitType)
        .where(Hit.id == hit_id)
    ).one()
    live = and_(Assignment.state == AssignmentState.ACCEPTED, Assignment.deadline_at > now)
    undecided, leases, last_deadline = connection.execute(
        select(
            func.count(case((Assignment.state == AssignmentState.SUBMITTED, 1))),
            func.count(case((live, 1))),
            func.max(case((live, Assignment.deadline_at))),
        ).where(Assignment.hit_id == hit_id)
    ).one()
    settle_at: dt.datetime | None
    if hit.deleted_at is not None:
        needed, settle_at = 0, None
    elif hit.expires_at > now:
        needed, settle_at = undecided + hit.slots_left, hit.expires_at
    else:
        needed, settle_at = undecided + leases, last_deadline
    change = (needed - hit.held_slots) * hit.reward_cents
    if change > 0:
        accounts.hold(connection, environment, hit_id, change, now)
    else:
        accounts.release(connection, environment, hit_id, -change, now)
    connection.execute(update(Hit).where(Hit.id == hit_id).values(held_slots=needed, settle_at=settle_at))


def _auto_approve(connection: Connection, environment: Environment, now: dt.datetime) -> None:
    due = and_(
        Assignment.environment == environment,
        Assignment.state == AssignmentState.SUBMITTED,
        Assignment.auto_approve_at <= now,
    )
    rows = connection.execute(
        select(Assignment.id, Assignment.hit_id, HitType.reward_cents, Assignment.auto_approve_at)
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(HitType, HitType.id == Hit.hit_type_id)
        .where(due)
        .order_by(Assignment.id)
    ).all()
    if not rows:
        return
    accounts.pay(connection, environment, [(hit, own, cents, at or now) for own, hit, cents, at in rows])
    connection.execute(
        update(Assignment)
        .where(due)
        .values(state=AssignmentState.APPROVED, decided_at=Assignment.auto_approve_at)
    )
    for hit_id, count in Counter(hit for _, hit, _, _ in rows).items():
        connection.execute(update(Hit).where(Hit.id == hit_id).values(held_slots=Hit.held_slots - count))
