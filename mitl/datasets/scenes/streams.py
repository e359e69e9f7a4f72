"""Seeded random choices that stay the same in every version of Python.

Only ``random.Random.random`` is promised to keep its sequence, so every choice is made from it alone; the
committed weights of the small annotators depend on the same worlds being generated tomorrow.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Stream:
    """A stream of choices named by its parts; two different names never share a stream."""

    def __init__(self, *name: object) -> None:
        text = "\x1f".join(str(part) for part in name)
        digest = hashlib.sha256(text.encode()).digest()
        self._uniform = random.Random(int.from_bytes(digest, "big")).random

    def chance(self, share: float) -> bool:
        """True with this probability."""
        return self._uniform() < share

    def between(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included."""
        return low + int(self._uniform() * (high - low + 1))

    def choice(self, options: Sequence[T]) -> T:
        """One of the options, each as likely as the others."""
        return options[int(self._uniform() * len(options))]

    def weighted(self, options: Sequence[T], weights: Sequence[float]) -> T:
        """One of the options, as likely as its weight."""
        rest = self._uniform() * sum(weights)
        for option, weight in zip(options, weights, strict=True):
            rest -= weight
            if rest < 0:
                return option
        return options[-1]

    def sample(self, options: Sequence[T], count: int) -> list[T]:
        """``count`` different options in random order."""
        pool = list(options)
        return [pool.pop(int(self._uniform() * len(pool))) for _ in range(count)]

    def shuffled(self, options: Sequence[T]) -> list[T]:
        """All options in random order."""
        return self.sample(options, len(options))
