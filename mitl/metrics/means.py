"""Recall@K, R-Precision and mAP@R as means over the queries of one direction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.metrics.positives import NoPositives, Positives, Short
from mitl.metrics.retrieval import score_queries
from mitl.metrics.table import MAP_AT_R, R_PRECISION


@dataclass(frozen=True, slots=True)
class RetrievalScores:
    """Means over the queries of one direction, from 0 to 1."""

    n_queries: int
    left_out: int
    """Queries without positives, where those are left out."""
    recall: dict[int, float]
    r_precision: float | None
    """None where only recall was asked for; so is ``map_at_r``."""
    map_at_r: float | None


def recall_at_k(
    query_ids: NDArray[Any],
    items: NDArray[Any],
    positives: Positives,
    k: int,
    *,
    short: Short = "raise",
    no_positives: NoPositives = "raise",
) -> float:
    """Share of queries with a positive among their first ``k`` items.

    Raises:
        MetricError: ``k`` is below 1; a query has no positives or no ranking; the rankings are shorter than
            ``k`` and ``short`` is "raise".
    """
    return score(
        query_ids, items, positives, ks=(k,), by_r=False, short=short, no_positives=no_positives
    ).recall[k]


def r_precision(
    query_ids: NDArray[Any],
    items: NDArray[Any],
    positives: Positives,
    *,
    short: Short = "raise",
    no_positives: NoPositives = "raise",
) -> float:
    """Mean over queries of the share of positives among the first R items, R being the query's positives.

    Raises:
        MetricError: as :func:`map_at_r`.
    """
    value = score(query_ids, items, positives, ks=(), short=short, no_positives=no_positives).r_precision
    assert value is not None
    return value


def map_at_r(
    query_ids: NDArray[Any],
    items: NDArray[Any],
    positives: Positives,
    *,
    short: Short = "raise",
    no_positives: NoPositives = "raise",
) -> float:
    """Mean over queries of AP@R: precision at each place from 1 to R that holds a positive, summed, over R.

    Raises:
        MetricError: a query has no positives (unless they are left out) or no ranking; a ranking is shorter
            than R and ``short`` is "raise". With "zero" the missing places count as misses, and the mean is
            still over R.
    Source: Musgrave et al., A Metric Learning Reality Check, ECCV 2020, section 3.2.
    """
    value = score(query_ids, items, positives, ks=(), short=short, no_positives=no_positives).map_at_r
    assert value is not None
    return value


def score(
    query_ids: NDArray[Any],
    items: NDArray[Any],
    positives: Positives,
    *,
    ks: Sequence[int] = (1, 5, 10),
    by_r: bool = True,
    short: Short = "raise",
    no_positives: NoPositives = "raise",
) -> RetrievalScores:
    """The means of :func:`score_queries`.

    Raises:
        MetricError: see :func:`score_queries`.
    """
    values = score_queries(
        query_ids, items, positives, ks=ks, by_r=by_r, short=short, no_positives=no_positives
    )
    means = {each.metric: each.estimate for each in values}
    scored = int(np.count_nonzero(positives.counts))
    recall = {k: means[f"R@{k}"] for k in ks}
    r_precision, map_at_r = means.get(R_PRECISION), means.get(MAP_AT_R)
    return RetrievalScores(scored, len(positives) - scored, recall, r_precision, map_at_r)


def average_precision_at_r(ranking: Sequence[int], positives: Collection[int]) -> float:
    """AP@R of one ranking; MetricError where there are no positives or the ranking is shorter than R."""
    one = Positives.from_mapping({0: positives})
    return map_at_r(np.zeros(1, dtype=np.int64), np.asarray([ranking], dtype=np.int64), one)
