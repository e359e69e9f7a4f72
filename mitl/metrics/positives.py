"""What metrics take and give: which items match each query, as flat arrays, and a value for each query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import places, spans
from mitl.errors import MetricError

Ids = NDArray[np.int64]

Short = Literal["raise", "zero"]
"""A ranking that ends too early: refuse it, or count the missing places as misses."""
NoPositives = Literal["raise", "leave_out"]
"""A query without positives: refuse it, or leave it out of the mean."""


@dataclass(frozen=True, slots=True, eq=False)
class ItemsOfQueries:
    """The items of each query: query ``i`` owns ``item_ids[offsets[i]:offsets[i + 1]]``.

    ``query_ids`` (Q,) rise strictly, ``offsets`` is (Q + 1,), ``item_ids`` (P,); a query's items rise strictly.
    """

    query_ids: Ids
    offsets: Ids
    item_ids: Ids

    @property
    def counts(self) -> Ids:
        """How many items each query owns: (Q,)."""
        return np.diff(self.offsets)

    @property
    def rows(self) -> Ids:
        """The query's place for each item: (P,)."""
        return np.repeat(np.arange(len(self.query_ids)), self.counts)

    def __len__(self) -> int:
        return len(self.query_ids)


@dataclass(frozen=True, slots=True, eq=False)
class Positives(ItemsOfQueries):
    """The positives of each query; ``query_ids`` decide which queries a metric scores.

    A query may own none; its R, of ``counts``, is then 0.
    """

    def of(self, query_id: int) -> Ids:
        """The positives of one query; MetricError where the query is not among these."""
        place = int(np.searchsorted(self.query_ids, query_id))
        if place == len(self.query_ids) or self.query_ids[place] != query_id:
            raise MetricError(f"no query {query_id} among the {len(self)} queries of these positives")
        return self.item_ids[self.offsets[place] : self.offsets[place + 1]]

    def with_positives(self) -> Positives:
        """These without the queries whose R is 0."""
        kept = self.counts > 0
        offsets = np.concatenate([[0], np.cumsum(self.counts[kept])]).astype(np.int64)
        return Positives(self.query_ids[kept], offsets, self.item_ids)

    def take(self, rows: Ids) -> Positives:
        """The queries at these places, which rise."""
        counts = self.counts[rows]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        owned = spans(self.offsets[rows], self.offsets[rows] + counts)
        return Positives(self.query_ids[rows], offsets, self.item_ids[owned])

    def of_queries(self, query_ids: Ids) -> Positives:
        """Those of these queries (rising) that are here."""
        at = places(self.query_ids, query_ids)
        return self.take(at[at >= 0])

    @classmethod
    def from_pairs(cls, query_ids: Ids, item_ids: Ids, *, queries: Ids | None = None) -> Positives:
        """Positives from one (query, item) per place; a pair given twice counts once.

        Args:
            queries: the queries to score, where that is more than those that have a positive.

        Raises:
            MetricError: the arrays differ in length, or a pair's query is not among ``queries``.
        """
        if len(query_ids) != len(item_ids):
            raise MetricError(f"{len(query_ids)} query ids, but {len(item_ids)} item ids; pairs need both")
        of, item = integer_ids(query_ids, "query"), integer_ids(item_ids, "item")
        order = np.lexsort((item, of))
        of, item = of[order], item[order]
        first = np.ones(len(of), dtype=np.bool_)
        first[1:] = (of[1:] != of[:-1]) | (item[1:] != item[:-1])
        of, item = of[first], item[first]
        all_queries = rising(of if queries is None else integer_ids(queries, "query"))
        starts = np.searchsorted(of, all_queries)
        listed = np.zeros(len(of), dtype=np.bool_)
        if len(all_queries):
            listed = all_queries[np.searchsorted(all_queries[:-1], of)] == of
        if not listed.all():
            raise MetricError(f"query {of[~listed][0]} has positives, but is not among the queries to score")
        return cls(all_queries, np.append(starts, len(of)).astype(np.int64), item)

    @classmethod
    def from_mapping(cls, positives: Mapping[int, Iterable[int]]) -> Positives:
        """Positives from ``{query id: item ids}``; a query with no items is kept with R = 0."""
        lists = [list(items) for items in positives.values()]
        queries = integer_ids(list(positives), "query")
        items = integer_ids(list(chain.from_iterable(lists)), "item")
        return cls.from_pairs(np.repeat(queries, [len(part) for part in lists]), items, queries=queries)


def integer_ids(ids: Sequence[int] | NDArray[Any], what: str) -> Ids:
    """Ids as (N,) int64.

    Args:
        what: "query" or "item", for the message.

    Raises:
        MetricError: they are not integers; text that looks like a number is not taken for one.
    """
    array = np.asarray(ids)
    if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        raise MetricError(f"{what} ids must be integers of 64 bits with a sign, but {array.max()} is larger")
    if array.dtype == object or (array.dtype.kind not in "iu" and array.size):
        wrong = next(
            (value for value in array.flat if not isinstance(value, (int, np.integer))), array.flat[0]
        )
        raise MetricError(
            f"{what} ids must be integers, but {_plain(wrong)!r} is of type {type(_plain(wrong)).__name__}; "
            "give the numbers of the data set, or number its ids with `mitl.metrics.locate`"
        )
    return array.astype(np.int64)


def rising(ids: Ids) -> Ids:
    """The same ids in order, each once; numpy's own hashes integers, which takes longer."""
    ordered = np.sort(ids)
    first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """Positives in a gallery's numbers, with how many of them the gallery does not hold."""

    positives: Positives
    outside_gallery: int


def locate(
    positives: Mapping[str, Iterable[str]], query_index: Mapping[str, int], item_index: Mapping[str, int]
) -> Located:
    """Positives by external id, told in the numbers that the rankings use.

    An item that the gallery lacks still counts in R, as in the official scores, so it gets a number above all
    others that no ranking can hold.

    Raises:
        MetricError: a query is not in ``query_index``.
    """
    first_free = max(item_index.values(), default=-1) + 1
    outside: dict[str, int] = {}
    numbered: dict[int, list[int]] = {}
    for query, items in positives.items():
        if query not in query_index:
            raise MetricError(f"the positives list query {query!r}, which this data set does not hold")
        numbers = numbered.setdefault(query_index[query], [])
        for item in items:
            number = item_index.get(item)
            if number is None:
                number = outside.setdefault(item, first_free + len(outside))
            numbers.append(number)
    return Located(Positives.from_mapping(numbered), len(outside))


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


_SPAN = 1 << 24
"""Ids that lie within this span are looked up in a table, others by bisection."""


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Where each of N different ids stands; what the ids are of is told in ``what``."""

    what: str
    ids: Ids
    _low: int
    _table: NDArray[np.int32]
    """Place of each id from ``_low`` on, -1 where there is none; empty where ids lie too far apart."""
    _order: Ids

    @classmethod
    def of(cls, ids: NDArray[Any], what: str) -> Places:
        """MetricError where an id comes twice, or there are none."""
        ids = np.asarray(ids, dtype=np.int64)
        if not len(ids):
            raise MetricError(f"no {what} were given")
        order = np.argsort(ids, kind="stable")
        twice = np.flatnonzero(ids[order][1:] == ids[order][:-1])
        if len(twice):
            raise MetricError(f"{what} hold id {ids[order][twice[0]]} twice; keep one")
        low, span = int(ids.min()), int(ids.max()) - int(ids.min()) + 1
        table = np.empty(0, dtype=np.int32)
        if span <= _SPAN:
            table = np.full(span, -1, dtype=np.int32)
            table[ids - low] = np.arange(len(ids))
        return cls(what, ids, low, table, order)

    def __len__(self) -> int:
        return len(self.ids)

    def find(self, wanted: NDArray[Any]) -> NDArray[np.integer[Any]]:
        """The place of each wanted id, -1 where it is not among these; of any shape."""
        if not len(self._table):
            at = places(self.ids[self._order], wanted)
            return np.asarray(np.where(at >= 0, self._order[at], -1))
        shifted = np.asarray(wanted, dtype=np.int64) - self._low
        inside = (shifted >= 0) & (shifted < len(self._table))
        if inside.all():
            return np.asarray(self._table[shifted])
        return np.asarray(np.where(inside, self._table[np.where(inside, shifted, 0)], -1))

    def need(self, wanted: NDArray[Any], whose: str) -> NDArray[np.integer[Any]]:
        """As ``find``; MetricError where an id is not among these. ``whose`` names what the ids are from."""
        at = self.find(wanted)
        missing = at < 0
        if missing.any():
            first = np.asarray(wanted)[missing].flat[0]
            raise MetricError(f"{whose} name {first}, which is not among the {len(self)} {self.what}")
        return at
