"""Rankings as they come: one array, or lists by query id. Only the places that a metric needs are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.metrics.positives import Ids, integer_ids

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
        MetricError: the shapes do not fit, or ids are no integers.
    """

    def __init__(self, query_ids: NDArray[Any], items: NDArray[Any]) -> None:
        items = np.asarray(items)
        if items.ndim != 2 or len(items) != len(query_ids):
            raise MetricError(f"rankings are {items.shape}, but {len(query_ids)} query ids were given")
        self._query_ids = integer_ids(query_ids, "query")
        self._items = items if items.dtype.kind in "iu" else integer_ids(items, "item")

    def rows_of(self, wanted: Ids) -> Rows:
        """Row numbers; see ``Rankings``."""
        return locate_rows(self._query_ids, wanted)

    def lengths(self, rows: Rows) -> Ids:
        """All rows are as wide as the array."""
        return np.full(len(rows), self._items.shape[1], dtype=np.int64)

    def block(self, rows: Rows, start: int, stop: int) -> NDArray[Any]:
        """See ``Rankings``."""
        found = self._items[rows, start : min(stop, self._items.shape[1])]
        missing = stop - start - found.shape[1]
        if missing <= 0:
            return found
        return np.pad(found.astype(np.int64), ((0, 0), (0, missing)), constant_values=NOTHING)


class ListRankings:
    """Rankings by query id: lists, tuples or 1-D arrays of item ids, of any length each.

    Raises:
        MetricError: an id is no integer; a ranking is no sequence.
    """

    def __init__(self, rankings: Mapping[int, Sequence[int]]) -> None:
        self._rankings = rankings
        for query, ranking in rankings.items():
            integer_ids([query], "query")
            if isinstance(ranking, (str, bytes)) or not hasattr(ranking, "__getitem__"):
                raise MetricError(
                    f"the ranking of query {query} is a {type(ranking).__name__}; "
                    "give a list of item ids, best first"
                )
            break  # the others are looked at when they are read

    def rows_of(self, wanted: Ids) -> Rows:
        """The lists themselves; see ``Rankings``."""
        if not len(self._rankings) and len(wanted):
            raise MetricError("no rankings were given, so none of the queries has one")
        try:
            return np.fromiter(map(self._rankings.__getitem__, wanted.tolist()), object, len(wanted))
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
        if start == 0:
            _refuse_other_types(lists)
        try:
            return _integers(lists, start, stop, width * len(lists)).reshape(len(lists), width)
        except _TooFewError:
            there = np.arange(start, stop) < self.lengths(rows)[:, None]
            found = np.full((len(lists), width), NOTHING)
            found[there] = _integers(lists, start, stop, int(there.sum()))
            return found


def locate_rows(query_ids: NDArray[Any], wanted: Ids) -> Ids:
    """The ranking row of each wanted query: (Q,). Rankings of other queries are not looked at.

    Args:
        wanted: (Q,) rising.

    Raises:
        MetricError: a query has no ranking, or has two.
    """
    given = np.asarray(query_ids)
    if len(given) == len(wanted) and np.array_equal(given, wanted):
        return np.arange(len(wanted))
    order = np.argsort(given, kind="stable")
    ordered = given[order]
    twice = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(twice):
        raise MetricError(f"query {ordered[twice[0]]} has two rankings; keep one")
    if not len(ordered) and len(wanted):
        raise MetricError("no rankings were given, so none of the queries has one")
    places = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    missing = ordered[places] != wanted
    if missing.any():
        raise _no_ranking(wanted[missing][0], int(missing.sum()), len(wanted))
    return np.asarray(order[places], dtype=np.int64)


def _no_ranking(query: int, missing: int, wanted: int) -> MetricError:
    return MetricError(
        f"query {query} has no ranking ({missing} of {wanted} queries have none); "
        "rank them, or leave them out of the positives"
    )


class _TooFewError(Exception):
    """A list ends before the places that were asked for."""


def _refuse_other_types(lists: Sequence[Sequence[int]]) -> None:
    # numpy reads the text '42' as 42 and cuts 4.5 to 4, so the first item of each list is looked at.
    try:
        kinds = set(map(type, map(itemgetter(0), lists)))
    except IndexError:
        kinds = {type(ranking[0]) for ranking in lists if len(ranking)}
    if not all(issubclass(kind, (int, np.integer)) for kind in kinds):
        integer_ids(np.array([ranking[0] for ranking in lists if len(ranking)], dtype=object), "item")


def _integers(lists: Sequence[Sequence[int]], start: int, stop: int, count: int) -> Ids:
    """The ``count`` items at some places of all lists, one list behind the other."""
    items: Iterator[int]
    if stop == start + 1 and count == len(lists):
        items = map(itemgetter(start), lists)
    else:
        # Slices that are let go at once are cheap; 25,000 of them at a time keep the garbage collector busy.
        items = chain.from_iterable(map(itemgetter(slice(start, stop)), lists))
    try:
        return np.fromiter(items, np.int64, count)
    except IndexError:
        raise _TooFewError from None
    except (TypeError, OverflowError) as error:
        raise MetricError(f"item ids must be integers of 64 bits: {error}") from error
    except ValueError as error:
        if "too short" in str(error):
            raise _TooFewError from None
        raise MetricError(f"item ids must be integers of 64 bits: {error}") from error
