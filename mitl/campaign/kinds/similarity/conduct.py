"""How one rater uses the scale: spread, favourite number, distance to others, drift. A person sees it; no rule does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from mitl.records import several
from mitl.records.similarity import SIMILARITY_ROLES, SimilarityRole

_ENOUGH = 8
"""Ratings that others gave too, from which a drift is told."""


@dataclass(frozen=True, slots=True)
class RaterHabits:
    """One rater's ratings of pairs that were asked, controls left out; None where too few say anything."""

    n: int
    mean: float
    spread: float
    """Standard deviation; 0 where all are the same."""
    favourite: float
    """The score that was given most often."""
    favourite_share: float
    """From 0 to 1."""
    above_others: float | None
    """Mean difference to the mean of the others' ratings of the same pairs."""
    drift: float | None
    """By how much that difference is higher in the later half of the ratings than in the earlier one."""
    apart: float | None
    """Mean distance of a repeated pair's two scores."""

    @property
    def text(self) -> str:
        """In one line."""
        parts = [
            f"the rater's {several(self.n, 'rating')} have mean {self.mean:.2f} and spread {self.spread:.2f}",
            f"{self.favourite_share:.0%} of them are {self.favourite:.2f}",
        ]
        if self.above_others is not None:
            parts.append(f"{self.above_others:+.2f} beside the others on the same pairs")
        if self.drift is not None:
            parts.append(f"drift {self.drift:+.2f} from the first half to the second")
        if self.apart is not None:
            parts.append(f"repeated pairs {self.apart:.2f} apart")
        return ", ".join(parts)


def rater_habits(ratings: pd.DataFrame, worker: str) -> RaterHabits | None:
    """The habits of a worker; None for one who has rated nothing.

    Args:
        ratings: ``RATINGS``, at least all of the pairs that the worker has rated; every submission counts, also one
            that waits for a decision.
    """
    answered = ratings[ratings["score"].notna()]
    is_asked = answered["role"] == SIMILARITY_ROLES.index(SimilarityRole.ASKED)
    is_own = answered["worker"] == worker
    own = answered[is_asked & is_own].sort_values(["assignment", "place"])
    if own.empty:
        return None
    scores = own["score"].to_numpy()
    values, counts = np.unique(scores, return_counts=True)
    others = answered[is_asked & ~is_own].groupby("pair")["score"].mean()
    beside = (own["score"] - own["pair"].map(others)).dropna().to_numpy()
    half = len(beside) // 2
    return RaterHabits(
        n=len(own),
        mean=float(scores.mean()),
        spread=float(scores.std()),
        favourite=float(values[counts.argmax()]),
        favourite_share=float(counts.max() / len(scores)),
        above_others=float(beside.mean()) if len(beside) else None,
        drift=float(beside[half:].mean() - beside[:half].mean()) if len(beside) >= _ENOUGH else None,
        apart=_apart(answered[is_own], own),
    )


def _apart(answered: pd.DataFrame, asked: pd.DataFrame) -> float | None:
    """The mean distance of repeated pairs' scores from those that the same page got first."""
    repeated = answered[answered["role"] == SIMILARITY_ROLES.index(SimilarityRole.REPEATED)]
    both = repeated.merge(asked, on=["assignment", "pair"], suffixes=("", "_first"))
    return float((both["score"] - both["score_first"]).abs().mean()) if len(both) else None
