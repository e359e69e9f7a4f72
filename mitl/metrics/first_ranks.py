"""The rank of each query's first positive, among all items or among some, by reading no further than it stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.metrics.positives import Ids, Positives, rising
from mitl.metrics.ranked import Rankings
from mitl.metrics.relevance import relevance

_CELLS = 1 << 18
"""Pairs of a positive and a place that are compared at once: some MB."""
_FIRST_PLACES, _WIDER = 64, 4
"""Places read first, and how many times more each time for the queries that are not done."""
_TABLE = 1 << 22
"""Widest range of ids for which a table of members is kept."""


class Members:
    """A set of item ids that arrays are asked against."""

    def __init__(self, item_ids: Ids) -> None:
        self._ids = rising(item_ids)
        low, high = (int(self._ids[0]), int(self._ids[-1])) if len(self._ids) else (0, 0)
        self._bounds = low - 1, high + 1
        self._table: NDArray[np.bool_] | None = None
        if high - low < _TABLE:
            self._table = np.zeros(high - low + 3, dtype=np.bool_)
            self._table[self._ids - self._bounds[0]] = True

    def __len__(self) -> int:
        return len(self._ids)

    def hold(self, items: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of these ids are members; of the same shape."""
        if self._table is None:
            return np.isin(items, self._ids)
        low, high = self._bounds
        if items.dtype != np.int64:
            limits = np.iinfo(items.dtype)
            if low < limits.min or high > limits.max:
                items = items.astype(np.int64)
        return np.asarray(self._table[np.clip(items, low, high) - low])


@dataclass(frozen=True, slots=True, eq=False)
class FirstRanks:
    """For each query the rank of its first positive among the members, (Q,); 0 where none was met.

    ``seen`` (Q,) is how many members were read at least.
    """

    ranks: Ids
    seen: Ids


def first_ranks(
    rankings: Rankings, positives: Positives, *, members: Members | None = None, enough: int | None = None
) -> FirstRanks:
    """Ranks of the queries of ``positives``, each of which has one at least.

    Args:
        members: items that are counted; None for all. A positive that is none of them is passed over.
        enough: members after which a query's further ranking does not matter; None reads on to its first positive.

    Raises:
        MetricError: a query has no ranking or two, or a ranking names a positive twice in what was read.
    """
    rows = rankings.rows_of(positives.query_ids)
    lengths = rankings.lengths(rows)
    ranks, seen = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    start, stop = 0, enough if enough and members is None else _FIRST_PLACES
    active = np.arange(len(rows))
    while len(active):
        stop = min(stop, int(lengths[active].max()))
        for part in _parts(positives.counts[active], stop - start):
            chosen = active[part]
            items = rankings.block(rows[chosen], start, stop)
            ended = stop - np.maximum(start, np.minimum(stop, lengths[chosen]))  # places beyond the end
            _read(items, positives.take(chosen), members, ended, chosen, ranks, seen)
        done = (ranks[active] > 0) | (lengths[active] <= stop)
        if enough is not None:
            done |= seen[active] >= enough
        active = active[~done]
        start, stop = stop, _WIDER * stop
    return FirstRanks(ranks, seen)


def _read(
    items: NDArray[Any],
    positives: Positives,
    members: Members | None,
    ended: Ids,
    chosen: Ids,
    ranks: Ids,
    seen: Ids,
) -> None:
    """Bring the ranks and counts of some queries up to date with their next places, (n, width)."""
    hits = relevance(items, positives).hits
    if members is None:
        inside_until = np.broadcast_to(np.arange(1, items.shape[1] + 1), items.shape)
        total = items.shape[1] - ended
    else:
        inside = members.hold(items)
        hits &= inside
        inside_until = np.cumsum(inside, axis=1, dtype=np.int32)
        total = inside_until[:, -1]
    place = hits.argmax(axis=1)
    every = np.arange(len(items))
    met = hits[every, place]
    ranks[chosen] = np.where(met, seen[chosen] + inside_until[every, place], 0)
    seen[chosen] += total


def _parts(counts: Ids, width: int) -> Iterator[slice]:
    """Runs of queries whose positives times the width stay within ``_CELLS``, one query at least."""
    work = np.cumsum(np.maximum(counts, 1) * max(width, 1))
    start = 0
    while start < len(counts):
        before = work[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(work, before + _CELLS, side="right")))
        yield slice(start, stop)
        start = stop
