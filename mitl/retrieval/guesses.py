"""Floors guessed from the items seen so far, and checked once all have gone by.

The floor that is proven at any time is the k-th best so far, and early on most of what reaches it does not belong to
the k best of all. If items come in random order, few of those are among the first ones, and a binomial tail says how
few: so an item of a better rank can be the floor. Where the k-th best in the end lies below it, something may have been
missed, and that search is made again without a guess. The order of the items decides how long it takes, never what is
found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

_RARELY = 1e-3
"""How likely a guess may be too high, were items to come in random order."""
_TOO_OFTEN = 0.01
"""The share of finished searches to be made again from which nothing more is guessed."""


@dataclass(slots=True, eq=False)
class Guesses:
    """Those of one pass, by any thread, and how they fare: where like items come together, most would fail."""

    partners: int
    """Items that each search sees in the end."""
    _checked: list[tuple[int, NDArray[np.int64]]] = field(default_factory=list)

    def rank(self, k: int, seen: int) -> int:
        """Which of the best of at most so many items may serve as floor for the ``k`` best of all; 0 for none."""
        finished = sum(count for count, _ in self._checked)
        if seen >= self.partners or len(self.missed) > _TOO_OFTEN * finished:
            return 0
        return likely_rank(k, seen / self.partners)

    def check(self, count: int, missed: NDArray[np.int64]) -> None:
        """Learn of finished searches which ones are to be made again."""
        self._checked.append((count, missed))

    @property
    def missed(self) -> NDArray[np.int64]:
        """Whose search is to be made again, ascending."""
        return np.sort(np.concatenate([np.empty(0, np.int64), *(missed for _, missed in self._checked)]))


@cache
def likely_rank(k: int, share: float) -> int:
    """The best rank in a random ``share`` (0 to 1) of the items whose item is hardly ever above the k-th best of all.

    For that as many of the k - 1 best of all must be in the share; the binomial tail says how likely it is.
    """
    chance, against = math.log(share), math.log1p(-share)
    logs = [
        math.lgamma(k)
        - math.lgamma(seen + 1)
        - math.lgamma(k - seen)
        + seen * chance
        + (k - 1 - seen) * against
        for seen in range(k)
    ]
    at_least = np.cumsum(np.exp(logs)[::-1])[::-1]
    return int(np.argmax(at_least <= _RARELY)) or k
