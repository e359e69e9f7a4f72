"""Recall@K, R-Precision and mAP@R of rankings.

A metric that is undefined for a query says so: nothing is scored as -1. Rankings are (Q, depth) integer
arrays of item ids, best first, with the query id of each row; only the head that a metric needs is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.metrics.positives import Ids, Positives
from mitl.metrics.relevance import NoPositives, Relevance, Short, locate_rows, relevance

Scores = NDArray[np.float64]

_CELLS = 1 << 22
"""Places looked at in one go; bounds the memory to some 100 MB whatever R is."""


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
    """All metrics of one direction in one pass.

    Args:
        query_ids: (N,) the query of each row of ``items``; may hold more queries than are scored.
        items: (N, depth) item ids, best first.
        by_r: whether R-Precision and mAP@R are wanted; else only max(ks) places are read.

    Raises:
        MetricError: see :func:`recall_at_k` and :func:`map_at_r`.
    """
    if items.ndim != 2 or len(items) != len(query_ids):
        raise MetricError(f"rankings are {items.shape}, but {len(query_ids)} query ids were given")
    scored = _with_positives(positives, no_positives)
    rows = locate_rows(query_ids, scored)
    _refuse_short(scored, items.shape[1], ks, by_r=by_r, short=short)
    recall = {k: np.zeros(len(scored)) for k in ks}
    precision, average = np.zeros(len(scored)), np.zeros(len(scored))
    for block in _blocks(scored, ks, by_r=by_r):
        part = _rows(scored, block)
        head = items[rows[block], : _head(part, ks, by_r=by_r)]
        found = relevance(head, part)
        for k in ks:
            recall[k][block] = found.hits[:, :k].any(axis=1)
        if by_r:
            precision[block], average[block] = r_precisions(found), average_precisions_at_r(found)
    return RetrievalScores(
        n_queries=len(scored),
        left_out=len(positives) - len(scored),
        recall={k: float(values.mean()) for k, values in recall.items()},
        r_precision=float(precision.mean()) if by_r else None,
        map_at_r=float(average.mean()) if by_r else None,
    )


def r_precisions(found: Relevance) -> Scores:
    """R-Precision of each query: (Q,). Places beyond what was read are misses."""
    return np.asarray(_within_r(found).sum(axis=1) / found.counts, dtype=np.float64)


def average_precisions_at_r(found: Relevance) -> Scores:
    """AP@R of each query: (Q,). Places beyond what was read are misses."""
    hits = _within_r(found)
    precision = np.cumsum(hits, axis=1) / np.arange(1, found.depth + 1)  # (Q, depth)
    return np.asarray((precision * hits).sum(axis=1) / found.counts, dtype=np.float64)


def average_precision_at_r(ranking: Sequence[int], positives: Collection[int]) -> float:
    """AP@R of one ranking; MetricError where there are no positives or the ranking is shorter than R."""
    one = Positives.from_mapping({0: positives})
    return map_at_r(np.zeros(1, dtype=np.int64), np.asarray([ranking], dtype=np.int64), one)


def _within_r(found: Relevance) -> NDArray[np.bool_]:
    inside: NDArray[np.bool_] = found.hits & (np.arange(found.depth) < found.counts[:, None])
    return inside


def _with_positives(positives: Positives, no_positives: NoPositives) -> Positives:
    empty = positives.query_ids[positives.counts == 0]
    if len(empty) and no_positives == "raise":
        raise MetricError(
            f"query {empty[0]} has no positives ({len(empty)} of {len(positives)} have none), "
            "so its score is undefined; leave it out"
        )
    scored = positives.with_positives()
    if not len(scored):
        raise MetricError("no query has a positive, so there is nothing to score")
    return scored


def _refuse_short(positives: Positives, depth: int, ks: Sequence[int], *, by_r: bool, short: Short) -> None:
    for k in ks:
        if k < 1:
            raise MetricError(f"K is {k}, but ranks start at 1")
    if short == "zero":
        return
    if ks and max(ks) > depth:
        raise MetricError(f"Recall@{max(ks)} needs {max(ks)} ranked items, but the rankings end at {depth}")
    longest = int(positives.counts.argmax())
    if by_r and positives.counts[longest] > depth:
        raise MetricError(
            f"query {positives.query_ids[longest]} has {positives.counts[longest]} positives, "
            f"but its ranking ends at {depth}; rank deeper, or count the missing places as misses"
        )


def _head(positives: Positives, ks: Sequence[int], *, by_r: bool) -> int:
    return max([*ks, int(positives.counts.max()) if by_r else 0])


def _blocks(positives: Positives, ks: Sequence[int], *, by_r: bool) -> Iterator[slice]:
    size = max(1, _CELLS // max(1, _head(positives, ks, by_r=by_r)))
    for start in range(0, len(positives), size):
        yield slice(start, min(start + size, len(positives)))


def _rows(positives: Positives, block: slice) -> Positives:
    offsets: Ids = positives.offsets[block.start : block.stop + 1]
    return Positives(
        positives.query_ids[block], offsets - offsets[0], positives.item_ids[offsets[0] : offsets[-1]]
    )
