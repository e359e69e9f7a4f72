"""HITs, each with its type and what its assignments do, one by one and in lists."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, case, exists, func, insert, or_, select

from mitl.crowd_server.protocol.ids import entity_id
from mitl.crowd_server.store import accounts
from mitl.crowd_server.store.database import Books, Portion, Wide, add_row, change_row, first
from mitl.crowd_server.store.models import (
    IS_LIVE,
    AssignmentState,
    CrowdAssignment,
    CrowdHit,
    HitQuestion,
    HitType,
)
from mitl.db.base import columns


@dataclass(frozen=True, slots=True)
class TypeValues:
    """What makes one HIT type differ from another."""

    title: str
    description: str
    keywords: str
    reward_cents: int
    duration_s: int
    auto_approval_s: int
    requirements: str


@dataclass(frozen=True, slots=True)
class TypeRow(TypeValues):
    """A HIT type as kept."""

    id: int
    mturk_id: str
    group_id: str


_TYPE: Wide = select(*columns(TypeRow, HitType))
_FIND_TYPE = _TYPE.where(
    HitType.mturk_id == bindparam("mturk_id"), HitType.environment == bindparam("environment")
)


def add_type(books: Books, digest: str, values: TypeValues) -> TypeRow:
    """The HIT type of these values, made at its first use."""
    query = _TYPE.where(HitType.environment == books.environment, HitType.digest == digest)
    kept = first(books.connection, TypeRow, query)
    if kept is not None:
        return kept
    row: dict[str, Any] = {"mturk_id": entity_id(), "group_id": entity_id(), **asdict(values)}
    kept_with = {"environment": books.environment, "digest": digest, "created_at": books.now}
    return TypeRow(id=add_row(books.connection, HitType, **row, **kept_with), **row)


def find_type(books: Books, mturk_id: str) -> TypeRow | None:
    """The HIT type of this id."""
    return first(books.connection, TypeRow, _FIND_TYPE, mturk_id=mturk_id, environment=books.environment)


@dataclass(frozen=True, slots=True)
class HitValues:
    """What is kept of a HIT itself, as far as it is shown."""

    id: int
    mturk_id: str
    annotation: str
    max_assignments: int
    slots_left: int
    reviewing: bool
    created_at: dt.datetime
    expires_at: dt.datetime
    deleted_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class HitRow(HitValues):
    """A HIT with its type and what its assignments do at one moment."""

    type: TypeRow
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


_OWN = columns(HitValues, CrowdHit)
# Statements of every request are built once: SQLAlchemy takes longer to build one than SQLite to run it.
_HIT: Wide = select(*_OWN, *_TYPE.selected_columns).join(HitType, HitType.id == CrowdHit.hit_type_id)
_OF_ID = (CrowdHit.mturk_id == bindparam("mturk_id"), CrowdHit.environment == bindparam("environment"))
_FIND_HIT = _HIT.where(*_OF_ID)
_HIT_KEY = select(CrowdHit.id).where(*_OF_ID)
_QUESTION = select(HitQuestion.xml).where(HitQuestion.hit_id == bindparam("hit_id"))
_FORM = _QUESTION.where(HitQuestion.xml.contains("/QuestionForm.xsd"))
_ADD_QUESTION = insert(HitQuestion)
_DECIDED = CrowdAssignment.decided_at.is_not(None)
_COUNTS = (
    select(CrowdAssignment.hit_id, func.count(case((IS_LIVE, 1))), func.count(case((_DECIDED, 1))))
    .where(CrowdAssignment.hit_id.in_(bindparam("hit_ids", expanding=True)))
    .group_by(CrowdAssignment.hit_id)
)


def add_hit(
    books: Books, hit_type: TypeRow, *, question: str, annotation: str, max_assignments: int, lifetime_s: int
) -> HitRow:
    """Post a HIT and set its money aside; TurkError InsufficientFunds where there is too little."""
    expires_at = books.now + dt.timedelta(seconds=lifetime_s)
    values: dict[str, Any] = {
        "mturk_id": entity_id(),
        "annotation": annotation,
        "max_assignments": max_assignments,
        "slots_left": max_assignments,
        "reviewing": False,
        "created_at": books.now,
        "expires_at": expires_at,
        "deleted_at": None,
    }
    kept = {"environment": books.environment, "hit_type_id": hit_type.id, "held_slots": max_assignments}
    hit_id = add_row(books.connection, CrowdHit, **values, **kept, settle_at=expires_at)
    books.connection.execute(_ADD_QUESTION, {"hit_id": hit_id, "xml": question})
    accounts.hold(books, hit_id, max_assignments * hit_type.reward_cents)
    return HitRow(id=hit_id, type=hit_type, pending=0, completed=0, **values)


def find_hit(books: Books, mturk_id: str) -> HitRow | None:
    """The HIT of this id, deleted or not."""
    of_id = {"mturk_id": mturk_id, "environment": books.environment}
    return next(iter(_rows(books, _FIND_HIT, of_id)), None)


def hit_key(books: Books, mturk_id: str) -> int | None:
    """The row of the HIT of this id."""
    return books.connection.scalar(_HIT_KEY, {"mturk_id": mturk_id, "environment": books.environment})


def is_promised(books: Books, hit_id: int, *, lower: bool) -> bool:
    """Whether somebody was paid this HIT's reward, or, where it gets ``lower``, has it or may still be paid for it.

    What was paid is read from the HIT's type, so that this says another sum than the ledger once the type pays another.
    """
    promised = CrowdAssignment.state == AssignmentState.APPROVED
    if lower:
        open_states = (AssignmentState.SUBMITTED, AssignmentState.REJECTED)
        promised = or_(promised, CrowdAssignment.state.in_(open_states), IS_LIVE)
    query = select(CrowdAssignment.id).where(CrowdAssignment.hit_id == hit_id, promised).limit(1)
    return books.connection.scalar(query, {"now": books.now}) is not None


def question(connection: Connection, hit_id: int) -> str:
    """The question XML, as posted."""
    return connection.execute(_QUESTION, {"hit_id": hit_id}).scalar_one()


def form(connection: Connection, hit_id: int) -> str | None:
    """The question XML where it speaks of QuestionForm; few HITs have one, so that others need not be read."""
    return connection.scalar(_FORM, {"hit_id": hit_id})


def change(books: Books, hit_id: int, **values: object) -> None:
    """Move a HIT's expiry, delete it (its rows stay), or ask for more of it; hold or free its money accordingly."""
    change_row(books.connection, CrowdHit, hit_id, **values)
    accounts.settle_hit(books, hit_id)


def set_reviewing(books: Books, hit_id: int, reviewing: bool) -> None:
    """Set or lift the requester's own marker."""
    change_row(books.connection, CrowdHit, hit_id, reviewing=reviewing)


def add_slots(books: Books, hit_id: int, count: int) -> None:
    """Ask for more assignments of a HIT, and hold what they pay."""
    more = {"max_assignments": CrowdHit.max_assignments + count, "slots_left": CrowdHit.slots_left + count}
    change(books, hit_id, **more)


def _rows(books: Books, wanted: Wide, parameters: Mapping[str, object]) -> list[HitRow]:
    """The HITs that a narrowing of ``_HIT`` selects, with what their assignments do now."""
    rows = books.connection.execute(wanted, parameters).all()
    if not rows:
        return []
    those = {"hit_ids": [row[0] for row in rows], "now": books.now}
    counts = {own: doing for own, *doing in books.connection.execute(_COUNTS, those)}
    hits = []
    for row in rows:
        own, hit_type = row[: len(_OWN)], TypeRow(*row[len(_OWN) :])
        values: list[Any] = [*own, hit_type, *counts.get(row[0], (0, 0))]
        hits.append(HitRow(*values))
    return hits


_OF_REQUESTER = (CrowdHit.environment == bindparam("environment"), CrowdHit.deleted_at.is_(None))


def list_hits(books: Books, portion: Portion, *narrowing: ColumnElement[bool]) -> list[HitRow]:
    """HITs that are not deleted, oldest first."""
    query = _HIT.where(*_OF_REQUESTER, *narrowing, CrowdHit.id > portion.after)
    of = {"environment": books.environment, "now": books.now}
    return _rows(books, query.order_by(CrowdHit.id).limit(portion.limit), of)


def list_of_type(books: Books, hit_type_id: int, portion: Portion) -> list[HitRow]:
    """HITs of a HIT type, deleted ones too, oldest first."""
    query = _HIT.where(CrowdHit.hit_type_id == hit_type_id, CrowdHit.id > portion.after)
    return _rows(books, query.order_by(CrowdHit.id).limit(portion.limit), {})


def list_reviewable(
    books: Books, portion: Portion, *, hit_type_id: int | None, reviewing: bool
) -> list[HitRow]:
    """HITs on which no further work will come, marked as being reviewed or not."""
    over = or_(CrowdHit.slots_left == 0, CrowdHit.expires_at <= books.now)
    narrowing = [
        CrowdHit.reviewing.is_(reviewing),
        over,
        ~exists().where(CrowdAssignment.hit_id == CrowdHit.id, IS_LIVE),
    ]
    if hit_type_id is not None:
        narrowing.append(CrowdHit.hit_type_id == hit_type_id)
    return list_hits(books, portion, *narrowing)


def list_requiring(books: Books, mention: str, portion: Portion) -> list[HitRow]:
    """HITs that are not deleted and whose type's requirements hold this text."""
    return list_hits(books, portion, HitType.requirements.contains(mention, autoescape=True))
