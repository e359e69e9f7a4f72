"""Submissions as the requester sees and decides them and as their worker sees them; how long HITs take."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from sqlalchemy import Connection, bindparam, case, exists, select, update
from sqlalchemy.orm import aliased

from mitl.crowd_server.store import accounts
from mitl.crowd_server.store.database import Books, Portion, Prepared, Wide, add_row, every, first
from mitl.crowd_server.store.leases import LeaseRow, OpenGroup
from mitl.crowd_server.store.models import (
    WORK,
    AssignmentState,
    Bonus,
    CrowdAssignment,
    CrowdHit,
    CrowdWorker,
    HitQuestion,
    HitType,
    LateAnswer,
)
from mitl.db.base import columns


@dataclass(frozen=True, slots=True)
class AssignmentRow:
    """A submitted assignment."""

    id: int
    mturk_id: str
    worker_id: int
    worker: str
    hit_id: int
    hit: str
    title: str
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


_SELECT: Wide = (
    select(
        *columns(
            AssignmentRow,
            CrowdAssignment,
            worker=CrowdWorker.mturk_id,
            hit=CrowdHit.mturk_id,
            title=HitType.title,
            reward_cents=HitType.reward_cents,
        )
    )
    .select_from(WORK)
    .join(CrowdWorker)
)
_FIND = _SELECT.where(
    CrowdAssignment.mturk_id == bindparam("mturk_id"),
    CrowdAssignment.environment == bindparam("environment"),
    CrowdAssignment.submitted_at.is_not(None),
)
_OF_HIT = (
    _SELECT.where(
        CrowdAssignment.hit_id == bindparam("hit_id"),
        CrowdAssignment.id > bindparam("after"),
        CrowdAssignment.state.in_(bindparam("states", expanding=True)),
    )
    .order_by(CrowdAssignment.id)
    .limit(bindparam("limit"))
)
_DECIDE = (
    update(CrowdAssignment)
    .where(CrowdAssignment.id == bindparam("own"))
    .values(state=bindparam("to"), feedback=bindparam("why"), decided_at=bindparam("now"))
)


def list_of_hit(
    connection: Connection, hit_id: int, states: Sequence[AssignmentState], portion: Portion
) -> list[AssignmentRow]:
    """A HIT's assignments in these states, oldest first."""
    values = {"hit_id": hit_id, "states": states, "after": portion.after, "limit": portion.limit}
    return every(connection, AssignmentRow, _OF_HIT, **values)


def find(books: Books, mturk_id: str) -> AssignmentRow | None:
    """The submitted assignment of this id."""
    values = {"mturk_id": mturk_id, "environment": books.environment}
    return first(books.connection, AssignmentRow, _FIND, **values)


def latest_of_type(connection: Connection, hit_type_id: int, *, limit: int) -> list[AssignmentRow]:
    """The submissions of a HIT type that were accepted last, latest first."""
    query = _SELECT.where(CrowdHit.hit_type_id == hit_type_id, CrowdAssignment.submitted_at.is_not(None))
    return every(connection, AssignmentRow, query.order_by(CrowdAssignment.id.desc()).limit(limit))


def find_row(connection: Connection, own_id: int) -> AssignmentRow | None:
    """The submitted assignment of this row, of either environment."""
    query = _SELECT.where(CrowdAssignment.id == own_id, CrowdAssignment.submitted_at.is_not(None))
    return first(connection, AssignmentRow, query)


def is_known(books: Books, mturk_id: str) -> bool:
    """Whether a worker accepted an assignment of this id, submitted or not."""
    of_id = (CrowdAssignment.mturk_id == mturk_id, CrowdAssignment.environment == books.environment)
    return books.connection.scalar(select(CrowdAssignment.id).where(*of_id).limit(1)) is not None


def approve(books: Books, own: AssignmentRow, feedback: str) -> None:
    """Owe the reward for this assignment; after a rejection its money has to be set aside again first."""
    if own.state is AssignmentState.REJECTED:
        accounts.hold(books, own.hit_id, own.reward_cents)
    else:
        accounts.drop_slots(books, own.hit_id, 1, own.reward_cents)
    accounts.pay(books, [(own.hit_id, own.id, own.reward_cents, books.now)])
    _decide(books, own, AssignmentState.APPROVED, feedback)


def reject(books: Books, own: AssignmentRow, feedback: str) -> None:
    """Refuse this assignment; its money is free again."""
    accounts.drop_slots(books, own.hit_id, 1, own.reward_cents)
    accounts.hold(books, own.hit_id, -own.reward_cents)
    _decide(books, own, AssignmentState.REJECTED, feedback)


def _decide(books: Books, own: AssignmentRow, state: AssignmentState, feedback: str) -> None:
    decision = {"own": own.id, "to": state, "why": feedback, "now": books.now}
    books.connection.execute(_DECIDE, decision)


def add_bonus(books: Books, own: AssignmentRow, *, cents: int, reason: str) -> None:
    """Owe a bonus; TurkError InsufficientFunds where there is too little."""
    accounts.grant(books, own.hit_id, own.id, cents)
    kept = {"environment": books.environment, "cents": cents, "reason": reason, "granted_at": books.now}
    add_row(books.connection, Bonus, assignment_id=own.id, **kept)


def list_bonuses(
    books: Books, portion: Portion, *, hit_id: int | None, assignment_id: int | None
) -> list[BonusRow]:
    """Bonuses granted for this HIT and this assignment where given, oldest first."""
    query = (
        select(*columns(BonusRow, Bonus, worker=CrowdWorker.mturk_id, assignment=CrowdAssignment.mturk_id))
        .join(CrowdAssignment, CrowdAssignment.id == Bonus.assignment_id)
        .join(CrowdWorker, CrowdWorker.id == CrowdAssignment.worker_id)
        .where(Bonus.environment == books.environment, Bonus.id > portion.after)
    )
    if hit_id is not None:
        query = query.where(CrowdAssignment.hit_id == hit_id)
    if assignment_id is not None:
        query = query.where(CrowdAssignment.id == assignment_id)
    return every(books.connection, BonusRow, query.order_by(Bonus.id).limit(portion.limit))


MAX_LATE = 5
"""Late answers kept for one assignment; more can only be a script's."""
LATE_SHOWN = 100
_RECENT_ASSIGNMENTS = 200
_ENOUGH = 5


@dataclass(frozen=True, slots=True)
class WorkRow:
    """One submission as its worker sees it."""

    bonuses: tuple[tuple[int, str], ...]
    """Cents and the requester's reason, oldest first."""
    title: str
    reward_cents: int
    state: AssignmentState
    submitted_at: dt.datetime
    auto_approve_at: dt.datetime
    feedback: str


@dataclass(frozen=True, slots=True)
class LateWork:
    """Answers that came after their time."""

    title: str
    reward_cents: int
    received_at: dt.datetime
    counted: str
    """Why nothing more is to be paid for it: what the worker sent for this assignment later counts; else empty."""


_SUBMISSIONS: Wide = (
    select(
        *columns(
            WorkRow,
            CrowdAssignment,
            bonuses=CrowdAssignment.id,
            title=HitType.title,
            reward_cents=HitType.reward_cents,
        )
    )
    .select_from(WORK)
    .where(CrowdAssignment.worker_id == bindparam("me"), CrowdAssignment.submitted_at.is_not(None))
    .order_by(CrowdAssignment.submitted_at.desc(), CrowdAssignment.id.desc())
    .offset(bindparam("skipped"))
    .limit(bindparam("most"))
)
_BONUSES = (
    select(Bonus.assignment_id, Bonus.cents, Bonus.reason)
    .join(CrowdAssignment, CrowdAssignment.id == Bonus.assignment_id)
    .where(CrowdAssignment.worker_id == bindparam("me"))
    .order_by(Bonus.id)
)
_later = aliased(LateAnswer)
_SENT_AGAIN = exists().where(_later.assignment_id == CrowdAssignment.id, _later.id > LateAnswer.id)
COUNTED = case(
    (CrowdAssignment.submitted_at.is_not(None), "submitted since"), (_SENT_AGAIN, "sent again"), else_=""
)
_LATE = (
    select(HitType.title, HitType.reward_cents, LateAnswer.received_at, COUNTED)
    .select_from(WORK)
    .join(LateAnswer)
    .where(CrowdAssignment.worker_id == bindparam("me"))
    .order_by(LateAnswer.id.desc())
    .limit(LATE_SHOWN + 1)
)
# Without the environment, so that the table is read from its end and not by an index that needs sorting.
_TIMES = (
    select(CrowdHit.hit_type_id, CrowdAssignment.accepted_at, CrowdAssignment.submitted_at)
    .join(CrowdHit, CrowdHit.id == CrowdAssignment.hit_id)
    .where(CrowdAssignment.submitted_at.is_not(None))
    .order_by(CrowdAssignment.id.desc())
    .limit(_RECENT_ASSIGNMENTS)
)
_QUESTION = select(HitQuestion.xml).join(CrowdHit).where(CrowdHit.mturk_id == bindparam("of_hit"))
_LATEST_HIT = Prepared(
    select(CrowdHit.id)
    .select_from(WORK)
    .join(CrowdWorker)
    .where(
        CrowdWorker.mturk_id == bindparam("me"),
        HitType.title == bindparam("title"),
        CrowdAssignment.submitted_at.is_not(None),
    )
    .order_by(CrowdAssignment.id.desc())
    .limit(1)
)


def submissions(connection: Connection, worker_id: int, part: slice) -> list[WorkRow]:
    """A part of a worker's submissions, newest first, each with its bonuses."""
    bonuses: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
    for assignment_id, cents, reason in connection.execute(_BONUSES, {"me": worker_id}):
        bonuses[assignment_id].append((cents, reason))
    values = {"me": worker_id, "skipped": part.start, "most": part.stop - part.start}
    rows = connection.execute(_SUBMISSIONS, values)
    return [WorkRow(tuple(bonuses[row[0]]), *row[1:]) for row in rows]


def late_answers(connection: Connection, worker_id: int) -> list[LateWork]:
    """What of a worker's came too late, newest first; one more than ``LATE_SHOWN`` where there are more."""
    return every(connection, LateWork, _LATE, me=worker_id)


def keep_late(connection: Connection, assignment_id: int, answer: str, now: dt.datetime) -> None:
    """Keep answers that came after their time; the same again, or more than a person sends, is not kept."""
    of_assignment = LateAnswer.assignment_id == assignment_id
    kept = connection.scalars(select(LateAnswer.answer).where(of_assignment)).all()
    if answer not in kept and len(kept) < MAX_LATE:
        add_row(connection, LateAnswer, assignment_id=assignment_id, answer=answer, received_at=now)


def is_late_kept(connection: Connection, assignment_id: int) -> bool:
    """Whether a late answer of an assignment is kept."""
    of_assignment = LateAnswer.assignment_id == assignment_id
    return connection.scalar(select(LateAnswer.id).where(of_assignment).limit(1)) is not None


def latest_hit(connection: Connection, lease: LeaseRow) -> int | None:
    """The HIT that a lease's worker answered last under the title of its own; None before the first."""
    return first(connection, int, _LATEST_HIT, me=lease.worker, title=lease.title)


_STATED = re.compile(r"\babout (?:(an?|one)|([0-9]{1,3})) minutes?\b")
_BY_PEOPLE_S = 20
_LOOKED_AT = 20
"""Groups whose page is read for what it says; more are never on one list."""


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    """The time of one HIT."""

    seconds: int
    is_measured: bool
    """Whether half of the latest submissions took no longer; else the requester says so."""

    def cents_an_hour(self, reward_cents: int) -> int:
        """What an hour of such HITs pays, rounded down."""
        return reward_cents * 3600 // max(1, self.seconds)


_RENEWED_AFTER_S = 10.0


class UsualTimes:
    """How long people take for HITs of each type, looked up again every ten seconds at most.

    Each page shows it, and the submissions of a moment hardly move the median of two hundred.
    """

    def __init__(self) -> None:
        self._seconds: Mapping[int, int] = {}
        self._until = 0.0
        self._stated: dict[str, TimeEstimate | None] = {}
        """What the pages of HITs say; a HIT's question never changes."""

    def of_groups(self, connection: Connection, groups: Sequence[OpenGroup]) -> Mapping[int, TimeEstimate]:
        """The estimates of listed groups by the row of their type, where there is one."""
        shown = (
            (group, self.of_hit(connection, group.hit_type_id, group.sample)) for group in groups[:_LOOKED_AT]
        )
        return {group.hit_type_id: estimate for group, estimate in shown if estimate is not None}

    def of_hit(self, connection: Connection, hit_type_id: int, hit: str) -> TimeEstimate | None:
        """The estimate of one HIT: as measured for its type, else as its page says."""
        if time.monotonic() > self._until:
            self._seconds, self._until = _medians(connection), time.monotonic() + _RENEWED_AFTER_S
        seconds = self._seconds.get(hit_type_id, 0)
        if seconds >= _BY_PEOPLE_S:  # times that only scripts have tell a person nothing
            return TimeEstimate(seconds, True)
        stated = self._stated
        if hit not in stated:
            if len(stated) >= _MOST_STATED:
                stated = self._stated = {}  # others may still read the old one
            stated[hit] = _stated(connection.execute(_QUESTION, {"of_hit": hit}).scalar_one())
        return stated[hit]


_MOST_STATED = 10_000


def _medians(connection: Connection) -> dict[int, int]:
    """The median seconds of the latest submissions by HIT type, where there are five or more."""
    taken: defaultdict[int, list[float]] = defaultdict(list)
    for hit_type_id, accepted_at, submitted_at in connection.execute(_TIMES):
        assert submitted_at is not None
        taken[hit_type_id].append((submitted_at - accepted_at).total_seconds())
    return {type_id: round(median(times)) for type_id, times in taken.items() if len(times) >= _ENOUGH}


def _stated(question_xml: str) -> TimeEstimate | None:
    match = _STATED.search(question_xml)
    if match is None:
        return None
    minutes = 1 if match[1] else int(match[2])
    return TimeEstimate(60 * minutes, False) if minutes else None
