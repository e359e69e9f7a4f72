"""Assignments as the requester sees and decides them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, insert, select, update

from mitl.crowd_server.store import accounts
from mitl.crowd_server.store.database import Wide, every, first
from mitl.crowd_server.store.models import Assignment, AssignmentState, Bonus, Hit, HitType, Worker
from mitl.records import Environment


@dataclass(frozen=True, slots=True)
class AssignmentRow:
    """A submitted assignment."""

    id: int
    mturk_id: str
    worker: str
    hit_id: int
    hit: str
    state: AssignmentState
    accepted_at: dt.datetime
    deadline_at: dt.datetime
    submitted_at: dt.datetime
    auto_approve_at: dt.datetime
    decided_at: dt.datetime | None
    feedback: str
    answer: str
    reward_cents: int


@dataclass(frozen=True, slots=True)
class BonusRow:
    """A bonus as granted."""

    id: int
    worker: str
    assignment: str
    cents: int
    reason: str
    granted_at: dt.datetime


_COLUMNS = (
    Assignment.id,
    Assignment.mturk_id,
    Worker.mturk_id,
    Assignment.hit_id,
    Hit.mturk_id,
    Assignment.state,
    Assignment.accepted_at,
    Assignment.deadline_at,
    Assignment.submitted_at,
    Assignment.auto_approve_at,
    Assignment.decided_at,
    Assignment.feedback,
    Assignment.answer,
    HitType.reward_cents,
)
_SELECT: Wide = (
    select(*_COLUMNS)
    .join(Worker, Worker.id == Assignment.worker_id)
    .join(Hit, Hit.id == Assignment.hit_id)
    .join(HitType, HitType.id == Hit.hit_type_id)
)

_FIND = _SELECT.where(
    Assignment.mturk_id == bindparam("mturk_id"),
    Assignment.environment == bindparam("environment"),
    Assignment.submitted_at.is_not(None),
)
_OF_HIT = (
    _SELECT.where(
        Assignment.hit_id == bindparam("hit_id"),
        Assignment.id > bindparam("after"),
        Assignment.state.in_(bindparam("states", expanding=True)),
    )
    .order_by(Assignment.id)
    .limit(bindparam("limit"))
)
_DROP_HOLD = update(Hit).where(Hit.id == bindparam("own")).values(held_slots=Hit.held_slots - 1)
_DECIDE = (
    update(Assignment)
    .where(Assignment.id == bindparam("own"))
    .values(state=bindparam("to"), feedback=bindparam("why"), decided_at=bindparam("now"))
)


def list_of_hit(
    connection: Connection, hit_id: int, *, states: Sequence[AssignmentState], after: int, limit: int
) -> list[AssignmentRow]:
    """A HIT's assignments in these states, oldest first, from the one after id ``after``."""
    return every(connection, AssignmentRow, _OF_HIT, hit_id=hit_id, after=after, states=states, limit=limit)


def find(connection: Connection, environment: Environment, mturk_id: str) -> AssignmentRow | None:
    """The submitted assignment of this id."""
    return first(connection, AssignmentRow, _FIND, mturk_id=mturk_id, environment=environment)


def latest_of_type(connection: Connection, hit_type_id: int, *, limit: int) -> list[AssignmentRow]:
    """The submissions of a HIT type that were accepted last, latest first."""
    wanted = (
        _SELECT.where(Hit.hit_type_id == hit_type_id, Assignment.submitted_at.is_not(None))
        .order_by(Assignment.id.desc())
        .limit(limit)
    )
    return every(connection, AssignmentRow, wanted)


def find_row(connection: Connection, own_id: int) -> AssignmentRow | None:
    """The submitted assignment of this row, of either environment."""
    wanted = _SELECT.where(Assignment.id == own_id, Assignment.submitted_at.is_not(None))
    return first(connection, AssignmentRow, wanted)


def is_known(connection: Connection, environment: Environment, mturk_id: str) -> bool:
    """Whether a worker accepted an assignment of this id, submitted or not."""
    row = connection.execute(
        select(Assignment.id).where(Assignment.mturk_id == mturk_id, Assignment.environment == environment)
    ).first()
    return row is not None


def approve(
    connection: Connection,
    environment: Environment,
    own: AssignmentRow,
    *,
    feedback: str,
    now: dt.datetime,
) -> None:
    """Owe the reward for this assignment; after a rejection its money has to be set aside anew first."""
    cents = own.reward_cents
    if own.state is AssignmentState.REJECTED:
        accounts.hold(connection, environment, own.hit_id, cents, now)
    else:
        connection.execute(_DROP_HOLD, {"own": own.hit_id})
    accounts.pay(connection, environment, [(own.hit_id, own.id, cents, now)])
    connection.execute(_DECIDE, {"own": own.id, "to": AssignmentState.APPROVED, "why": feedback, "now": now})


def reject(
    connection: Connection,
    environment: Environment,
    own: AssignmentRow,
    *,
    feedback: str,
    now: dt.datetime,
) -> None:
    """Refuse this assignment; its money is free again."""
    connection.execute(_DROP_HOLD, {"own": own.hit_id})
    accounts.release(connection, environment, own.hit_id, own.reward_cents, now)
    connection.execute(_DECIDE, {"own": own.id, "to": AssignmentState.REJECTED, "why": feedback, "now": now})


def add_bonus(
    connection: Connection,
    environment: Environment,
    own: AssignmentRow,
    *,
    cents: int,
    reason: str,
    now: dt.datetime,
) -> None:
    """Owe a bonus; TurkError InsufficientFunds where there is too little."""
    accounts.grant(connection, environment, own.hit_id, own.id, cents, now)
    connection.execute(
        insert(Bonus).values(
            environment=environment, assignment_id=own.id, cents=cents, reason=reason, granted_at=now
        )
    )


def list_bonuses(
    connection: Connection,
    environment: Environment,
    *,
    hit_id: int | None,
    assignment_id: int | None,
    after: int,
    limit: int,
) -> list[BonusRow]:
    """Bonuses granted for this HIT and this assignment where given, oldest first."""
    wanted = (
        select(Bonus.id, Worker.mturk_id, Assignment.mturk_id, Bonus.cents, Bonus.reason, Bonus.granted_at)
        .join(Assignment, Assignment.id == Bonus.assignment_id)
        .join(Worker, Worker.id == Assignment.worker_id)
        .where(Bonus.environment == environment, Bonus.id > after)
    )
    if hit_id is not None:
        wanted = wanted.where(Assignment.hit_id == hit_id)
    if assignment_id is not None:
        wanted = wanted.where(Assignment.id == assignment_id)
    return every(connection, BonusRow, wanted.order_by(Bonus.id).limit(limit))
