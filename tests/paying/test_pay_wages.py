"""Active time that can be believed, wages by wording, and what is short of a floor."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mitl.judgements.wages import (
    HOUR_MS,
    PaidWork,
    WorkerPay,
    WorkTime,
    slow_work,
    usual_ms,
    wage_figures,
    work_time,
    worker_pay,
)

START = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
ALLOWED_S = 3600


def after(seconds: float) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


def paid(id_: int = 1, worker: str = "A1", ms: int | None = 300_000, **changes: object) -> PaidWork:
    work = PaidWork(id_, worker, "b1", "pairs-plain", WorkTime(ms, ALLOWED_S * 1000), 100, 20, 0)
    return replace(work, **changes)  # type: ignore[arg-type]


def test_a_claim_that_can_be_counts_as_it_is():
    """Five minutes of a ten-minute assignment are five minutes."""
    assert work_time(300_000, START, after(600), ALLOWED_S) == WorkTime(300_000, 600_000)
    assert work_time(600_000, START, after(600), ALLOWED_S) == WorkTime(600_000, 600_000)
    assert work_time(1, START, after(600), ALLOWED_S).ms == 1


def test_the_time_between_acceptance_and_submission_counts_whole_milliseconds_and_at_least_one():
    """The two at one moment bound a claim as any others do, and are no reason to let it run to the allowed time."""
    for seconds, limit in ((0, 1), (0.0009, 1), (0.0029, 2)):
        assert work_time(5, START, after(seconds), ALLOWED_S) == WorkTime(limit, limit, is_doubtful=True)


def test_a_claim_above_the_time_between_acceptance_and_submission_is_cut_to_it():
    """Half an hour of active time in a ten-minute assignment is at most those ten minutes, and doubtful."""
    assert work_time(1_800_000, START, after(600), ALLOWED_S) == WorkTime(600_000, 600_000, is_doubtful=True)


def test_no_claim_passes_the_allowed_time():
    """Somebody who kept a HIT for a day is paid for the hour that was allowed."""
    assert work_time(80_000_000, START, after(86_400), ALLOWED_S).ms == ALLOWED_S * 1000


def test_times_that_are_missing_or_turned_round_leave_the_allowed_time_as_the_bound():
    """A file or a clock gone wrong neither raises nor pays for more than was allowed."""
    for accepted, submitted in ((None, START), (START, None), (after(60), START)):
        found = work_time(9_000_000, accepted, submitted, ALLOWED_S)
        assert found == WorkTime(ALLOWED_S * 1000, ALLOWED_S * 1000, is_doubtful=True, has_clock=False)
        assert not work_time(None, accepted, submitted, ALLOWED_S).has_clock


def test_a_trusted_claim_is_bounded_by_the_allowed_time_alone_and_still_called_doubtful():
    """Scripted workers answer in no time and claim a person's."""
    found = work_time(300_000, START, after(1), ALLOWED_S, trusted=True)

    assert found == WorkTime(300_000, ALLOWED_S * 1000, is_doubtful=True)


@given(
    st.none() | st.integers(-(10**12), 10**12),
    st.none() | st.integers(-(10**6), 10**6),
    st.none() | st.integers(-(10**6), 10**6),
    st.integers(1, 10**6),
    st.booleans(),
)
def test_no_claim_whatsoever_gives_less_than_nothing_or_more_than_was_allowed(
    claim, accepted, submitted, allowed_s, trusted
):
    """Time is unknown or from 1 ms to the bound, which is never above the allowed time."""
    times = [None if value is None else after(value) for value in (accepted, submitted)]
    found = work_time(claim, times[0], times[1], allowed_s, trusted=trusted)

    assert 1 <= found.limit_ms <= allowed_s * 1000
    assert found.ms is None or 1 <= found.ms <= found.limit_ms
    assert (found.ms is None) == (claim is None or claim <= 0)


def test_the_shortfall_by_hand():
    """1,050 s at $12.00 an hour are $3.50, of which two rewards of $1.00 leave $1.50."""
    [pay] = worker_pay([paid(1, ms=600_000), paid(2, ms=450_000)])

    assert (pay.paid_cents, pay.hourly_cents, pay.shortfall_cents(1200)) == (200, 685, 150)


def test_what_a_bonus_pays_for_something_else_lifts_nobody_to_the_floor():
    """$0.50 for a lost page beside $1.00 of bonus: ten minutes of work were paid $2.00, not $2.50."""
    work = paid(1, ms=600_000, bonus_cents=150, compensation_cents=50)
    [pay] = worker_pay([work])

    assert (pay.paid_cents, pay.hourly_cents, pay.shortfall_cents(1300)) == (200, 1200, 17)


@given(
    st.integers(1, 10**9),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(1, 10**5),
    st.integers(0, 5),
)
def test_the_bonus_reaches_the_floor_and_not_a_cent_more(ms, rewards, bonuses, floor, submissions):
    """With it an hour pays the floor or more; with a cent less it would not; a second proposal is nothing."""
    pay = WorkerPay("A1", submissions, ms, 0, 0, rewards, 0, bonuses)
    short = pay.shortfall_cents(floor)

    assert (pay.paid_cents + short) * HOUR_MS >= floor * ms
    assert short == 0 or (pay.paid_cents + short - 1) * HOUR_MS < floor * ms
    assert replace(pay, bonus_cents=bonuses + short).shortfall_cents(floor) == 0


def test_a_page_without_a_time_takes_the_usual_one_within_its_own_bound():
    """The median of what the wording's other pages measured, but not more than that assignment can have taken."""
    work = [paid(1, "A1", 200_000), paid(2, "A2", 400_000), paid(3, "A3", 900_000)]
    missing = paid(4, "A4", None)
    brief = paid(5, "A5", None, time=WorkTime(None, 30_000))
    by_worker = {pay.worker: pay for pay in worker_pay([*work, missing, brief])}

    assert usual_ms([*work, missing, brief]) == {"pairs-plain": 400_000}
    assert (by_worker["A4"].ms, by_worker["A4"].n_stand_in) == (400_000, 1)
    assert by_worker["A5"].ms == 30_000
    assert [by_worker[worker].ms for worker in ("A1", "A2", "A3")] == [200_000, 400_000, 900_000]
    assert [pay.worker for pay in worker_pay([brief, missing, *work])] == ["A1", "A2", "A3", "A4", "A5"]


def test_where_nobody_measured_anything_no_time_is_made_up():
    """Then nothing is short of any floor, no wage is known, and the submissions are counted as unknown."""
    [pay] = worker_pay([paid(1, ms=None), paid(2, ms=None)])

    assert (pay.ms, pay.n_unknown, pay.hourly_cents, pay.shortfall_cents(10**6)) == (0, 2, None, 0)


def test_wages_by_wording_by_hand():
    """Eleven HITs of $1.00 from 5 to 15 minutes: 10th percentile, median, 90th percentile, share under $9.00."""
    work = [paid(n, ms=n * 60_000) for n in range(5, 16)] + [paid(16, ms=None)]
    other = paid(17, template="pairs", time=WorkTime(None, 1))
    [alone, plain] = wage_figures([*work, other], floor_cents=900)

    assert (alone.template, alone.measured, alone.median_cents, alone.under_share) == ("pairs", 0, None, None)
    assert (plain.submissions, plain.measured, plain.median_ms) == (12, 11, 600_000)
    assert (plain.low_cents, plain.median_cents, plain.high_cents) == (428, 600, 1000)
    assert plain.n_under == 9  # 7 to 15 minutes: $8.57 an hour and less
    assert plain.under_share == 9 / 11


def test_one_measured_page_is_its_own_percentiles():
    """No percentile needs two."""
    [figures] = wage_figures([paid(ms=600_000)], floor_cents=600)

    assert (figures.low_cents, figures.median_cents, figures.high_cents, figures.n_under) == (
        600,
        600,
        600,
        0,
    )


def test_work_that_took_far_longer_than_usual_is_named_for_a_person_to_look_at():
    """Five times the median of its wording, where five pages or more were measured."""
    usual = [paid(n, ms=300_000) for n in range(5)]
    slow = paid(9, ms=1_500_000)

    assert slow_work([*usual, slow]) == [slow]
    assert slow_work([*usual, paid(9, ms=1_499_999)]) == []
    assert slow_work([*usual[:4], slow, paid(10, ms=None)]) == [slow]
    assert slow_work([*usual[:3], slow]) == []
