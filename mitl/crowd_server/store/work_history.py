"""What became of a worker's work, one by one; answers that came too late; how long HITs take."""

from __future__ import annotations

import datetime as dt
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from sqlalchemy import Connection, bindparam, func, insert, select

from mitl.crowd_server.store.database import Wide, every
from mitl.crowd_server.store.leases import GroupRow, LeaseRow
from mitl.crowd_server.store.models import (
    Assignment,
    AssignmentState,
    Bonus,
    Hit,
    HitQuestion,
    HitType,
    LateAnswer,
    Worker,
)

MAX_LATE = 5
"""Late answers kept for one assignment; more can only be a script's."""
_SHOWN = 100
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
class LateRow:
    """Answers that came after their time."""

    title: str
    reward_cents: int
    received_at: dt.datetime


_MINE: Wide = (
    select(
        Assignment.id,
        HitType.title,
        HitType.reward_cents,
        Assignment.state,
        Assignment.submitted_at,
        Assignment.auto_approve_at,
        Assignment.feedback,
    )
    .join(Hit, Hit.id == Assignment.hit_id)
    .join(HitType, HitType.id == Hit.hit_type_id)
    .where(Assignment.worker_id == bindparam("me"), Assignment.submitted_at.is_not(None))
    .order_by(Assignment.submitted_at.desc(), Assignment.id.desc())
    .limit(_SHOWN)
)
_BONUSES = (
    select(Bonus.assignment_id, Bonus.cents, Bonus.reason)
    .join(Assignment, Assignment.id == Bonus.assignment_id)
    .where(Assignment.worker_id == bindparam("me"))
    .order_by(Bonus.id)
)
_LATE = (
    select(HitType.title, HitType.reward_cents, LateAnswer.received_at)
    .join(Assignment, Assignment.id == LateAnswer.assignment_id)
    .join(Hit, Hit.id == Assignment.hit_id)
    .join(HitType, HitType.id == Hit.hit_type_id)
    .where(Assignment.worker_id == bindparam("me"))
    .order_by(LateAnswer.id.desc())
    .limit(_SHOWN)
)
# Without the environment, so that the table is read from its end and not by an index that needs sorting.
_TIMES = (
    select(Hit.hit_type_id, Assignment.accepted_at, Assignment.submitted_at)
    .join(Hit, Hit.id == Assignment.hit_id)
    .where(Assignment.submitted_at.is_not(None))
    .order_by(Assignment.id.desc())
    .limit(_RECENT_ASSIGNMENTS)
)
_QUESTION = (
    select(HitQuestion.xml).join(Hit, Hit.id == HitQuestion.hit_id).where(Hit.mturk_id == bindparam("of_hit"))
)

_LATEST_QUESTION = (
    select(HitQuestion.xml)
    .join(Hit, Hit.id == HitQuestion.hit_id)
    .join(HitType, HitType.id == Hit.hit_type_id)
    .join(Assignment, Assignment.hit_id == Hit.id)
    .join(Worker, Worker.id == Assignment.worker_id)
    .where(
        Worker.mturk_id == bindparam("me"),
        HitType.title == bindparam("title"),
        Assignment.submitted_at.is_not(None),
    )
    .order_by(Assignment.id.desc())
    .limit(1)
)


def submissions(connection: Connection, worker_id: int) -> list[WorkRow]:
    """A worker's newest submissions, newest first, each with its bonuses."""
    bonuses: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
    for assignment_id, cents, reason in connection.execute(_BONUSES, {"me": worker_id}):
        bonuses[assignment_id].append((cents, reason))
    rows = connection.execute(_MINE, {"me": worker_id})
    return [WorkRow(tuple(bonuses[row[0]]), *row[1:]) for row in rows]


def late_answers(connection: Connection, worker_id: int) -> list[LateRow]:
    """What of a worker's came too late, newest first."""
    return every(connection, LateRow, _LATE, me=worker_id)


def keep_late(connection: Connection, assignment_id: int, answer: str, now: dt.datetime) -> None:
    """Keep answers that came after their time; the same again, or more than a person sends, is not kept."""
    own = LateAnswer.assignment_id == assignment_id
    kept = connection.execute(select(LateAnswer.answer).where(own)).scalars().all()
    if answer not in kept and len(kept) < MAX_LATE:
        connection.execute(
            insert(LateAnswer).values(assignment_id=assignment_id, answer=answer, received_at=now)
        )


def late_count(connection: Connection, assignment_id: int) -> int:
    """How many late answers of an assignment are kept."""
    return connection.execute(
        select(func.count()).where(LateAnswer.assignment_id == assignment_id)
    ).scalar_one()


def usual_seconds(connection: Connection) -> dict[int, int]:
    """Half of the latest submissions of a HIT type took no longer than this; only where there are five or more."""
    taken: defaultdict[int, list[float]] = defaultdict(list)
    for hit_type_id, accepted_at, submitted_at in connection.execute(_TIMES):
        assert submitted_at is not None
        taken[hit_type_id].append((submitted_at - accepted_at).total_seconds())
    return {own: round(median(times)) for own, times in taken.items() if len(times) >= _ENOUGH}


def sample_question(connection: Connection, hit: str) -> str:
    """The question XML of the HIT of this id."""
    return connection.execute(_QUESTION, {"of_hit": hit}).scalar_one()


def latest_question(connection: Connection, lease: LeaseRow) -> str | None:
    """The question XML that a lease's worker answered last under the title of its HIT; None before the first."""
    wanted = {"me": lease.worker, "title": lease.title}
    return connection.execute(_LATEST_QUESTION, wanted).scalar_one_or_none()


_STATED = re.compile(r"\babout (?:(an?|one)|([0-9]{1,3})) minutes?\b")
_BY_PEOPLE_S = 20
_LOOKED_AT = 20
"""Groups whose page is read for what it says; more are never on one list."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The time of one HIT."""

    seconds: int
    is_measured: bool
    """Whether half of the latest submissions took no longer; else the requester says so."""

    def cents_an_hour(self, reward_cents: int) -> int:
        """What an hour of such HITs pays, rounded down."""
        return reward_cents * 3600 // max(1, self.seconds)


def estimates(connection: Connection, groups: Sequence[GroupRow]) -> Mapping[int, Estimate]:
    """The estimates of listed groups by the row of their type, where there is one."""
    usual = usual_seconds(connection) if groups else {}
    by_type = {}
    for group in groups[:_LOOKED_AT]:
        measured = _measured(usual, group.hit_type_id)
        if measured is not None:
            by_type[group.hit_type_id] = measured
        elif (stated := _stated(sample_question(connection, group.sample))) is not None:
            by_type[group.hit_type_id] = stated
    return by_type


def estimate(connection: Connection, hit_type_id: int, question_xml: str) -> Estimate | None:
    """The estimate of one HIT, whose question is at hand."""
    measured = _measured(usual_seconds(connection), hit_type_id)
    return _stated(question_xml) if measured is None else measured


def _measured(usual: Mapping[int, int], hit_type_id: int) -> Estimate | None:
    """What people took; times that only scripts have tell a person nothing."""
    seconds = usual.get(hit_type_id, 0)
    return Estimate(seconds, True) if seconds >= _BY_PEOPLE_S else None


def _stated(question_xml: str) -> Estimate | None:
    match = _STATED.search(question_xml)
    if match is None:
        return None
    minutes = 1 if match[1] else int(match[2])
    return Estimate(60 * minutes, False) if minutes else None
