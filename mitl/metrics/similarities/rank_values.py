"""The metrics of queries whose positives' ranks are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mitl.errors import MetricError
from mitl.metrics.positives import Ids, Positives
from mitl.metrics.query_values import QueryValues, Statistic
from mitl.metrics.relevance import Short
from mitl.metrics.retrieval import MAP_AT_R, MEDIAN_RANK, R_PRECISION, Scores, recall_name


@dataclass(frozen=True, slots=True, eq=False)
class PositiveRanks:
    """Ranks (P,) of the positives in full rankings of a gallery; 0 where one is not in it or was not asked for."""

    positives: Positives
    ranks: Ids
    gallery: int
    """How many items it has."""


def values_of_ranks(
    found: PositiveRanks,
    *,
    ks: Sequence[int],
    by_r: bool,
    median_rank: bool,
    short: Short,
    left_out: int = 0,
) -> tuple[QueryValues, ...]:
    """Recall@K, R-Precision and mAP@R, median rank; every query has a positive.

    ``by_r`` needs the ranks of all positives, the others that of the first.

    Raises:
        MetricError: the gallery has fewer items than K or R, or none of a query's positives, and ``short`` is "raise".
    """
    positives, first = found.positives, first_of(found)
    if short == "raise":
        _refuse_small(found, first, ks, by_r=by_r, median_rank=median_rank)
    values = {recall_name(k): ((first > 0) & (first <= k)).astype(np.float64) for k in ks}
    if by_r:
        values[R_PRECISION], values[MAP_AT_R] = _by_r(found)
    named = [QueryValues(name, positives.query_ids, of, left_out=left_out) for name, of in values.items()]
    if median_rank:
        ranks = np.where(first > 0, first, found.gallery + 1).astype(np.float64)
        named.append(
            QueryValues(
                MEDIAN_RANK, positives.query_ids, ranks, statistic=Statistic.MEDIAN, left_out=left_out
            )
        )
    return tuple(named)


def first_of(found: PositiveRanks) -> Ids:
    """The smallest known rank of each query's positives, (Q,); 0 where none is known."""
    unknown = np.iinfo(np.int64).max
    ranks = np.where(found.ranks > 0, found.ranks, unknown)
    first = np.minimum.reduceat(ranks, found.positives.offsets[:-1])
    return np.where(first < unknown, first, 0)


def _by_r(found: PositiveRanks) -> tuple[Scores, Scores]:
    rows, counts = found.positives.rows, found.positives.counts
    within = np.flatnonzero((found.ranks > 0) & (found.ranks <= counts[rows]))
    order = np.lexsort((found.ranks[within], rows[within]))
    rows, ranks = rows[within][order], found.ranks[within][order]
    hits = np.bincount(rows, minlength=len(counts))
    number = np.arange(1, len(rows) + 1) - (np.cumsum(hits) - hits)[rows]
    precision_at = np.bincount(rows, weights=number / ranks, minlength=len(counts))
    return hits / counts, precision_at / counts


def _refuse_small(
    found: PositiveRanks, first: Ids, ks: Sequence[int], *, by_r: bool, median_rank: bool
) -> None:
    positives, gallery = found.positives, found.gallery
    if max(ks, default=0) > gallery:
        raise MetricError(
            f"Recall@{max(ks)} needs {max(ks)} ranked items, but the gallery has {gallery}; "
            "ask for less, or count the missing places as misses (short='zero')"
        )
    longest = int(positives.counts.argmax())
    if by_r and positives.counts[longest] > gallery:
        raise MetricError(
            f"query {positives.query_ids[longest]} has {positives.counts[longest]} positives, but the gallery has "
            f"{gallery} items; count the missing places as misses (short='zero')"
        )
    if median_rank and (first == 0).any():
        query = positives.query_ids[first == 0][0]
        raise MetricError(
            f"the gallery holds no positive of query {query}, so the median rank is not known; leave the query out, "
            "or count a missing positive as right behind the end (short='zero')"
        )
