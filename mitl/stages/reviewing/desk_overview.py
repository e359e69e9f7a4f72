"""Where an environment stands, for the review desk's first page."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.db.store import answers as answer_store
from mitl.db.store import desk as desk_store
from mitl.db.store import hits as hit_store
from mitl.db.store import journal, open_work
from mitl.db.store.answers import AssignmentRow
from mitl.db.store.desk import AnswerRow, Arrival
from mitl.hits.pricing import format_dollars
from mitl.judgements.conduct import gold_interval
from mitl.judgements.gold_records import GoldRecord
from mitl.records import Decision, Environment, PairRole
from mitl.records.gold_rule import GoldRule
from mitl.stages.harvesting.golds import GoldState
from mitl.stages.reviewing.habits import Habits

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


def overview(
    session: Session, environment: Environment, now: dt.datetime, rule: GoldRule, known: Habits
) -> Overview:
    """The state of the environment at this time."""
    rows = answer_store.assignments(session, environment)
    queued = [row for row in rows if row.decision is Decision.QUEUED]
    arrived = desk_store.arrivals(session, environment)
    work = open_work.open_work(session, environment)
    times = [one.submitted_at for one in arrived if one.submitted_at is not None]
    counts = answer_store.decision_counts(session, environment)
    return Overview(
        golds=_rates(known.controls, rule, known.golds),
        withdrawn=len(known.golds.withdrawn),
        queued=len(queued),
        oldest=min((row.submitted_at for row in queued if row.submitted_at is not None), default=None),
        submissions=len(rows),
        answers=sum(one.answers for one in arrived),
        last_hour=_between(arrived, now - dt.timedelta(hours=1), now),
        latest=max(times, default=None),
        hours=_hours(arrived, now),
        workers=len({row.worker_id for row in rows}),
        excluded=len({row.worker_id for row in rows if row.excluded}),
        decisions={decision: counts[decision] for decision in Decision if counts.get(decision)},
        hits_out=work.hits,
        to_come=work.assignments,
        again=len(open_work.barren_hits(session, environment)),
        money=_money(session, environment, rows, held_cents=work.held_cents),
    )


def _rates(controls: Sequence[AnswerRow], rule: GoldRule, state: GoldState) -> tuple[Rate, ...]:
    kinds = (
        ("all controls", (PairRole.GOLD_POSITIVE, PairRole.GOLD_NEGATIVE)),
        ("fit the image", (PairRole.GOLD_POSITIVE,)),
        ("do not fit", (PairRole.GOLD_NEGATIVE,)),
    )
    known = {(gold.pair, gold.role) for gold in state.withdrawn}
    found = []
    for name, roles in kinds:
        given = [
            row
            for row in controls
            if row.role in roles and row.label is not None and (row.pair, row.role) not in known
        ]
        passes = sum(rule.passed(row.role, row.label) is True for row in given)
        record = GoldRecord(passes, len(given))
        found.append(Rate(name, record, *gold_interval(record)))
    return tuple(found)


def _between(arrived: Iterable[Arrival], start: dt.datetime, end: dt.datetime) -> int:
    return sum(
        one.answers for one in arrived if one.submitted_at is not None and start < one.submitted_at <= end
    )


def _hours(arrived: Sequence[Arrival], now: dt.datetime) -> tuple[Hour, ...]:
    running = now.replace(minute=0, second=0, microsecond=0)
    begins = [running - dt.timedelta(hours=back) for back in reversed(range(HOURS))]
    counts = dict.fromkeys(begins, 0)
    for one in arrived:
        if one.submitted_at is not None:
            hour = one.submitted_at.replace(minute=0, second=0, microsecond=0)
            if hour in counts:
                counts[hour] += one.answers
    return tuple(Hour(hour, count) for hour, count in counts.items())


def _money(
    session: Session, environment: Environment, rows: Sequence[AssignmentRow], *, held_cents: int
) -> str:
    """What was paid, what is promised, and what of it the queue decides."""
    spent = journal.spent(session, environment)
    fees = spent.get("fee", 0)
    paid = sum(spent.values()) - fees
    rewards = {batch.name: batch.reward_cents for batch in hit_store.batches(session, environment)}
    waiting = [row for row in rows if row.decision is Decision.QUEUED]
    n_paid = sum(row.status == "Approved" for row in rows)
    parts = [f"{format_dollars(paid)} is paid for {_count(n_paid, 'submission')}"]
    if fees:
        parts[0] += f", and {format_dollars(fees)} in fees"
    if held_cents:
        parts.append(f"{format_dollars(held_cents)} is promised for work that is out or not decided")
    if waiting:
        cents = sum(rewards[row.batch] for row in waiting)
        parts.append(f"the queue decides about {format_dollars(cents)}")
    return "; ".join(parts) + "."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
