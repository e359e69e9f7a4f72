"""Rates and times as the operator reads them; ``-`` where nothing can be known."""

from __future__ import annotations

import datetime as dt
import math

from mitl.crowd_server.store.progress import HOUR, GroupRow, Recent, Span

UNKNOWN = "-"
FEWEST_ANSWERS = 3
"""A pace from fewer says nothing about when the work will be done."""
_SHORTEST = dt.timedelta(minutes=1)
_DAY = dt.timedelta(days=1)


def number(count: int) -> str:
    """A whole number with its thousands parted."""
    return f"{count:,}"


def many(count: int, one: str, more: str) -> str:
    """``1 person is``, ``12 people are``."""
    return f"1 {one}" if count == 1 else f"{number(count)} {more}"


def money(cents: int) -> str:
    """Dollars and cents, as on the workers' pages."""
    sign = "-" if cents < 0 else ""
    return f"{sign}${abs(cents) // 100:,}.{abs(cents) % 100:02d}"


def rate(span: Span | None) -> str:
    """Answers an hour from the first acceptance to the last submission."""
    if span is None or span.last_submitted_at - span.first_accepted_at < _SHORTEST:
        return UNKNOWN
    value = span.count / ((span.last_submitted_at - span.first_accepted_at) / HOUR)
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def pace(done: int, recent: Recent | None, now: dt.datetime) -> float | None:
    """Answers an hour of late: over the last hour, or since the work began where that is less ago."""
    if recent is None or recent.count < FEWEST_ANSWERS:
        return None
    span = HOUR
    if recent.count == done:
        span = min(HOUR, now - recent.first_accepted_at)
    return recent.count / (span / HOUR) if span >= _SHORTEST else None


def finish(group: GroupRow, recent: Recent | None, now: dt.datetime) -> str:
    """When a HIT type will be done at its present pace, and whether its HITs expire before that."""
    speed = pace(group.done, recent, now)
    if group.state != "open" or speed is None:
        return UNKNOWN
    hours = group.left / speed
    if hours > 365 * 24:
        return "in more than a year"
    at = _round_up(now + hours * HOUR, dt.timedelta(minutes=5) if hours < 24 else HOUR)
    words = in_words(at, now)
    if group.expires_at is not None and group.expires_at < at:
        return f"{words}, but HITs expire before"
    return words


def in_words(at: dt.datetime, now: dt.datetime) -> str:
    """A time to come: ``today, 17:40 UTC``, ``tomorrow, 09:15 UTC``, ``Mon 23 Nov, 09:00 UTC``."""
    days = (at.date() - now.date()).days
    if days == 0:
        day = "today"
    elif days == 1:
        day = "tomorrow"
    else:
        day = f"{at:%a} {at.day} {at:%b}" + (f" {at.year}" if at.year != now.year else "")
    return f"{day}, {at:%H:%M} UTC"


def _round_up(at: dt.datetime, step: dt.timedelta) -> dt.datetime:
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + math.ceil((at - midnight) / step) * step
