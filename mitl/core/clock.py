"""The time as everything is stored and compared: aware UTC; tests hand in a clock of their own."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime

Clock = Callable[[], dt.datetime]
LONGEST_WAIT_S = 60.0
"""What a reply may ask to wait, lest one word of a server stop a run for a day."""


def utc_now() -> dt.datetime:
    """The machine's time, aware UTC."""
    return dt.datetime.now(dt.UTC)


def asked_to_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds that a reply's ``Retry-After`` asks to wait, as a number or as a date; None where it says neither.

    Never more than `LONGEST_WAIT_S`. A date is read by the clock of the server where the reply has a ``Date``
    (RFC 9110, 10.2.3).
    """
    said = headers.get("Retry-After", "")
    if said.isdecimal():
        return min(LONGEST_WAIT_S, float(said))
    with suppress(ValueError, TypeError):
        now = parsedate_to_datetime(headers["Date"]) if "Date" in headers else utc_now()
        return min(LONGEST_WAIT_S, max(0.0, (parsedate_to_datetime(said) - now).total_seconds()))
    return None
