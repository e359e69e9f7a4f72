"""Token buckets: how often each of many callers may do something, in memory of bounded size."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MAX_KEYS = 20_000


@dataclass(frozen=True, slots=True)
class Rate:
    """A steady rate, and how much may come at once before it holds."""

    per_second: float
    burst: int


class TokenBuckets:
    """One bucket per key, full at first.

    The keys used longest ago are forgotten when there are too many, so that a flood of made-up keys costs a
    known amount of memory. Not safe for threads: the event loop owns it.
    """

    def __init__(
        self, rate: Rate, *, max_keys: int = MAX_KEYS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._max_keys = max_keys
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        """How many keys are remembered."""
        return len(self._buckets)

    def take(self, key: str) -> float:
        """Take one token: 0 where there was one, else the seconds until there will be."""
        now = self._clock()
        left, at = self._buckets.pop(key, (float(self._rate.burst), now))
        left = min(float(self._rate.burst), left + (now - at) * self._rate.per_second)
        wait = 0.0 if left >= 1 else (1 - left) / self._rate.per_second
        self._buckets[key] = (left - 1 if wait == 0 else left, now)
        if len(self._buckets) > self._max_keys:
            self._buckets.popitem(last=False)
        return wait
