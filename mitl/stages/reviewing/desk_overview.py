"""Where an environment stands, for the review desk's first page."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from sqlalchemy.orm import Session

from mitl.core.pricing import format_dollars
from mitl.db.store import answers as answer_store
from mitl.db.store import desk as desk_store
from mitl.db.store import journal, open_work
from mitl.db.store.columns import answer_columns
from mitl.db.store.desk import Arrivals
from mitl.judgements.conduct import gold_interval
from mitl.judgements.gold_records import GoldRecord
from mitl.records import Decision, Environment, PairRole
from mitl.stages.reviewing.habits import Habits

HOUR = dt.timedelta(hours=1)
_US = dt.timedelta(microseconds=1)
HOURS = 24
"""Shown one by one."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How many controls of one kind were passed, with the 90 % interval of the rate."""

    name: str
    record: GoldRecord
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Hour:
    """Answers that came in one hour."""

    begins: dt.datetime
    answers: int


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything on the first page."""

    golds: tuple[Rate, ...]
    """All controls, those that match, those that do not."""
    withdrawn: int
    """Controls that good workers fail."""
    queued: int
    oldest: dt.datetime | None
    """When the submission that waits longest came."""
    submissions: int
    answers: int
    last_hour: int
    """Answers within the hour before now."""
    latest: dt.datetime | None
    hours: tuple[Hour, ...]
    """The last day, oldest first; the last one is the hour that runs."""
    workers: int
    excluded: int
    decisions: Mapping[Decision, int]
    hits_out: int
    to_come: int
    """Submissions that posted HITs still wait for."""
    again: int
    """HITs that have to be asked again."""
    money: str
    """In words."""


def overview(session: Session, environment: Environment, now: dt.datetime, known: Habits) -> Overview:
    """The state of the environment at this time."""
    people = desk_store.worker_submissions(session, environment)
    arrived = desk_store.arrivals(session, environment)
    work = open_work.open_work(session, environment)
    counts = answer_store.decision_counts(session, environment)
    answers = answer_columns(session, environment)
    by_hour, last_hour = _recent(session, environment, answers, now)
    return Overview(
        golds=_rates(known.golds.by_role),
        withdrawn=len(known.golds.withdrawn),
        queued=counts.get(Decision.QUEUED, 0),
        oldest=arrived.oldest_queued,
        submissions=arrived.submissions,
        answers=known.answers,
        last_hour=last_hour,
        latest=arrived.latest,
        hours=by_hour,
        workers=len(people),
        excluded=sum(one.excluded for one in people),
        decisions={decision: counts[decision] for decision in Decision if counts.get(decision)},
        hits_out=work.hits,
        to_come=work.assignments,
        again=len(open_work.hits_to_replace(session, environment, answers)),
        money=_money(session, environment, arrived, held_cents=work.held_cents),
    )


def _rates(controls: Mapping[PairRole, GoldRecord]) -> tuple[Rate, ...]:
    kinds = (
        ("all controls", (PairRole.GOLD_POSITIVE, PairRole.GOLD_NEGATIVE)),
        ("fit the image", (PairRole.GOLD_POSITIVE,)),
        ("do not fit", (PairRole.GOLD_NEGATIVE,)),
    )
    found = []
    for name, roles in kinds:
        given = [controls[role] for role in roles]
        record = GoldRecord(sum(one.passes for one in given), sum(one.golds for one in given))
        found.append(Rate(name, record, *gold_interval(record)))
    return tuple(found)


def _recent(
    session: Session, environment: Environment, every: pd.DataFrame, now: dt.datetime
) -> tuple[tuple[Hour, ...], int]:
    """The last hours with their answers, oldest first, and how many came within the hour before now."""
    begins = now.replace(minute=0, second=0, microsecond=0) - (HOURS - 1) * HOUR
    rows, at = desk_store.submitted_since(session, environment, begins)
    of = every["assignment"].to_numpy()
    answers = np.searchsorted(of, rows, "right") - np.searchsorted(of, rows)
    until = (now - begins) // _US
    in_time = at <= until
    counts = np.bincount(at[in_time] // (HOUR // _US), answers[in_time], HOURS).astype(int).tolist()
    within = in_time & (at > until - HOUR // _US)
    hours = tuple(Hour(begins + place * HOUR, count) for place, count in enumerate(counts))
    return hours, int(answers[within].sum())


def _money(session: Session, environment: Environment, arrived: Arrivals, *, held_cents: int) -> str:
    """What was paid, what is promised, and what of it the queue decides."""
    spent = journal.spent(session, environment)
    fees = spent.get("fee", 0)
    paid = sum(spent.values()) - fees
    parts = [f"{format_dollars(paid)} is paid for {_count(arrived.approved, 'submission')}"]
    if fees:
        parts[0] += f", and {format_dollars(fees)} in fees"
    if held_cents:
        parts.append(f"{format_dollars(held_cents)} is promised for work that is out or not decided")
    if arrived.oldest_queued is not None or arrived.queued_cents:
        parts.append(f"the queue decides about {format_dollars(arrived.queued_cents)}")
    return "; ".join(parts) + "."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
