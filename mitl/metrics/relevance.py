"""Where the positives stand in the rankings: the one table that every metric reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.metrics.positives import Ids, Positives
from mitl.metrics.ranked import locate_rows as _locate_rows

Short = Literal["raise", "zero"]
"""A ranking that ends too early: refuse it, or count the missing places as misses."""

NoPositives = Literal["raise", "leave_out"]
"""A query without positives: refuse it, or leave it out of the mean."""

_FEW = 32
"""Positives per query up to which comparing each with all places is faster than looking all places up."""


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
    return _locate_rows(query_ids, positives.query_ids)


def relevance(items: NDArray[Any], positives: Positives, query_ids: Ids | None = None) -> Relevance:
    """Which places of ``items`` (Q, depth), best first, hold a positive of that row's query.

    Row ``i`` of ``items`` belongs to query ``i`` of ``positives``.

    Raises:
        MetricError: a row names the same positive twice (it would be rewarded twice).
    """
    counts = positives.counts
    hits = np.zeros(items.shape, dtype=np.bool_)
    if items.size and len(positives.item_ids):
        few = len(positives.item_ids) <= _FEW * len(positives)
        hits = _compared(items, positives) if few else _looked_up(items, positives)
    return Relevance(positives.query_ids, hits, counts)


def _compared(items: NDArray[Any], positives: Positives) -> NDArray[np.bool_]:
    """Each positive against all places of its query's ranking."""
    rows = positives.rows
    wanted, items = _same_type(positives.item_ids, items)
    one_each = len(rows) == len(items) and np.array_equal(rows, np.arange(len(rows)))
    equal = (items if one_each else items[rows]) == wanted[:, None]  # (P, depth)
    found, places = np.divmod(np.flatnonzero(equal), items.shape[1])
    twice = np.flatnonzero(found[1:] == found[:-1])
    if len(twice):
        _refuse_repeat(positives, int(found[twice[0]]))
    hits = np.zeros(items.shape, dtype=np.bool_)
    hits[rows[found], places] = True
    return hits


def _same_type(wanted: Ids, items: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both in the type of the items where it holds the wanted ids, for comparing without conversion."""
    limits = np.iinfo(items.dtype) if items.dtype.kind in "iu" else np.iinfo(np.int64)
    if items.dtype.kind in "iu" and limits.min <= wanted.min() and wanted.max() <= limits.max:
        return wanted.astype(items.dtype), items
    return wanted, items.astype(np.int64)


def _looked_up(items: NDArray[Any], positives: Positives) -> NDArray[np.bool_]:
    hits = _members(items, positives)
    rows, columns = np.nonzero(hits)
    named = np.asarray(items)[rows, columns]
    order = np.lexsort((named, rows))
    rows, named = rows[order], named[order]
    twice = np.flatnonzero((rows[1:] == rows[:-1]) & (named[1:] == named[:-1]))
    if len(twice):
        row, item = int(rows[twice[0]]), int(named[twice[0]])
        place = positives.offsets[row] + np.searchsorted(positives.of(positives.query_ids[row]), item)
        _refuse_repeat(positives, int(place))
    return hits


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
    wanted = np.where(inside, items, low) - low + row_starts  # (Q, depth)
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    found: NDArray[np.bool_] = (keys[places] == wanted) & inside
    return found


def _refuse_repeat(positives: Positives, place: int) -> None:
    query = positives.query_ids[np.searchsorted(positives.offsets, place, side="right") - 1]
    raise MetricError(f"the ranking of query {query} names item {positives.item_ids[place]} twice")
