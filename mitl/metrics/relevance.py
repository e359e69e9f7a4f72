"""Where the positives stand in the rankings: the one table that every metric reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.metrics.positives import Ids, Positives

Short = Literal["raise", "zero"]
"""A ranking that ends too early: refuse it, or count the missing places as misses."""

NoPositives = Literal["raise", "leave_out"]
"""A query without positives: refuse it, or leave it out of the mean."""


@dataclass(frozen=True, slots=True, eq=False)
class Relevance:
    """Which places of each ranking hold a positive: ``hits`` (Q, depth); ``counts`` (Q,) is R of each."""

    query_ids: Ids
    hits: NDArray[np.bool_]
    counts: Ids

    @property
    def depth(self) -> int:
        """How many places of each ranking were read."""
        return int(self.hits.shape[1])


def locate_rows(query_ids: NDArray[Any], positives: Positives) -> Ids:
    """The ranking row of each query of ``positives``: (Q,). Rankings of other queries are not looked at.

    Raises:
        MetricError: a query has no ranking, or has two.
    """
    order = np.argsort(query_ids, kind="stable")
    ordered = np.asarray(query_ids)[order]
    twice = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(twice):
        raise MetricError(f"query {ordered[twice[0]]} has two rankings; keep one")
    if not len(ordered) and len(positives):
        raise MetricError(f"no rankings were given for the {len(positives)} queries")
    places = np.minimum(np.searchsorted(ordered, positives.query_ids), len(ordered) - 1)
    missing = ordered[places] != positives.query_ids
    if missing.any():
        first = positives.query_ids[missing][0]
        raise MetricError(
            f"query {first} has no ranking ({int(missing.sum())} of {len(positives)} queries have none); "
            "rank them, or leave them out of the positives"
        )
    return np.asarray(order[places], dtype=np.int64)


def relevance(items: NDArray[Any], positives: Positives, query_ids: Ids | None = None) -> Relevance:
    """Which places of ``items`` (Q, depth), best first, hold a positive of that row's query.

    Row ``i`` of ``items`` belongs to query ``i`` of ``positives``.

    Raises:
        MetricError: a row names the same positive twice (it would be rewarded twice).
    """
    counts = positives.counts
    hits = np.zeros(items.shape, dtype=np.bool_)
    if items.size and len(positives.item_ids):
        hits = _members(items, positives)
        _refuse_repeats(items, hits, positives.query_ids)
    return Relevance(positives.query_ids, hits, counts)


def _members(items: NDArray[Any], positives: Positives) -> NDArray[np.bool_]:
    """Look (row, item) up among the positives' keys, which are sorted because rows and items are."""
    items = np.asarray(items, dtype=np.int64)
    low, high = int(positives.item_ids.min()), int(positives.item_ids.max())
    span = high - low + 1
    if span > np.iinfo(np.int64).max // max(len(positives), 1):
        values, codes = np.unique(positives.item_ids, return_inverse=True)
        places = np.minimum(np.searchsorted(values, items), len(values) - 1)
        recoded = np.where(values[places] == items, places, -1)
        return _members(recoded, Positives(positives.query_ids, positives.offsets, codes.astype(np.int64)))
    keys = positives.rows * span + (positives.item_ids - low)  # (P,)
    inside = (items >= low) & (items <= high)  # so that no foreign item can wrap into another row's keys
    row_starts = np.arange(len(items), dtype=np.int64)[:, None] * span
    wanted = np.where(inside, items - low, 0) + row_starts  # (Q, depth)
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    found: NDArray[np.bool_] = (keys[places] == wanted) & inside
    return found


def _refuse_repeats(items: NDArray[Any], hits: NDArray[np.bool_], query_ids: Ids) -> None:
    rows, columns = np.nonzero(hits)
    named = np.asarray(items)[rows, columns]
    order = np.lexsort((named, rows))
    rows, named = rows[order], named[order]
    twice = np.flatnonzero((rows[1:] == rows[:-1]) & (named[1:] == named[:-1]))
    if len(twice):
        place = twice[0]
        raise MetricError(f"the ranking of query {query_ids[rows[place]]} names item {named[place]} twice")
