"""Recall@K, R-Precision, mAP@R and median rank of rankings.

A metric that is undefined for a query says so: nothing is scored as -1. Rankings are (Q, depth) integer
arrays of item ids, best first, with the query id of each row; only the head that a metric needs is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.metrics.first_ranks import first_ranks
from mitl.metrics.positives import Ids, Positives
from mitl.metrics.query_values import QueryValues, Statistic
from mitl.metrics.ranked import ArrayRankings, Rankings, Rows
from mitl.metrics.relevance import NoPositives, Relevance, Short, relevance

Scores = NDArray[np.float64]

R_PRECISION, MAP_AT_R, MEDIAN_RANK = "R-Precision", "mAP@R", "median rank"

_CELLS = 1 << 20
"""Pairs of a positive and a place looked at in one go; bounds the memory to some 10 MB whatever R is."""


def score_queries(
    query_ids: NDArray[Any],
    items: NDArray[Any],
    positives: Positives,
    *,
    ks: Sequence[int] = (1, 5, 10),
    by_r: bool = True,
    median_rank: bool = False,
    short: Short = "raise",
    no_positives: NoPositives = "raise",
) -> tuple[QueryValues, ...]:
    """All metrics of one direction, query by query: ``R@K`` for each K, ``R-Precision``, ``mAP@R``, ``median rank``.

    Args:
        query_ids: (N,) the query of each row of ``items``; may hold more queries than are scored.
        items: (N, depth) item ids, best first.
        by_r: whether R-Precision and mAP@R are wanted; else only max(ks) places are read.
        median_rank: whether the rank of each query's first positive is wanted.
        short: what a ranking means that is shorter than K or R, or that ends before the first positive. "raise"
            refuses it. "zero" counts the missing places as misses; R-Precision and mAP@R are still over R, and a
            first positive that was not met stands right behind the end.
        no_positives: what a query without positives means: an error, or "leave_out".

    Raises:
        MetricError: K is below 1; ids are no integers; a query has no ranking, or two; a ranking names a positive
            twice; and as ``short`` and ``no_positives`` say, with the query named.
    """
    return score_ranked(
        ArrayRankings(query_ids, items),
        positives,
        ks=ks,
        by_r=by_r,
        median_rank=median_rank,
        short=short,
        no_positives=no_positives,
    )


def score_ranked(
    rankings: Rankings,
    positives: Positives,
    *,
    ks: Sequence[int] = (1, 5, 10),
    by_r: bool = True,
    median_rank: bool = False,
    short: Short = "raise",
    no_positives: NoPositives = "raise",
) -> tuple[QueryValues, ...]:
    """As :func:`score_queries`, for rankings of any form."""
    refuse_low(ks)
    scored = with_positives(positives, no_positives)
    rows = rankings.rows_of(scored.query_ids)
    if short == "raise" and (ks or by_r):
        _refuse_short(scored, rankings.lengths(rows), ks, by_r=by_r)
    found = _values_of_heads(rankings, rows, scored, ks, by_r=by_r) if ks or by_r else {}
    left_out = len(positives) - len(scored)
    values = [QueryValues(name, scored.query_ids, each, left_out=left_out) for name, each in found.items()]
    if median_rank:
        ranks = _first_ranks(rankings, rows, scored, short)
        values.append(
            QueryValues(MEDIAN_RANK, scored.query_ids, ranks, statistic=Statistic.MEDIAN, left_out=left_out)
        )
    return tuple(values)


def _values_of_heads(
    rankings: Rankings, rows: Rows, positives: Positives, ks: Sequence[int], *, by_r: bool
) -> dict[str, Scores]:
    names = [recall_name(k) for k in ks] + [R_PRECISION, MAP_AT_R] * by_r
    values = {name: np.zeros(len(positives)) for name in names}
    for block in _blocks(positives, ks, by_r=by_r):
        part = _rows(positives, block)
        found = relevance(rankings.block(rows[block], 0, _head(part, ks, by_r=by_r)), part)
        for k in ks:
            values[recall_name(k)][block] = found.hits[:, :k].any(axis=1)
        if by_r:
            values[R_PRECISION][block] = r_precisions(found)
            values[MAP_AT_R][block] = average_precisions_at_r(found)
    return values


def _first_ranks(rankings: Rankings, rows: Rows, positives: Positives, short: Short) -> Scores:
    ranks = first_ranks(rankings, positives).ranks
    missing = np.flatnonzero(ranks == 0)
    if len(missing):
        lengths = rankings.lengths(rows[missing])
        if short == "raise":
            raise MetricError(
                f"no positive of query {positives.query_ids[missing[0]]} is among the {lengths[0]} items that its "
                f"ranking names ({len(missing)} of {len(ranks)} queries are so), so the median rank is not known; "
                "rank deeper, or count a missing positive as right behind the end (short='zero')"
            )
        ranks[missing] = lengths + 1
    return ranks.astype(np.float64)


def recall_name(k: int) -> str:
    """Of Recall@K, as :class:`QueryValues` names it."""
    return f"R@{k}"


def r_precisions(found: Relevance) -> Scores:
    """R-Precision of each query: (Q,). Places beyond what was read are misses."""
    return np.asarray(_within_r(found).sum(axis=1) / found.counts, dtype=np.float64)


def average_precisions_at_r(found: Relevance) -> Scores:
    """AP@R of each query: (Q,). Places beyond what was read are misses."""
    hits = _within_r(found)
    precision = np.cumsum(hits, axis=1) / np.arange(1, found.depth + 1)  # (Q, depth)
    return np.asarray((precision * hits).sum(axis=1) / found.counts, dtype=np.float64)


def _within_r(found: Relevance) -> NDArray[np.bool_]:
    inside: NDArray[np.bool_] = found.hits & (np.arange(found.depth) < found.counts[:, None])
    return inside


def with_positives(positives: Positives, no_positives: NoPositives) -> Positives:
    """The queries to score; MetricError where one has no positives and that was not allowed, or none is left."""
    empty = positives.query_ids[positives.counts == 0]
    if len(empty) and no_positives == "raise":
        raise MetricError(
            f"query {empty[0]} has no positives ({len(empty)} of {len(positives)} have none), "
            "so its score is undefined; leave it out"
        )
    scored = positives.with_positives() if len(empty) else positives
    if not len(scored):
        raise MetricError("no query has a positive, so there is nothing to score")
    return scored


def refuse_low(ks: Sequence[int]) -> None:
    """MetricError where a K is below 1."""
    for k in ks:
        if k < 1:
            raise MetricError(f"K is {k}, but ranks start at 1")


def _refuse_short(positives: Positives, lengths: Ids, ks: Sequence[int], *, by_r: bool) -> None:
    deepest = max(ks, default=0)
    shortest = int(lengths.argmin())
    if lengths[shortest] < deepest:
        raise MetricError(
            f"Recall@{deepest} needs {deepest} ranked items, but the rankings end at {lengths[shortest]} "
            f"(query {positives.query_ids[shortest]}); rank deeper, or count the missing places as misses "
            "(short='zero')"
        )
    lacking = positives.counts - lengths
    worst = int(lacking.argmax())
    if by_r and lacking[worst] > 0:
        raise MetricError(
            f"query {positives.query_ids[worst]} has {positives.counts[worst]} positives, "
            f"but its ranking ends at {lengths[worst]}; rank deeper, or count the missing places as misses "
            "(short='zero')"
        )


def _head(positives: Positives, ks: Sequence[int], *, by_r: bool) -> int:
    return max([*ks, int(positives.counts.max()) if by_r else 0])


def _blocks(positives: Positives, ks: Sequence[int], *, by_r: bool) -> Iterator[slice]:
    each = max(1, -(-len(positives.item_ids) // len(positives)))
    size = max(1, _CELLS // (each * max(1, _head(positives, ks, by_r=by_r))))
    for start in range(0, len(positives), size):
        yield slice(start, min(start + size, len(positives)))


def _rows(positives: Positives, block: slice) -> Positives:
    offsets: Ids = positives.offsets[block.start : block.stop + 1]
    return Positives(
        positives.query_ids[block], offsets - offsets[0], positives.item_ids[offsets[0] : offsets[-1]]
    )
