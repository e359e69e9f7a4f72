"""An annotator's own uncertainty of an item, and whether uncertain items have more positives (Fig. 3b)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.analysis.records import Cell, UncertaintyBin

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Association:
    """How two numbers of the same queries go together; None where one of them does not vary."""

    tau: Cell
    """Kendall's tau-b."""
    spearman: Cell


def geometric_mean(sigmas: Values) -> Values:
    """(N,) the geometric mean of each item's standard deviations (N, D): the exponential of the mean log sigma."""
    means: Values = np.exp(np.log(np.maximum(sigmas, np.finfo(np.float64).tiny)).mean(1))
    return means


def root_mean_square(spread: NDArray[np.floating[Any]], width: int) -> Values:
    """(N,) the same kind of mean where only the sum of an item's ``width`` variances is kept: (N,)."""
    means: Values = np.sqrt(spread.astype(np.float64) / width)
    return means


def recovered_sigmas(samples: NDArray[np.floating[Any]], noise: NDArray[np.floating[Any]]) -> Values:
    """(N, D) the standard deviations behind samples mean + sigma noise whose noise is known.

    Each is the slope of the samples over their noise, which two samples fix: exact but for the rounding of float32,
    where an estimate from the samples alone is off by sqrt(1 / 2 S).

    Args:
        samples, noise: (N, S, D), of two samples or more.
    """
    centred = noise.astype(np.float64)
    centred -= centred.mean(1, keepdims=True)
    slopes = (samples.astype(np.float64) * centred).sum(1) / np.square(centred).sum(1)
    return np.asarray(np.abs(slopes), np.float64)


def associate(uncertainty: Values, positives: Values) -> Association:
    """Rank correlations of uncertainty with the number of positives: both (Q,)."""
    if len(uncertainty) < 2 or np.ptp(uncertainty) == 0 or np.ptp(positives) == 0:
        return Association(None, None)
    from scipy import stats

    tau = float(stats.kendalltau(uncertainty, positives).statistic)
    return Association(tau, float(stats.spearmanr(uncertainty, positives).statistic))


def binned(uncertainty: Values, positives: Values, count: int = 10) -> tuple[UncertaintyBin, ...]:
    """The queries in at most ``count`` bins of rising uncertainty, of sizes as equal as can be.

    Queries of equal uncertainty stay in the order given; each bin holds at least one query.
    """
    order = np.argsort(uncertainty, kind="stable")
    parts = [part for part in np.array_split(order, min(count, len(order)) or 1) if len(part)]
    return tuple(
        UncertaintyBin(
            low=float(uncertainty[part[0]]),
            high=float(uncertainty[part[-1]]),
            queries=len(part),
            positives=float(positives[part].mean()),
        )
        for part in parts
    )


@dataclass(frozen=True, slots=True)
class CountSpread:
    """Positives per query of one set in one direction."""

    queries: int
    positives: int
    mean: float
    median: float
    most: int
    without: int
    """Queries without any."""
    histogram: tuple[int, ...]
    """Queries with 0, 1, … positives."""


def spread(counts: Sequence[int]) -> CountSpread:
    """The numbers of one histogram; ``counts`` holds each query's positives, of one query at least."""
    bins = np.bincount(counts).tolist()
    return CountSpread(
        len(counts), sum(counts), mean(counts), median(counts), max(counts), bins[0], tuple(bins)
    )
