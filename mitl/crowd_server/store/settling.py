"""What falls due by the clock alone: auto-approval, the release of money that nobody can earn any more, and the
disposal of HITs 120 days after their expiry.

Nothing runs at night. Each request first asks whether something is due in its environment and, if so, writes
what should have been written at that time.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter

from sqlalchemy import Connection, and_, bindparam, case, exists, func, or_, select, update

from mitl.crowd_server.store import accounts
from mitl.crowd_server.store.database import Database
from mitl.crowd_server.store.hit_types import TypeRow
from mitl.crowd_server.store.models import Assignment, AssignmentState, Hit, HitType
from mitl.records import Environment

DISPOSED_AFTER = dt.timedelta(days=120)
"""After this long past its expiry a HIT is deleted by itself, as on MTurk."""

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

_HIT = (
    select(
        Hit.max_assignments,
        Hit.slots_left,
        Hit.held_slots,
        Hit.expires_at,
        Hit.deleted_at,
        HitType.reward_cents,
    )
    .join(HitType)
    .where(Hit.id == bindparam("own"))
)
_LIVE = and_(Assignment.state == AssignmentState.ACCEPTED, Assignment.deadline_at > bindparam("now"))
_UNDECIDED = Assignment.state == AssignmentState.SUBMITTED
_WORK = select(
    func.count(case((_UNDECIDED, 1))).label("undecided"),
    func.count(case((_LIVE, 1))).label("leases"),
    func.max(case((_LIVE, Assignment.deadline_at))).label("last_deadline"),
    func.max(case((_UNDECIDED, Assignment.auto_approve_at))).label("last_approval"),
).where(Assignment.hit_id == bindparam("own"))


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


def settle_due(database: Database, environment: Environment, now: dt.datetime) -> None:
    """Settle in a transaction of its own, where something is due."""
    with database.read() as connection:
        due = is_due(connection, environment, now)
    if due:
        with database.write(environment) as connection:
            settle(connection, environment, now)


def settle_hit(connection: Connection, environment: Environment, hit_id: int, now: dt.datetime) -> None:
    """Make the money held for one HIT fit what can still be earned on it.

    Before its expiry that is every assignment not yet decided; after it, those submitted and those still under
    a running lease. Holding more (after an extension) raises InsufficientFunds where the balance is too small.
    A HIT on which nothing is open is disposed of 120 days after its expiry.
    """
    hit = connection.execute(_HIT, {"own": hit_id}).one()
    work = connection.execute(_WORK, {"own": hit_id, "now": now}).one()
    disposed_at = hit.expires_at + DISPOSED_AFTER
    settle_at: dt.datetime | None
    if hit.deleted_at is not None:
        needed, settle_at = 0, None
    elif hit.expires_at > now:
        needed, settle_at = work.undecided + hit.slots_left, hit.expires_at
    else:
        needed = work.undecided + work.leases
        settle_at = work.last_deadline or max(disposed_at, work.last_approval or disposed_at)
    values: dict[str, object] = {"held_slots": needed}
    if settle_at is not None and settle_at <= now and not needed:
        values["deleted_at"], settle_at = now, None
    change = (needed - hit.held_slots) * hit.reward_cents
    if change > 0:
        accounts.hold(connection, environment, hit_id, change, now)
    else:
        accounts.release(connection, environment, hit_id, -change, now)
    connection.execute(update(Hit).where(Hit.id == hit_id).values(values | {"settle_at": settle_at}))


def change_type(
    connection: Connection, environment: Environment, hit_id: int, hit_type: TypeRow, now: dt.datetime
) -> None:
    """Give a HIT another type, and hold what that pays; InsufficientFunds where the balance is too small."""
    settle_hit(connection, environment, hit_id, now)
    hit = connection.execute(_HIT, {"own": hit_id}).one()
    change = hit.held_slots * (hit_type.values.reward_cents - hit.reward_cents)
    if change > 0:
        accounts.hold(connection, environment, hit_id, change, now)
    else:
        accounts.release(connection, environment, hit_id, -change, now)
    connection.execute(update(Hit).where(Hit.id == hit_id).values(hit_type_id=hit_type.id))


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
