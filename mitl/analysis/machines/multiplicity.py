"""How many positives queries have: the numbers behind a histogram of multiplicity (Fig. 3a, Table 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median


@dataclass(frozen=True, slots=True)
class Spread:
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


def spread(counts: Sequence[int]) -> Spread:
    """The numbers of one histogram; ``counts`` holds each query's positives, of one query at least."""
    bins = [0] * (max(counts) + 1)
    for count in counts:
        bins[count] += 1
    return Spread(len(counts), sum(counts), mean(counts), median(counts), max(counts), bins[0], tuple(bins))
