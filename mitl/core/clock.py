"""The time as everything is stored and compared: aware UTC; tests hand in a clock of their own."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

Clock = Callable[[], dt.datetime]


def utc_now() -> dt.datetime:
    """The machine's time, aware UTC."""
    return dt.datetime.now(dt.UTC)
