"""One metric, query by query: what a mean, its interval and a paired test are taken over."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.metrics.positives import Ids


class Statistic(StrEnum):
    """How the values of the queries become one number."""

    MEAN = "mean"
    MEDIAN = "median"


@dataclass(frozen=True, slots=True, eq=False)
class QueryValues:
    """The values of one metric on one set of positives in one direction: ``values[i]`` is of ``query_ids[i]``.

    Both are (Q,). A query may stand there several times, once a fold. A value is never a stand-in for "undefined":
    such queries are left out, and ``left_out`` counts them.
    """

    metric: str
    """``R@5``, ``R-Precision``, ``mAP@R``, ``median rank``, ``PMRP``, ``nDCG``."""
    query_ids: Ids
    values: NDArray[np.float64]
    statistic: Statistic = Statistic.MEAN
    weights: NDArray[np.float64] | None = None
    """(Q,) each value's share of the mean, adding up to 1; equal shares where None. A median takes none."""
    left_out: int = 0
    """Queries without positives, where those are left out."""

    def __post_init__(self) -> None:
        if len(self.query_ids) != len(self.values):
            raise MetricError(
                f"{self.metric} has {len(self.values)} values for {len(self.query_ids)} queries"
            )
        if not len(self.values):
            raise MetricError(f"{self.metric} has no query to be taken over")

    def __len__(self) -> int:
        return len(self.values)

    @property
    def estimate(self) -> float:
        """The metric: the mean or the median of the values."""
        if self.statistic is Statistic.MEDIAN:
            return float(np.median(self.values))
        if self.weights is None:
            return float(self.values.mean())
        return float(self.values @ self.weights)
