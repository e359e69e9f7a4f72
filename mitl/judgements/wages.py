"""What work has paid an hour: active time that can be believed, wages by wording, and what lifts a worker to a floor.

A page says how long its worker was active. It runs in the worker's browser, so that number is a claim: it is cut to
the time between acceptance and submission and to the time that was allowed. Only where nothing is owed may the claim
stand, since scripted workers answer in no time and claim a person's. Where a page measured nothing, the usual time of
its wording stands in for it when bonuses are reckoned; in the wage figures it is left out.
"""

from __future__ import annotations

import datetime as dt
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

HOUR_MS = 3_600_000
SLOW_FACTOR = 5
"""Times the usual time of its wording from which a submission is worth a look before its time is paid for."""
_ENOUGH = 5
"""Measured submissions of a wording from which its usual time says something about one of them."""


@dataclass(frozen=True, slots=True)
class WorkTime:
    """The time that one submission took."""

    ms: int | None
    """Active milliseconds, at least 1; None where the page measured nothing."""
    limit_ms: int
    """The most that may count."""
    is_doubtful: bool = False
    """Whether the page claimed more than passed between acceptance and submission, or than was allowed."""
    has_clock: bool = True
    """Whether acceptance and submission are known and in that order; else only the allowed time bounds it."""


@dataclass(frozen=True, slots=True)
class PaidWork:
    """One approved submission with its pay."""

    id: int
    worker: str
    batch: str
    template: str
    time: WorkTime
    reward_cents: int
    fee_cents: int
    bonus_cents: int
    compensation_cents: int = 0
    """The part of the bonuses that pays for something else than this work."""


@dataclass(frozen=True, slots=True)
class WorkerPay:
    """One worker over all paid work."""

    worker: str
    submissions: int
    ms: int
    """Active time, stand-ins included."""
    n_stand_in: int
    """Submissions whose time is the usual one of their wording, because their pages measured nothing."""
    n_unknown: int
    """Submissions without any time: nobody's page of that wording measured anything."""
    reward_cents: int
    fee_cents: int
    bonus_cents: int
    compensation_cents: int = 0
    """The part of the bonuses that pays for something else than this work."""

    @property
    def paid_cents(self) -> int:
        """What the worker got for this work."""
        return self.reward_cents + self.bonus_cents - self.compensation_cents

    @property
    def hourly_cents(self) -> int | None:
        """What an hour has paid, rounded down; None where no time is known."""
        return self.paid_cents * HOUR_MS // self.ms if self.ms else None

    def shortfall_cents(self, floor_cents: int) -> int:
        """What is missing to ``floor_cents`` an hour, rounded up: never short of the floor by a part of a cent."""
        return max(0, -(-floor_cents * self.ms // HOUR_MS) - self.paid_cents)


@dataclass(frozen=True, slots=True)
class WageFigures:
    """What an hour of work on one wording has paid by its rewards, over submissions whose pages measured time."""

    template: str
    submissions: int
    measured: int
    n_doubtful: int
    """Pages that claimed more time than they can have taken."""
    median_ms: int | None
    """Active time of a submission."""
    low_cents: int | None
    """10th percentile of the hourly wage; None where nothing was measured."""
    median_cents: int | None
    high_cents: int | None
    """90th percentile."""
    n_under: int
    """Submissions that paid less than the floor."""

    @property
    def under_share(self) -> float | None:
        """From 0 to 1."""
        return self.n_under / self.measured if self.measured else None


def work_time(
    claimed_ms: int | None,
    accepted_at: dt.datetime | None,
    submitted_at: dt.datetime | None,
    allowed_s: int,
    *,
    trusted: bool = False,
) -> WorkTime:
    """The claim of a page, cut to what it can have been.

    Args:
        trusted: only the allowed time cuts the claim.
    """
    allowed = possible = allowed_s * 1000
    has_clock = accepted_at is not None and submitted_at is not None and accepted_at <= submitted_at
    if has_clock:
        assert accepted_at is not None and submitted_at is not None
        possible = max(1, min(allowed, (submitted_at - accepted_at) // dt.timedelta(milliseconds=1)))
    limit = allowed if trusted else possible
    if claimed_ms is None or claimed_ms <= 0:
        return WorkTime(None, limit, has_clock=has_clock)
    return WorkTime(min(claimed_ms, limit), limit, claimed_ms > possible, has_clock)


def usual_ms(work: Iterable[PaidWork]) -> dict[str, int]:
    """Wording → median active time of the submissions whose pages measured it."""
    times = _times(work)
    return {template: round(statistics.median(taken)) for template, taken in times.items()}


def worker_pay(work: Sequence[PaidWork]) -> list[WorkerPay]:
    """Every worker with paid work, by id."""
    usual = usual_ms(work)
    by_worker: dict[str, list[PaidWork]] = defaultdict(list)
    for submission in work:
        by_worker[submission.worker].append(submission)
    return [_pay_of(worker, paid, usual) for worker, paid in sorted(by_worker.items())]


def wage_figures(work: Sequence[PaidWork], floor_cents: int) -> list[WageFigures]:
    """The wages by wording, in order of their names."""
    by_template: dict[str, list[PaidWork]] = defaultdict(list)
    for submission in work:
        by_template[submission.template].append(submission)
    return [figures_of(paid, floor_cents, template) for template, paid in sorted(by_template.items())]


def slow_work(work: Sequence[PaidWork]) -> list[PaidWork]:
    """Submissions that took so much longer than usual that a person should look before that time is paid for."""
    usual = {
        template: round(statistics.median(times))
        for template, times in _times(work).items()
        if len(times) >= _ENOUGH
    }
    return [
        submission
        for submission in work
        if submission.time.ms is not None
        and submission.template in usual
        and submission.time.ms >= SLOW_FACTOR * usual[submission.template]
    ]


def _times(work: Iterable[PaidWork]) -> dict[str, list[int]]:
    by_template: dict[str, list[int]] = defaultdict(list)
    for submission in work:
        if submission.time.ms is not None:
            by_template[submission.template].append(submission.time.ms)
    return by_template


def _pay_of(worker: str, work: Sequence[PaidWork], usual: Mapping[str, int]) -> WorkerPay:
    ms = n_stand_in = n_unknown = 0
    for submission in work:
        if submission.time.ms is not None:
            ms += submission.time.ms
        elif submission.template in usual:
            ms += min(usual[submission.template], submission.time.limit_ms)
            n_stand_in += 1
        else:
            n_unknown += 1
    return WorkerPay(
        worker=worker,
        submissions=len(work),
        ms=ms,
        n_stand_in=n_stand_in,
        n_unknown=n_unknown,
        reward_cents=sum(submission.reward_cents for submission in work),
        fee_cents=sum(submission.fee_cents for submission in work),
        bonus_cents=sum(submission.bonus_cents for submission in work),
        compensation_cents=sum(submission.compensation_cents for submission in work),
    )


def figures_of(work: Sequence[PaidWork], floor_cents: int, template: str = "") -> WageFigures:
    """The wages of these submissions together, whatever their wordings are."""
    measured = [
        (submission.reward_cents, submission.time.ms) for submission in work if submission.time.ms is not None
    ]
    low, middle, high = _tenths([reward * HOUR_MS // ms for reward, ms in measured])
    return WageFigures(
        template=template,
        submissions=len(work),
        measured=len(measured),
        n_doubtful=sum(submission.time.is_doubtful for submission in work),
        median_ms=round(statistics.median(ms for _, ms in measured)) if measured else None,
        low_cents=low,
        median_cents=middle,
        high_cents=high,
        n_under=sum(reward * HOUR_MS < floor_cents * ms for reward, ms in measured),
    )


def _tenths(values: Sequence[int]) -> tuple[int | None, int | None, int | None]:
    """10th percentile, median, 90th percentile, between neighbours in proportion, rounded down."""
    if not values:
        return None, None, None
    if len(values) == 1:
        return values[0], values[0], values[0]
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    return int(tenths[0]), int(tenths[4]), int(tenths[8])
