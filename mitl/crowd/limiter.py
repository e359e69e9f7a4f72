"""A shared brake for calls that a service throttles: none until it complains, then additive increase."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

GROWTH_PER_S = 1.0
"""Calls per second that the allowed rate gains in each second without a complaint."""
CUT = 0.7
SLOWEST = 0.5


class AdaptiveLimiter:
    """Spaces the calls of all threads of a client.

    The service's limit is unknown and may change, so the rate is found by trying: a complaint cuts it to 0.7 of
    what was going through, quiet raises it slowly. Without a complaint nothing is delayed.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._sent: deque[float] = deque(maxlen=1000)
        self._rate: float | None = None
        self._changed_at = 0.0
        self._next_at = 0.0

    def wait(self) -> None:
        """Return when the next call may go."""
        with self._lock:
            now = self._clock()
            due = now
            if self._rate is not None:
                self._rate += GROWTH_PER_S * max(0.0, now - self._changed_at)
                self._changed_at = max(now, self._changed_at)
                due = max(now, self._next_at)
                self._next_at = due + 1 / self._rate
            self._sent.append(due)
        if due > now:
            self._sleep(due - now)

    def complain(self) -> None:
        """The service refused a call as one too many."""
        with self._lock:
            now = self._clock()
            recent = sum(1 for at in self._sent if now - 1 < at <= now)
            if self._rate is not None and now < self._changed_at:
                return  # one burst of refusals is one complaint
            through = recent if self._rate is None else min(self._rate, max(recent, 1))
            self._rate = max(SLOWEST, through * CUT)
            self._changed_at = now + 1.0
            self._next_at = now + 1 / self._rate

    @property
    def rate(self) -> float | None:
        """Calls per second allowed now; None while nothing is held back."""
        return self._rate
