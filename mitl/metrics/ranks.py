"""The ranks of the positives in rankings: what every retrieval metric is made of. Only the places needed are read."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import places
from mitl.errors import MetricError
from mitl.metrics.positives import Ids, Positives, integer_ids, rising

NOTHING = np.iinfo(np.int64).min
"""Stands at the places beyond the end of a ranking; no item has this id."""


Rows = NDArray[Any]
"""(n,) what a form of rankings finds its rows by: their numbers, or the lists themselves."""


class Rankings(Protocol):
    """Some queries' rankings, best first."""

    def rows_of(self, wanted: Ids) -> Rows:
        """Where the rankings of the wanted queries, (Q,) rising, are: (Q,), for the other methods.

        Raises:
            MetricError: a query has no ranking, or has two.
        """
        ...

    def lengths(self, rows: Rows) -> Ids:
        """How many items these rankings name: (n,)."""
        ...

    def block(self, rows: Rows, start: int, stop: int) -> NDArray[Any]:
        """The items at places ``start + 1`` to ``stop`` of these rows: (n, stop - start); ``NOTHING`` where none is."""
        ...


class ArrayRankings:
    """One row of ``items`` (N, depth) for each of ``query_ids`` (N,).

    Raises:
        MetricError: the shapes do not fit, rows differ in length, or ids are not integers.
    """

    def __init__(self, query_ids: NDArray[Any], items: NDArray[Any]) -> None:
        try:
            items = np.asarray(items)
        except ValueError as error:
            raise MetricError("rankings differ in length; give ListRankings({query id: items})") from error
        if items.ndim != 2 or len(items) != len(query_ids):
            raise MetricError(f"rankings are {items.shape}, but {len(query_ids)} query ids were given")
        self._query_ids = integer_ids(query_ids, "query")
        self._items = (
            items if items.dtype.kind in "iu" and items.dtype != np.uint64 else integer_ids(items, "item")
        )

    def rows_of(self, wanted: Ids) -> Rows:
        """Row numbers; see ``Rankings``."""
        return locate_rows(self._query_ids, wanted)

    def lengths(self, rows: Rows) -> Ids:
        """All rows are as wide as the array."""
        return np.full(len(rows), self._items.shape[1], dtype=np.int64)

    def block(self, rows: Rows, start: int, stop: int) -> NDArray[Any]:
        """See ``Rankings``."""
        items = self._items[rows, start : min(stop, self._items.shape[1])]
        missing = stop - start - items.shape[1]
        if missing <= 0:
            return items
        return np.pad(items.astype(np.int64), ((0, 0), (0, missing)), constant_values=NOTHING)


class ListRankings:
    """Rankings by query id: lists, tuples or 1-D arrays of item ids, of any length each.

    Raises:
        MetricError: an id is not an integer; a ranking is not a sequence.
    """

    def __init__(self, rankings: Mapping[int, Sequence[int]]) -> None:
        self._rankings = rankings
        for query, ranking in rankings.items():
            integer_ids([query], "query")
            _refuse_other_forms([query], [ranking])
            break  # the others are looked at when they are read

    def rows_of(self, wanted: Ids) -> Rows:
        """The lists themselves; see ``Rankings``."""
        if not len(self._rankings) and len(wanted):
            raise MetricError("no rankings were given, so none of the queries has one")
        try:
            lists = np.fromiter(map(self._rankings.__getitem__, wanted.tolist()), object, len(wanted))
            _refuse_other_forms(wanted, lists)
            return lists
        except KeyError:
            missing = [query for query in wanted.tolist() if query not in self._rankings]
            integer_ids(list(self._rankings), "query")
            raise _no_ranking(missing[0], len(missing), len(wanted)) from None

    def lengths(self, rows: Rows) -> Ids:
        """See ``Rankings``."""
        return np.fromiter(map(len, rows), np.int64, len(rows))

    def block(self, rows: Rows, start: int, stop: int) -> NDArray[Any]:
        """See ``Rankings``."""
        lists: list[Sequence[int]] = rows.tolist()
        width = stop - start
        try:
            return _integers(lists, start, stop, width * len(lists)).reshape(len(lists), width)
        except _TooFewError:
            inside = np.arange(start, stop) < self.lengths(rows)[:, None]
            items = np.full((len(lists), width), NOTHING)
            items[inside] = _integers(lists, start, stop, int(inside.sum()))
            return items


def locate_rows(query_ids: NDArray[Any], wanted: Ids) -> Ids:
    """The ranking row of each wanted query: (Q,). Rankings of other queries are not looked at.

    Args:
        wanted: (Q,) rising.

    Raises:
        MetricError: a query has no ranking, or has two.
    """
    ranked = np.asarray(query_ids)
    if len(ranked) == len(wanted) and np.array_equal(ranked, wanted):
        return np.arange(len(wanted))
    order = np.argsort(ranked, kind="stable")
    ordered = ranked[order]
    twice = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(twice):
        raise MetricError(f"query {ordered[twice[0]]} has two rankings; keep one")
    if not len(ordered) and len(wanted):
        raise MetricError("no rankings were given, so none of the queries has one")
    at = places(ordered, wanted)
    missing = at < 0
    if missing.any():
        raise _no_ranking(wanted[missing][0], int(missing.sum()), len(wanted))
    return np.asarray(order[at], dtype=np.int64)


def _no_ranking(query: int, missing: int, wanted: int) -> MetricError:
    return MetricError(
        f"query {query} has no ranking ({missing} of {wanted} queries have none); "
        "rank them, or leave them out of the positives"
    )


class _TooFewError(Exception):
    """A list ends before the places that were asked for."""


def _refuse_other_forms(queries: Sequence[int] | Ids, rankings: Sequence[object] | Rows) -> None:
    if set(map(type, rankings)) <= {list, tuple, np.ndarray}:  # as good as always
        return
    for query, ranking in zip(queries, rankings, strict=True):
        if isinstance(ranking, (str, bytes, Mapping)) or not hasattr(ranking, "__getitem__"):
            raise MetricError(
                f"the ranking of query {query} is a {type(ranking).__name__}; give a list of item ids, best first"
            )


def _integers(lists: Sequence[Sequence[int]], start: int, stop: int, count: int) -> Ids:
    """The ``count`` items at some places of all lists, one list behind the other."""
    found = array("q")  # refuses what numpy itself reads: the text '42' as 42, and 4.5 as 4
    try:
        for items in map(itemgetter(slice(start, stop)), lists):
            found.fromlist(items if type(items) is list else list(items))
    except (TypeError, OverflowError) as error:
        read = (item for ranking in lists for item in ranking[start:stop])
        integer_ids(np.fromiter(read, np.dtype(object)), "item")
        raise MetricError(f"item ids must be integers of 64 bits: {error}") from error
    if len(found) < count:
        raise _TooFewError
    return np.asarray(found)


_FEW = 32
"""Positives per query up to which comparing each with all places is faster than looking all places up."""
_CELLS = 1 << 18
"""Pairs of a positive and a place that are compared at once: some MB."""
_FIRST_PLACES, _WIDER = 64, 4
"""Places read first, and how many times more each time for the queries that are not done."""
_TABLE = 1 << 22
"""Widest range of ids for which a table of members is kept."""


@dataclass(frozen=True, slots=True, eq=False)
class PositiveRanks:
    """Where the positives of some queries stand, each query having one at least; a rank that is not known is 0.

    What lies beyond the places that a metric asks for, is not in the gallery or was not looked for is not known.
    """

    positives: Positives
    ranks: Ids
    """(P,) of each positive, from 1, in the order of ``positives.item_ids``."""
    first: Ids
    """(Q,) of each query's first positive."""
    ends: Ids
    """(Q,) how many items each ranking names, or how many were read."""
    depth: int
    """The places of the rankings that were asked for."""

    @classmethod
    def of(cls, positives: Positives, ranks: Ids, ends: Ids, depth: int) -> PositiveRanks:
        """From the ranks of all positives."""
        if len(ranks) == len(positives):  # one positive each
            return cls(positives, ranks, ranks, ends, depth)
        unknown = np.iinfo(np.int64).max
        first = np.minimum.reduceat(np.where(ranks > 0, ranks, unknown), positives.offsets[:-1])
        return cls(positives, ranks, np.where(first < unknown, first, 0), ends, depth)

    @property
    def counts(self) -> Ids:
        """(Q,) R, the number of positives."""
        return self.positives.counts

    def hits(self, within: int | Ids) -> NDArray[np.bool_]:
        """(Q, depth) which places hold a positive; those beyond ``within`` (one for all, or (Q,)) are left out."""
        rows = self.positives.rows
        limits = np.broadcast_to(within, len(self.positives))[rows]
        inside = np.flatnonzero((self.ranks > 0) & (self.ranks <= limits))
        hits = np.zeros((len(self.positives), self.depth), dtype=np.bool_)
        hits[rows[inside], self.ranks[inside] - 1] = True
        return hits


def ranks_in(items: NDArray[Any], positives: Positives) -> Ids:
    """(P,) the rank of each positive among ``items`` (Q, depth), best first; 0 where its query's row lacks it.

    Row ``i`` of ``items`` belongs to query ``i`` of ``positives``.

    Raises:
        MetricError: a row names the same positive twice (it would be rewarded twice).
    """
    ranks = np.zeros(len(positives.item_ids), np.int64)
    if not items.size or not len(ranks):
        return ranks
    few = len(positives.item_ids) <= _FEW * len(positives)
    met, at = _compared(items, positives) if few else _looked_up(items, positives)
    ranks[met] = at + 1
    if np.count_nonzero(ranks) < len(met):
        ordered = np.sort(met)
        twice = ordered[1:][ordered[1:] == ordered[:-1]][0]
        query = positives.query_ids[np.searchsorted(positives.offsets, twice, side="right") - 1]
        raise MetricError(f"the ranking of query {query} names item {positives.item_ids[twice]} twice")
    return ranks


def _compared(items: NDArray[Any], positives: Positives) -> tuple[Ids, Ids]:
    """Each positive against all places of its query's ranking: the positives that are met, and where."""
    rows, ids = positives.rows, positives.item_ids
    limits = np.iinfo(items.dtype) if items.dtype.kind in "iu" else np.iinfo(np.int64)
    if items.dtype.kind in "iu" and limits.min <= ids.min() and ids.max() <= limits.max:
        ids = ids.astype(items.dtype)  # for comparing without conversion
    else:
        items = items.astype(np.int64)
    one_each = len(rows) == len(items) and np.array_equal(rows, np.arange(len(rows)))
    equal = (items if one_each else items[rows]) == ids[:, None]  # (P, depth)
    met, at = np.divmod(np.flatnonzero(equal), items.shape[1])
    return met, at


def _looked_up(items: NDArray[Any], positives: Positives) -> tuple[Ids, Ids]:
    """The same, by looking (row, item) up among the positives' keys, which are sorted because rows and items are."""
    items = np.asarray(items, dtype=np.int64)
    low, high = int(positives.item_ids.min()), int(positives.item_ids.max())
    span = high - low + 1
    if span > np.iinfo(np.int64).max // max(len(positives), 1):
        values, codes = np.unique(positives.item_ids, return_inverse=True)
        recoded = places(values, items)
        return _looked_up(recoded, Positives(positives.query_ids, positives.offsets, codes.astype(np.int64)))
    keys = positives.rows * span + (positives.item_ids - low)  # (P,)
    inside = (items >= low) & (items <= high)  # so that no foreign item can wrap into another row's keys
    row_starts = np.arange(len(items), dtype=np.int64)[:, None] * span
    item_keys = np.where(inside, items, low) - low + row_starts  # (Q, depth)
    near = np.minimum(np.searchsorted(keys, item_keys), len(keys) - 1)
    rows, at = np.nonzero((keys[near] == item_keys) & inside)
    return near[rows, at], at


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


def first_ranks(
    rankings: Rankings, positives: Positives, *, members: Members | None = None, enough: int | None = None
) -> PositiveRanks:
    """The rank of each query's first positive among the members, by reading no further than it stands.

    ``ends`` is how many members were read at least; the ranks of the further positives are not looked for.

    Args:
        positives: of queries each of which has one at least.
        members: items that are counted; None for all. A positive that is none of them is passed over.
        enough: members after which a query's further ranking does not matter; None reads on to its first positive.

    Raises:
        MetricError: a query has no ranking or two, or a ranking names a positive twice in what was read.
    """
    rows = rankings.rows_of(positives.query_ids)
    lengths = rankings.lengths(rows)
    first, seen = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    start, stop = 0, enough if enough and members is None else _FIRST_PLACES
    active = np.flatnonzero(lengths)
    while len(active):
        stop = min(stop, int(lengths[active].max()))
        for part in runs(positives.counts[active], stop - start):
            chosen = active[part]
            items = rankings.block(rows[chosen], start, stop)
            ended = stop - np.maximum(start, np.minimum(stop, lengths[chosen]))  # places beyond the end
            ranks, read = _first_members(items, positives.take(chosen), members, ended)
            first[chosen] = np.where(ranks > 0, seen[chosen] + ranks, 0)
            seen[chosen] += read
        done = (first[active] > 0) | (lengths[active] <= stop)
        if enough is not None:
            done |= seen[active] >= enough
        active = active[~done]
        start, stop = stop, _WIDER * stop
    return PositiveRanks(positives, np.zeros(len(positives.item_ids), np.int64), first, seen, 0)


def _first_members(
    items: NDArray[Any], positives: Positives, members: Members | None, ended: Ids
) -> tuple[Ids, Ids]:
    """Among some places (n, width): the first positive's rank among the members, (n,), and how many were read."""
    ranks = ranks_in(items, positives)
    if members is None:
        first = PositiveRanks.of(positives, ranks, ended, items.shape[1]).first
        return first, items.shape[1] - ended
    inside_until = np.cumsum(members.hold(items), axis=1, dtype=np.int32)
    ranks[~members.hold(positives.item_ids)] = 0
    first = PositiveRanks.of(positives, ranks, ended, items.shape[1]).first
    among = inside_until[np.arange(len(items)), np.maximum(first, 1) - 1]
    return np.where(first > 0, among, 0), inside_until[:, -1].astype(np.int64)


def runs(counts: Ids, width: int) -> Iterator[slice]:
    """Runs of queries whose positives times the width stay within ``_CELLS``, one query at least."""
    work = np.cumsum(np.maximum(counts, 1) * max(width, 1))
    start = 0
    while start < len(counts):
        before = work[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(work, before + _CELLS, side="right")))
        yield slice(start, stop)
        start = stop
