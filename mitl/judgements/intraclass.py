"""Intraclass correlations: how much of the spread of ratings is the items' own.

ICC(1) takes each item's raters as drawn anew, so it needs no design at all. ICC(2) and ICC(3) tell what raters add by
being strict or mild, and need the same raters on several items: a block is the items that the same people rated (the
pairs of one page, as a rule), and the sums of squares of all blocks are pooled. One block of everything is the textbook
case. Sources: Shrout and Fleiss, Intraclass Correlations, 1979 (tables 3 and 4, and their intervals); McGraw and Wong,
Forming Inferences About Some Intraclass Correlation Coefficients, 1996 (the interval of ICC(2), by Satterthwaite).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from mitl.core.arrays import Floats, Ints

CONFIDENCE = 0.95
_ROUNDING = 1e-12
"""Part of the largest rating; what lies so near to a mean is at it, since 4.99 is no sum of powers of two."""


@dataclass(frozen=True, slots=True)
class BoundedEstimate:
    """One correlation with its interval, or why there is none."""

    value: float | None
    """1 is perfect; below 0 the ratings of an item differ more than those of different items."""
    low: float | None = None
    high: float | None = None
    reason: str = ""
    """Why ``value`` is None, for people."""


_ALIKE = BoundedEstimate(None, reason="the items' means are all the same")


@dataclass(frozen=True, slots=True)
class OneWay:
    """ICC(1): each item is rated by people of its own."""

    single: BoundedEstimate
    """ICC(1,1), of one rating."""
    of_mean: BoundedEstimate
    """ICC(1,k), of the mean of ``k`` ratings."""
    k: float
    """Ratings of an item; with unequal numbers the mean that their analysis of variance takes."""
    items: int
    ratings: int


@dataclass(frozen=True, slots=True)
class TwoWay:
    """ICC(2) and ICC(3): the same people rate the items of a block."""

    agreement: BoundedEstimate
    """ICC(2,1): of one rating, strictness and mildness of raters counted as disagreement."""
    agreement_of_mean: BoundedEstimate
    """ICC(2,k)."""
    consistency: BoundedEstimate
    """ICC(3,1): of one rating, whatever a rater adds to all of them."""
    consistency_of_mean: BoundedEstimate
    """ICC(3,k)."""
    k: float
    """Raters of a block; with blocks of unequal size their mean, weighted by what they tell of the items."""
    blocks: int
    items: int


def one_way(scores: Floats, items: Ints) -> OneWay:
    """ICC(1) of (N,) ratings of (N,) items.

    With MSB between and MSW within items, and k = (N - sum n_i^2 / N) / (n - 1): ICC(1,1) = (MSB - MSW) / (MSB +
    (k - 1) MSW) and ICC(1,k) = (MSB - MSW) / MSB. The interval follows from F = MSB / MSW; it is exact for equal
    numbers of ratings and an approximation for others.
    """
    codes = np.unique(items, return_inverse=True)[1]
    sizes = np.bincount(codes).astype(np.float64)
    n, total = len(sizes), len(scores)
    if n < 2 or total == n:
        nothing = BoundedEstimate(
            None, reason="fewer than two items" if n < 2 else "no item has ratings of two people"
        )
        return OneWay(nothing, nothing, float("nan"), n, total)
    means = np.bincount(codes, scores) / sizes
    between = _mean_square(scores, sizes * (means - scores.mean()) ** 2, n - 1)
    within = _mean_square(scores, (scores - means[codes]) ** 2, total - n)
    k = float((total - (sizes**2).sum() / total) / (n - 1))
    ratio = _Ratio(between, within, n - 1, total - n)
    return OneWay(ratio.single(k), ratio.of_mean(), k, n, total)


def two_way(scores: Floats, items: Ints, raters: Ints) -> TwoWay:
    """ICC(2) and ICC(3) of (N,) ratings of (N,) items by (N,) raters; a rater rates an item once.

    Items that two people or more rated, and no others, make a block; blocks of one item say nothing. Over the blocks b
    with n_b items and k_b raters MSR, MSC and MSE are the pooled mean squares of items, raters and rest, with
    k = sum k_b (n_b - 1) / sum (n_b - 1) and n = sum n_b (k_b - 1) / sum (k_b - 1), which stand where the textbook has
    the numbers of its one block.
    """
    blocks = _blocks(scores, items, raters)
    if blocks is None:
        nothing = BoundedEstimate(None, reason="no two items were rated by the same people")
        return TwoWay(nothing, nothing, nothing, nothing, float("nan"), 0, 0)
    ratio = _Ratio(blocks.items_ms, blocks.rest_ms, blocks.items_df, blocks.rest_df)
    single = _agreement(blocks)
    return TwoWay(
        single,
        _of_mean(single, blocks.k),
        ratio.single(blocks.k),
        ratio.of_mean(),
        blocks.k,
        blocks.count,
        blocks.items,
    )


@dataclass(frozen=True, slots=True)
class _Ratio:
    """Two mean squares with their degrees of freedom; their ratio follows F but for the items' own spread."""

    above: float
    below: float
    df_above: int
    df_below: int

    def single(self, k: float) -> BoundedEstimate:
        if self.above == 0 and self.below == 0:
            return _ALIKE
        value = (self.above - self.below) / (self.above + (k - 1) * self.below)
        low, high = ((ratio - 1) / (ratio + k - 1) if ratio < np.inf else 1.0 for ratio in self._limits())
        return BoundedEstimate(value, low, high)

    def of_mean(self) -> BoundedEstimate:
        if self.above == 0:
            return _ALIKE
        low, high = self._limits()
        value = (self.above - self.below) / self.above
        return BoundedEstimate(value, 1 - 1 / low if low < np.inf else 1, 1 - 1 / high)

    def _limits(self) -> tuple[float, float]:
        """The ratio's limits; infinite where nothing is below."""
        if self.below == 0:
            return np.inf, np.inf
        ratio = self.above / self.below
        return (
            ratio / _quantile(self.df_above, self.df_below),
            ratio * _quantile(self.df_below, self.df_above),
        )


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The pooled analysis of variance."""

    items_ms: float
    raters_ms: float
    rest_ms: float
    items_df: int
    raters_df: int
    rest_df: int
    n: float
    k: float
    count: int
    items: int


def _blocks(scores: Floats, items: Ints, raters: Ints) -> _Blocks | None:
    if not len(items):
        return None
    order = np.lexsort((raters, items))
    scores, items, raters = scores[order], items[order], raters[order]
    starts = np.flatnonzero(np.append(True, items[1:] != items[:-1]))
    people = [some.tobytes() for some in np.split(raters, starts[1:])]
    of_item, _ = pd.factorize(np.array(people, object))
    sizes = np.diff(starts, append=len(items))
    n_items = np.bincount(of_item)
    n_raters = np.zeros(len(n_items), np.int64)
    n_raters[of_item] = sizes
    useful = (n_items > 1) & (n_raters > 1)
    if not useful.any():
        return None
    block = np.repeat(of_item, sizes)
    kept = useful[block]
    table = pd.DataFrame({"score": scores, "item": items, "rater": raters, "block": block})[kept]
    whole = table.groupby("block")["score"].transform("mean")
    by_item = table.groupby("item")["score"].transform("mean")
    by_rater = table.groupby(["block", "rater"])["score"].transform("mean")
    n, k = n_items[useful].astype(np.int64), n_raters[useful]
    items_df, raters_df, rest_df = int((n - 1).sum()), int((k - 1).sum()), int(((n - 1) * (k - 1)).sum())
    return _Blocks(
        items_ms=_mean_square(scores, (by_item - whole) ** 2, items_df),
        raters_ms=_mean_square(scores, (by_rater - whole) ** 2, raters_df),
        rest_ms=_mean_square(scores, (table["score"] - by_item - by_rater + whole) ** 2, rest_df),
        items_df=items_df,
        raters_df=raters_df,
        rest_df=rest_df,
        n=float((n * (k - 1)).sum() / (k - 1).sum()),
        k=float((k * (n - 1)).sum() / (n - 1).sum()),
        count=len(n),
        items=int(n.sum()),
    )


def _mean_square(scores: Floats, squares: Floats | pd.Series, df: int) -> float:
    """The squares' sum over their degrees of freedom; 0 where rounding left no more."""
    mean = float(squares.sum()) / df
    return mean if mean > (_ROUNDING * np.abs(scores).max()) ** 2 else 0.0


def _agreement(blocks: _Blocks) -> BoundedEstimate:
    """ICC(2,1) = (MSR - MSE) / (MSR + (k - 1) MSE + k (MSC - MSE) / n), and McGraw and Wong's interval."""
    n, k = blocks.n, blocks.k
    rows, columns, rest = blocks.items_ms, blocks.raters_ms, blocks.rest_ms
    below = rows + (k - 1) * rest + k * (columns - rest) / n
    if below <= 0:
        return _ALIKE
    value = (rows - rest) / below
    if value >= 1 or 0 in (rows, rest):
        return BoundedEstimate(value)
    a = k * value / (n * (1 - value))
    b = 1 + k * value * (n - 1) / (n * (1 - value))
    parts = (a * columns) ** 2 / blocks.raters_df + (b * rest) ** 2 / blocks.rest_df
    df = rows**2 / parts  # rows is a * columns + b * rest
    spread = k * columns + (k * n - k - n) * rest
    lower, upper = _quantile(blocks.items_df, df), _quantile(df, blocks.items_df)
    low = n * (rows - lower * rest) / (lower * spread + n * rows)
    high = n * (upper * rows - rest) / (spread + n * upper * rows)
    # Satterthwaite's approximation fails where the items' means are nearly the same.
    return BoundedEstimate(value, low, high) if low <= value <= high else BoundedEstimate(value)


def _of_mean(single: BoundedEstimate, k: float) -> BoundedEstimate:
    """The correlation of the mean of k ratings, after Spearman and Brown, and that of the limits.

    There is none for a correlation of -1 / (k - 1) or less, whose step would lead above 1.
    """
    if single.value is None:
        return single
    value, low, high = (
        None if limit is None or (below := 1 + (k - 1) * limit) <= 0 else k * limit / below
        for limit in (single.value, single.low, single.high)
    )
    if value is None:
        return BoundedEstimate(None, reason="ratings of one item differ more than those of different items")
    return BoundedEstimate(value, low, high)


def _quantile(above: float, below: float) -> float:
    """Of the F distribution, what leaves half of the rest above it."""
    from scipy.special import fdtri

    return float(fdtri(above, below, (1 + CONFIDENCE) / 2))
