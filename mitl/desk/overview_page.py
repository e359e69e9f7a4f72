"""The desk's first page, and the few numbers that open pages ask for to stay true."""

from __future__ import annotations

import datetime as dt
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from mitl.campaign.kinds import to_ask_again
from mitl.core.paging import number_in
from mitl.core.pricing import format_dollars
from mitl.crowd.context import Context
from mitl.db.store import answers as answer_store
from mitl.db.store import desk as desk_store
from mitl.db.store import journal, open_work
from mitl.db.store.control_sheets import gold_state
from mitl.db.store.desk import SubmissionGroup
from mitl.db.store.worker_tallies import tallies_of
from mitl.desk import words
from mitl.desk.desk import Desk
from mitl.judgements.conduct import gold_interval
from mitl.judgements.gold_records import GoldRecord
from mitl.records import UNDECIDED, Decision, PairRole, several
from mitl.stages.reviewing.evidence import standing

HOUR = dt.timedelta(hours=1)
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
    """Submissions of any kind that came in one hour."""

    begins: dt.datetime
    submissions: int


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
    """On pairs."""
    last_hour: int
    """Submissions within the hour before now."""
    latest: dt.datetime | None
    hours: tuple[Hour, ...]
    """The last day, oldest first; the last one is the hour that runs."""
    median_s: float | None
    """Median of the workers' median active seconds on one pair."""
    hasty: int
    """Workers for whom half of the pairs took less than the floor."""
    standings: Mapping[str, int]
    """Good, poor, unproven or excluded → workers with a submission."""
    decisions: Mapping[Decision, int]
    set_aside: int
    """Submissions, passed or approved, of workers whose answers are not used."""
    hits_out: int
    to_come: int
    """Submissions that posted HITs still wait for."""
    again: Mapping[str, int]
    """Command → HITs that it has to ask again."""
    money: str
    """In words."""


def overview(context: Context, groups: Sequence[SubmissionGroup]) -> Overview:
    """The state of the environment now; answers are read of those workers alone of whom something changed.

    Args:
        groups: all submissions of the environment.
    """
    session, environment = context.session, context.environment
    tallies = tallies_of(session, environment)
    golds = gold_state(session, environment, context.settings.gold_rule)
    excluded = {group.worker: group.excluded for group in groups}
    standings = Counter(standing(golds.record(name), excluded=out) for name, out in excluded.items())
    decisions: Counter[Decision] = Counter()
    for group in groups:
        decisions[group.decision] += group.submissions
    work = open_work.open_work(session, environment)
    by_hour, last_hour = _recent(context)
    medians, floor_s = tallies.median_s.values(), context.settings.min_seconds_a_pair
    waiting = [
        group.first for group in groups if group.decision is Decision.QUEUED and group.first is not None
    ]
    return Overview(
        golds=_rates(golds.by_role),
        withdrawn=len(golds.withdrawn),
        queued=decisions[Decision.QUEUED],
        oldest=min(waiting, default=None),
        submissions=decisions.total(),
        answers=tallies.answers,
        last_hour=last_hour,
        latest=max((group.last for group in groups if group.last is not None), default=None),
        hours=by_hour,
        median_s=statistics.median(medians) if medians else None,
        hasty=sum(median < floor_s for median in medians),
        standings={name: standings[name] for name in words.STANDINGS},
        decisions={decision: decisions[decision] for decision in Decision if decisions[decision]},
        set_aside=sum(count for decision, count in decisions.items() if decision.keeps_answers)
        - sum(
            work.used(golds.record(work.worker)) for work in desk_store.worker_submissions(session, groups)
        ),
        hits_out=work.hits,
        to_come=work.assignments,
        again={command: len(hits) for command, hits in to_ask_again(session, environment, tallies).items()},
        money=_money(context, groups, held_cents=work.held_cents),
    )


def _rates(controls: Mapping[PairRole, GoldRecord]) -> tuple[PassRate, ...]:
    kinds = (
        ("all controls", (PairRole.GOLD_POSITIVE, PairRole.GOLD_NEGATIVE)),
        ("matches", (PairRole.GOLD_POSITIVE,)),
        ("non-matches", (PairRole.GOLD_NEGATIVE,)),
    )
    rates = []
    for name, roles in kinds:
        records = [controls[role] for role in roles]
        record = GoldRecord(sum(one.passes for one in records), sum(one.golds for one in records))
        rates.append(PassRate(name, record, *gold_interval(record)))
    return tuple(rates)


def _recent(context: Context) -> tuple[tuple[Hour, ...], int]:
    """The last hours with their submissions, oldest first, and how many came within the hour before now."""
    now = context.now()
    begins = now.replace(minute=0, second=0, microsecond=0) - (HOURS - 1) * HOUR
    by_hour, recent = desk_store.hourly_submissions(context.session, context.environment, begins, now)
    return tuple(Hour(begins + place * HOUR, by_hour[place]) for place in range(HOURS)), recent


def _money(context: Context, groups: Sequence[SubmissionGroup], *, held_cents: int) -> str:
    """What was paid, what is promised, and what of it the queue decides."""
    spent = journal.spent(context.session, context.environment)
    fees = spent.get("fee", 0)
    paid = sum(spent.values()) - fees
    approved = sum(group.submissions for group in groups if group.status == "Approved")
    parts = [f"{format_dollars(paid)} is paid for {several(approved, 'submission')}"]
    if fees:
        parts[0] += f", and {format_dollars(fees)} in fees"
    if held_cents:
        parts.append(f"{format_dollars(held_cents)} is promised for work that is out or not decided")
    if any(group.decision is Decision.QUEUED for group in groups):
        queued_cents = desk_store.queued_cents(context.session, context.environment)
        parts.append(f"the queue decides about {format_dollars(queued_cents)}")
    return "; ".join(parts) + "."


WAIT_S = 5.0
"""For the server's answer, before the page says that the decisions are still on their way."""


def first(desk: Desk, request: Request) -> Response:
    """``/``: gold pass rate, queue, submissions an hour, money."""
    with desk.reading() as context:
        frame = desk.frame(context)
        view = overview(context, frame.groups)
    return desk.page(
        "overview.html.j2",
        frame,
        view=view,
        most=max((hour.submissions for hour in view.hours), default=0),
    )


def state(desk: Desk, request: Request) -> Response:
    """``/state``: what a page must know to tell whether it is still true; ``?item=`` asks after a submission."""
    item = number_in(request.query_params.get("item", ""))
    decision: Decision | None = None
    with desk.reading() as context:
        frame = desk.frame(context)
        if item is not None:
            rows = answer_store.assignments(context.session, desk.environment, rows=[item])
            decision = rows[0].decision if rows else None
    waits = decision in UNDECIDED
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
