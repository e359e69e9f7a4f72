"""Where the server takes the time from: a function, so that tests can move it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

Clock = Callable[[], dt.datetime]


def utc_now() -> dt.datetime:
    """The machine's time, aware UTC."""
    return dt.datetime.now(dt.UTC)


class ManualClock:
    """A clock that stands still until it is told to advance."""

    def __init__(self, start: dt.datetime | None = None) -> None:
        self._now = start or utc_now()

    def __call__(self) -> dt.datetime:
        """The time it stands at."""
        return self._now

    def advance(self, **delta: float) -> None:
        """Move forward by ``timedelta(**delta)``."""
        self._now += dt.timedelta(**delta)
