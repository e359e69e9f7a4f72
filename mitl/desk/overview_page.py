"""The desk's first page, and the few numbers that open pages ask for to stay true."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from mitl.campaign.kinds import to_ask_again
from mitl.core.pricing import format_dollars
from mitl.crowd.context import Context
from mitl.db.store import answers as answer_store
from mitl.db.store import desk as desk_store
from mitl.db.store import journal, open_work
from mitl.db.store.answer_sheets import answers_of
from mitl.db.store.desk import Arrivals
from mitl.desk import words
from mitl.desk.desk import Desk
from mitl.judgements.conduct import gold_interval
from mitl.judgements.gold_records import GoldRecord
from mitl.records import Decision, PairRole, several
from mitl.records.frames import Columns
from mitl.stages.reviewing.evidence import Habits

HOUR = dt.timedelta(hours=1)
_US = dt.timedelta(microseconds=1)
HOURS = 24
"""Shown one by one."""


@dataclass(frozen=True, slots=True)
class PassRate:
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

    golds: tuple[PassRate, ...]
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
    again: Mapping[str, int]
    """Command → HITs that it has to ask again."""
    money: str
    """In words."""


def overview(context: Context, known: Habits) -> Overview:
    """The state of the environment now."""
    session, environment = context.session, context.environment
    people = desk_store.worker_submissions(session, environment)
    arrived = desk_store.arrivals(session, environment)
    work = open_work.open_work(session, environment)
    counts = answer_store.decision_counts(session, environment)
    answers = answers_of(session, environment)
    by_hour, last_hour = _recent(context, answers)
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
        again={command: len(hits) for command, hits in to_ask_again(session, environment, answers).items()},
        money=_money(context, arrived, held_cents=work.held_cents),
    )


def _rates(controls: Mapping[PairRole, GoldRecord]) -> tuple[PassRate, ...]:
    kinds = (
        ("all controls", (PairRole.GOLD_POSITIVE, PairRole.GOLD_NEGATIVE)),
        ("matches", (PairRole.GOLD_POSITIVE,)),
        ("non-matches", (PairRole.GOLD_NEGATIVE,)),
    )
    found = []
    for name, roles in kinds:
        given = [controls[role] for role in roles]
        record = GoldRecord(sum(one.passes for one in given), sum(one.golds for one in given))
        found.append(PassRate(name, record, *gold_interval(record)))
    return tuple(found)


def _recent(context: Context, every: Columns) -> tuple[tuple[Hour, ...], int]:
    """The last hours with their answers, oldest first, and how many came within the hour before now."""
    now = context.now()
    begins = now.replace(minute=0, second=0, microsecond=0) - (HOURS - 1) * HOUR
    rows, at = desk_store.submitted_since(context.session, context.environment, begins)
    of = np.asarray(every["assignment"])
    answers = np.searchsorted(of, rows, "right") - np.searchsorted(of, rows)
    until = (now - begins) // _US
    in_time = at <= until
    counts = np.bincount(at[in_time] // (HOUR // _US), answers[in_time], HOURS).astype(int).tolist()
    within = in_time & (at > until - HOUR // _US)
    hours = tuple(Hour(begins + place * HOUR, count) for place, count in enumerate(counts))
    return hours, int(answers[within].sum())


def _money(context: Context, arrived: Arrivals, *, held_cents: int) -> str:
    """What was paid, what is promised, and what of it the queue decides."""
    spent = journal.spent(context.session, context.environment)
    fees = spent.get("fee", 0)
    paid = sum(spent.values()) - fees
    parts = [f"{format_dollars(paid)} is paid for {several(arrived.approved, 'submission')}"]
    if fees:
        parts[0] += f", and {format_dollars(fees)} in fees"
    if held_cents:
        parts.append(f"{format_dollars(held_cents)} is promised for work that is out or not decided")
    if arrived.oldest_queued is not None or arrived.queued_cents:
        parts.append(f"the queue decides about {format_dollars(arrived.queued_cents)}")
    return "; ".join(parts) + "."


WAIT_S = 5.0
"""For the server's answer, before the page says that the decisions are still on their way."""


def first(desk: Desk, request: Request) -> Response:
    """``/``: gold pass rate, queue, answers an hour, money."""
    with desk.reading() as context:
        frame = desk.frame(context)
        people = desk.crowd(context, frame)
        view = overview(context, people.habits)
    standings = [one.standing for one in people.workers]
    return desk.page(
        "overview.html.j2",
        frame,
        view=view,
        most=max((hour.answers for hour in view.hours), default=0),
        standings={name: standings.count(name) for name in words.STANDINGS},
        median_s=people.habits.median_s,
        hasty=sum(one.is_under(desk.settings.min_seconds_a_pair) for one in people.workers),
    )


def state(desk: Desk, request: Request) -> Response:
    """``/state``: what a page must know to tell whether it is still true; ``?item=`` asks after a submission."""
    item = request.query_params.get("item", "")
    decision: Decision | None = None
    with desk.reading() as context:
        frame = desk.frame(context)
        if item.isascii() and item.isdigit() and len(item) < 18:
            rows = answer_store.assignments(context.session, desk.environment, rows=[int(item)])
            decision = rows[0].decision if rows else None
    waits = decision in (Decision.QUEUED, Decision.NONE)
    return JSONResponse(
        {
            "mark": frame.mark,
            "queued": frame.queued,
            "item": None if decision is None else "waits" if waits else words.DECISIONS[decision],
        }
    )


def send(desk: Desk, request: Request, fields: dict[str, str]) -> Response:
    """``POST /send``: try again to tell the server what was decided."""
    desk.sender.wake()
    desk.sender.wait(WAIT_S)
    return RedirectResponse("/", 303)


ROUTES = (("/", first), ("/state", state))
FORMS = (("/send", send),)
