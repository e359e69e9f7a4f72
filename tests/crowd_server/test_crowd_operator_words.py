"""Rates and times in the operator's words: right where they can be known, a dash where not."""

from __future__ import annotations

import datetime as dt

import pytest

from mitl.core.pricing import format_dollars
from mitl.crowd_server.operator import page as words
from mitl.crowd_server.store.progress import GroupRow, Recent, Span
from mitl.records import Environment

NOW = dt.datetime(2026, 11, 20, 14, 2, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)


def group(*, done: int = 60, left: int = 60, paused: bool = False, expires_in: float = 500.0) -> GroupRow:
    """A group of 120 wanted answers."""
    return GroupRow(
        id=1,
        mturk_id="3G",
        environment=Environment.LIVE,
        title="t",
        reward_cents=100,
        paused_at=NOW if paused else None,
        hits=120,
        open_hits=left,
        wanted=done + left,
        done=done,
        left=left,
        expires_at=NOW + expires_in * HOUR if left else None,
        waiting=0,
        rejected=0,
        working=0,
    )


def recent(count: int, ago: float = 2.0) -> Recent:
    """Answers of the last hour, the first of which was begun so many hours ago."""
    return Recent(count, NOW - ago * HOUR)


@pytest.mark.parametrize(
    ("left", "count", "expected"),
    [
        (60, 30, "today, 16:05 UTC"),
        (300, 30, "tomorrow, 00:05 UTC"),
        (30 * 70, 30, "Mon 23 Nov, 13:00 UTC"),
        (30 * 24 * 60, 30, "Tue 19 Jan 2027, 15:00 UTC"),
        (10**9, 3, "in more than a year"),
    ],
)
def test_the_end_is_said_with_its_day(left, count, expected):
    """What is left over the pace of the last hour, rounded up, by a day that one need not count to."""
    far = 10**5

    assert words.finish(group(done=1000, left=left, expires_in=far), recent(count), NOW) == expected


def test_a_young_group_is_judged_by_its_own_time():
    """Thirty answers in the first half hour are a pace of sixty, not of thirty."""
    young = recent(30, ago=0.5)

    assert words.pace(30, young, NOW) == pytest.approx(60)
    assert words.pace(31, young, NOW) == pytest.approx(30)
    assert words.finish(group(done=30, left=60), young, NOW) == "today, 15:05 UTC"


@pytest.mark.parametrize(
    ("own", "late"),
    [
        (group(), None),
        (group(), recent(2)),
        (group(done=5), recent(5, ago=0.001)),
        (group(paused=True), recent(30)),
        (group(left=0), recent(30)),
    ],
    ids=["no answers", "too few", "only just begun", "paused", "nothing left"],
)
def test_what_cannot_be_known_is_a_dash(own, late):
    """No pace, no end."""
    assert words.finish(own, late, NOW) == "-"


def test_an_end_after_the_expiry_says_so():
    """The operator has to extend the HITs before it comes to that."""
    assert words.finish(group(left=60, expires_in=1), recent(30), NOW).endswith("but HITs expire before")


def test_the_overall_rate_runs_from_first_to_last():
    """It stays what it was after the work is over."""
    assert words.rate(None) == "-"
    assert words.rate(Span(1, NOW, NOW)) == "-"
    assert words.rate(Span(45, NOW - 2 * HOUR, NOW)) == "22"
    assert words.rate(Span(3, NOW - 2 * HOUR, NOW)) == "1.5"


def test_money_and_numbers_are_parted():
    """Thousands by commas, cents by two digits, the sign in front."""
    assert format_dollars(123456) == "$1,234.56"
    assert format_dollars(-5) == "-$0.05"
    assert words.count(1234567) == "1,234,567"
