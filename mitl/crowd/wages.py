"""Paid work with the time that it took, and the wage floor that it is held against."""

from __future__ import annotations

from collections.abc import Sequence

from mitl.core.pricing import format_dollars
from mitl.crowd.paying import APPROVED
from mitl.db.store.ledger import SettledWork
from mitl.judgements.wages import PaidWork, WorkerPay, slow_work, work_time
from mitl.records import Environment, several
from mitl.settings import ASSIGNMENT_DURATION_S, WAGE_FLOOR_CENTS_PER_HOUR, Settings

_NAMED = 5
"""Submissions that a warning names."""


def floor_cents(settings: Settings, environment: Environment, given: int | None = None) -> int:
    """Least pay an hour: as given, else as configured, else the environment's own; 0 is no floor."""
    if given is not None:
        return given
    if settings.wage_floor_cents is not None:
        return settings.wage_floor_cents
    return WAGE_FLOOR_CENTS_PER_HOUR[environment]


def paid_work(settled: Sequence[SettledWork], environment: Environment) -> list[PaidWork]:
    """The approved submissions; what waits for a decision or was refused has no wage.

    The sandbox owes nobody anything, so its pages' claims stand: practice with scripted workers shows what people
    would be paid.
    """
    trusted = environment is Environment.SANDBOX
    return [
        PaidWork(
            id=row.id,
            worker=row.worker,
            batch=row.batch,
            template=row.template,
            time=work_time(
                row.active_ms, row.accepted_at, row.submitted_at, ASSIGNMENT_DURATION_S, trusted=trusted
            ),
            reward_cents=row.reward_cents,
            fee_cents=row.fee_cents,
            bonus_cents=row.bonus_cents,
            compensation_cents=row.compensation_cents,
        )
        for row in settled
        if row.status == APPROVED
    ]


def time_warnings(
    work: Sequence[PaidWork], pay: Sequence[WorkerPay], environment: Environment
) -> tuple[str, ...]:
    """What to know about times that cannot be, are missing, or are far longer than usual."""
    # On the sandbox it is what scripted workers do, and `claims_line` says it.
    doubtful = 0 if environment is Environment.SANDBOX else _doubtful(work)
    clockless = sum(not one.time.has_clock for one in work)
    stand_ins = sum(one.n_stand_in for one in pay)
    unknown = sum(one.n_unknown for one in pay)
    slow = slow_work(work)
    return tuple(
        line
        for count, line in (
            (
                doubtful,
                f"{_pages(doubtful)} claimed more active time than passed between acceptance and submission, or than "
                "was allowed; the shorter time counts",
            ),
            (
                clockless,
                f"{_pages(clockless)} came without usable times of acceptance and submission; the allowed "
                f"{ASSIGNMENT_DURATION_S // 60} minutes bound their active time",
            ),
            (
                stand_ins,
                f"{_pages(stand_ins)} measured no active time; the median of the same wording stands in",
            ),
            (
                unknown,
                f"{_pages(unknown)} have no known time at all; they add to what was paid, not to the hours",
            ),
            (len(slow), _slow_line(slow)),
        )
        if count
    )


def claims_line(work: Sequence[PaidWork], environment: Environment) -> tuple[str, ...]:
    """On the sandbox, how many pages claimed a time that cannot be; nothing elsewhere or where all can."""
    doubtful = _doubtful(work)
    if not doubtful or environment is not Environment.SANDBOX:
        return ()
    return (
        f"{_pages(doubtful)} claimed more active time than can have passed, as scripted workers do; on the sandbox "
        "the claim counts, on live it would be cut",
    )


def _doubtful(work: Sequence[PaidWork]) -> int:
    return sum(one.time.is_doubtful for one in work)


def _slow_line(slow: Sequence[PaidWork]) -> str:
    first = sorted(slow, key=lambda one: -(one.time.ms or 0))[:_NAMED]
    named = ", ".join(f"{one.id} ({minutes(one.time.ms or 0)} min, {one.worker})" for one in first)
    more = f" and {len(slow) - _NAMED:,} more" if len(slow) > _NAMED else ""
    return (
        f"far longer than usual for the wording: submission {named}{more}; look with `mitl review show NUMBER` before "
        "time is paid for"
    )


def minutes(ms: int) -> str:
    """``12.3``."""
    return f"{ms / 60_000:,.1f}"


def money(cents: int | None) -> str | None:
    """Dollars for a table; None stays None."""
    return None if cents is None else format_dollars(cents)


def _pages(count: int) -> str:
    return several(count, "page")
