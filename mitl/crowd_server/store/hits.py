"""HITs, each with its type and what its assignments do, one by one and in lists."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, bindparam, case, exists, func, insert, or_, select, update

from mitl.crowd_server.protocol.ids import entity_id
from mitl.crowd_server.store import accounts
from mitl.crowd_server.store.database import Wide, new_id
from mitl.crowd_server.store.hit_types import COLUMNS as TYPE_COLUMNS
from mitl.crowd_server.store.hit_types import TypeRow, type_row
from mitl.crowd_server.store.models import Assignment, AssignmentState, Hit, HitQuestion, HitType
from mitl.records import Environment


@dataclass(frozen=True, slots=True)
class HitRow:
    """A HIT with its type and what its assignments do at one moment."""

    id: int
    mturk_id: str
    type: TypeRow
    annotation: str
    max_assignments: int
    slots_left: int
    reviewing: bool
    created_at: dt.datetime
    expires_at: dt.datetime
    deleted_at: dt.datetime | None
    pending: int
    completed: int

    @property
    def undecided(self) -> int:
        """Submitted assignments that wait for a decision."""
        return self.max_assignments - self.slots_left - self.completed

    def status(self, now: dt.datetime) -> str:
        """HITStatus, a function of the row and the clock."""
        if self.deleted_at is not None:
            return "Disposed"
        if self.slots_left and self.expires_at > now:
            return "Assignable" if self.slots_left > self.pending else "Unassignable"
        if self.pending:
            return "Unassignable"
        return "Reviewing" if self.reviewing else "Reviewable"


_HIT_COLUMNS = (
    Hit.id,
    Hit.mturk_id,
    Hit.annotation,
    Hit.max_assignments,
    Hit.slots_left,
    Hit.reviewing,
    Hit.created_at,
    Hit.expires_at,
    Hit.deleted_at,
)

SELECT: Wide = select(*_HIT_COLUMNS, *TYPE_COLUMNS).join(HitType, HitType.id == Hit.hit_type_id)
_OF_ID = (Hit.mturk_id == bindparam("mturk_id"), Hit.environment == bindparam("environment"))
_FIND_HIT = SELECT.where(*_OF_ID)
_HIT_KEY = select(Hit.id).where(*_OF_ID)
_QUESTION = select(HitQuestion.xml).where(HitQuestion.hit_id == bindparam("hit_id"))
_FORM = _QUESTION.where(HitQuestion.xml.contains("/QuestionForm.xsd"))
_ADD_HIT, _ADD_QUESTION = insert(Hit), insert(HitQuestion)
_LIVE = and_(Assignment.state == AssignmentState.ACCEPTED, Assignment.deadline_at > bindparam("now"))
_DECIDED = Assignment.decided_at.is_not(None)
_COUNTS = (
    select(Assignment.hit_id, func.count(case((_LIVE, 1))), func.count(case((_DECIDED, 1))))
    .where(Assignment.hit_id.in_(bindparam("hit_ids", expanding=True)))
    .group_by(Assignment.hit_id)
)
"""Statements of every request are built once: SQLAlchemy takes longer to build one than SQLite to run it."""


def add_hit(
    connection: Connection,
    environment: Environment,
    hit_type: TypeRow,
    *,
    question: str,
    annotation: str,
    max_assignments: int,
    lifetime_s: int,
    now: dt.datetime,
) -> HitRow:
    """Post a HIT and set its money aside; TurkError InsufficientFunds where there is too little."""
    mturk_id = entity_id()
    expires_at = now + dt.timedelta(seconds=lifetime_s)
    values: dict[str, Any] = {
        "mturk_id": mturk_id,
        "annotation": annotation,
        "max_assignments": max_assignments,
        "slots_left": max_assignments,
        "reviewing": False,
        "created_at": now,
        "expires_at": expires_at,
        "deleted_at": None,
    }
    kept = {"environment": environment, "hit_type_id": hit_type.id, "held_slots": max_assignments}
    hit_id = new_id(connection.execute(_ADD_HIT, values | kept | {"settle_at": expires_at}))
    connection.execute(_ADD_QUESTION, {"hit_id": hit_id, "xml": question})
    accounts.hold(connection, environment, hit_id, max_assignments * hit_type.values.reward_cents, now)
    return HitRow(id=hit_id, type=hit_type, pending=0, completed=0, **values)


def find_hit(
    connection: Connection, environment: Environment, mturk_id: str, now: dt.datetime
) -> HitRow | None:
    """The HIT of this id, deleted or not."""
    return next(iter(rows(connection, _FIND_HIT, now, mturk_id=mturk_id, environment=environment)), None)


def hit_key(connection: Connection, environment: Environment, mturk_id: str) -> int | None:
    """The row of the HIT of this id."""
    return connection.execute(
        _HIT_KEY, {"mturk_id": mturk_id, "environment": environment}
    ).scalar_one_or_none()


def is_promised(connection: Connection, hit_id: int, now: dt.datetime) -> bool:
    """Whether somebody has this HIT, or submitted it and may still be paid for it."""
    open_states = (AssignmentState.SUBMITTED, AssignmentState.REJECTED)
    wanted = select(Assignment.id).where(
        Assignment.hit_id == hit_id,
        or_(
            Assignment.state.in_(open_states),
            and_(Assignment.state == AssignmentState.ACCEPTED, Assignment.deadline_at > now),
        ),
    )
    return connection.execute(wanted.limit(1)).first() is not None


def question(connection: Connection, hit_id: int) -> str:
    """The question XML, as posted."""
    return connection.execute(_QUESTION, {"hit_id": hit_id}).scalar_one()


def form(connection: Connection, hit_id: int) -> str | None:
    """The question XML where it speaks of QuestionForm; few HITs have one, so that others need not be read."""
    return connection.execute(_FORM, {"hit_id": hit_id}).scalar_one_or_none()


def set_expiration(connection: Connection, hit_id: int, expires_at: dt.datetime) -> None:
    """Move a HIT's expiry; the caller settles its money."""
    connection.execute(update(Hit).where(Hit.id == hit_id).values(expires_at=expires_at))


def set_reviewing(connection: Connection, hit_id: int, reviewing: bool) -> None:
    """Set or lift the requester's own marker."""
    connection.execute(update(Hit).where(Hit.id == hit_id).values(reviewing=reviewing))


def add_slots(connection: Connection, hit_id: int, count: int) -> None:
    """Ask for more assignments; the caller settles the HIT's money."""
    connection.execute(
        update(Hit)
        .where(Hit.id == hit_id)
        .values(max_assignments=Hit.max_assignments + count, slots_left=Hit.slots_left + count)
    )


def delete(connection: Connection, hit_id: int, now: dt.datetime) -> None:
    """Dispose of a HIT; its rows stay."""
    connection.execute(update(Hit).where(Hit.id == hit_id).values(deleted_at=now))


def rows(connection: Connection, wanted: Wide, now: dt.datetime, **parameters: object) -> list[HitRow]:
    """The HITs that a narrowing of ``SELECT`` finds, with what their assignments do now."""
    found_rows = connection.execute(wanted, parameters).all()
    counts = _counts(connection, [row[0] for row in found_rows], now)
    split = len(_HIT_COLUMNS)
    records = []
    for row in found_rows:
        own = dict(zip((column.key for column in _HIT_COLUMNS), row[:split], strict=True))
        pending, completed = counts.get(own["id"], (0, 0))
        records.append(HitRow(**own, type=type_row(tuple(row[split:])), pending=pending, completed=completed))
    return records


def _counts(connection: Connection, hit_ids: Sequence[int], now: dt.datetime) -> dict[int, tuple[int, int]]:
    """Live leases and decided assignments of these HITs."""
    if not hit_ids:
        return {}
    rows = connection.execute(_COUNTS, {"hit_ids": hit_ids, "now": now})
    return {hit_id: (pending, completed) for hit_id, pending, completed in rows}


def list_hits(
    connection: Connection, environment: Environment, *, after: int, limit: int, now: dt.datetime
) -> list[HitRow]:
    """HITs that are not deleted, oldest first, from the one after id ``after``."""
    wanted = SELECT.where(Hit.environment == environment, Hit.id > after, Hit.deleted_at.is_(None))
    return rows(connection, wanted.order_by(Hit.id).limit(limit), now)


def list_of_type(
    connection: Connection, hit_type_id: int, *, after: int, limit: int, now: dt.datetime
) -> list[HitRow]:
    """HITs of a HIT type, deleted ones too, oldest first."""
    wanted = SELECT.where(Hit.hit_type_id == hit_type_id, Hit.id > after)
    return rows(connection, wanted.order_by(Hit.id).limit(limit), now)


def list_reviewable(
    connection: Connection,
    environment: Environment,
    *,
    hit_type_id: int | None,
    reviewing: bool,
    after: int,
    limit: int,
    now: dt.datetime,
) -> list[HitRow]:
    """HITs on which no further work will come, marked as being reviewed or not."""
    lease = exists().where(
        Assignment.hit_id == Hit.id,
        Assignment.state == AssignmentState.ACCEPTED,
        Assignment.deadline_at > now,
    )
    wanted = SELECT.where(
        Hit.environment == environment,
        Hit.id > after,
        Hit.deleted_at.is_(None),
        Hit.reviewing.is_(reviewing),
        or_(Hit.slots_left == 0, Hit.expires_at <= now),
        ~lease,
    )
    if hit_type_id is not None:
        wanted = wanted.where(Hit.hit_type_id == hit_type_id)
    return rows(connection, wanted.order_by(Hit.id).limit(limit), now)


def list_requiring(
    connection: Connection,
    environment: Environment,
    mention: str,
    *,
    after: int,
    limit: int,
    now: dt.datetime,
) -> list[HitRow]:
    """HITs that are not deleted and whose type's requirements hold this text."""
    wanted = SELECT.where(
        Hit.environment == environment,
        Hit.id > after,
        Hit.deleted_at.is_(None),
        HitType.requirements.contains(mention, autoescape=True),
    )
    return rows(connection, wanted.order_by(Hit.id).limit(limit), now)
