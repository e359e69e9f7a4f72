"""Which items match each query, as three flat arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Positives:
    """The positives of each query: query ``i`` owns ``item_ids[offsets[i]:offsets[i + 1]]``.

    ``query_ids`` (Q,) rise strictly and decide which queries a metric scores. ``offsets`` is (Q + 1,),
    ``item_ids`` (P,); a query's items rise strictly. A query may own none; its R is then 0.
    """

    query_ids: Ids
    offsets: Ids
    item_ids: Ids

    @property
    def counts(self) -> Ids:
        """R of each query: (Q,)."""
        return np.diff(self.offsets)

    @property
    def rows(self) -> Ids:
        """The query's place for each item: (P,)."""
        return np.repeat(np.arange(len(self.query_ids)), self.counts)

    def __len__(self) -> int:
        return len(self.query_ids)

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
        pairs = np.unique(np.stack([query_ids, item_ids], 1).astype(np.int64), axis=0)  # (P, 2), sorted
        known = np.unique(pairs[:, 0] if queries is None else np.asarray(queries, dtype=np.int64))
        strangers = np.setdiff1d(pairs[:, 0], known)
        if len(strangers):
            raise MetricError(f"query {strangers[0]} has positives, but is not among the queries to score")
        offsets = np.searchsorted(pairs[:, 0], np.append(known, np.iinfo(np.int64).max)).astype(np.int64)
        return cls(known, offsets, np.ascontiguousarray(pairs[:, 1]))

    @classmethod
    def from_mapping(cls, positives: Mapping[int, Iterable[int]]) -> Positives:
        """Positives from ``{query id: item ids}``; a query with no items is kept with R = 0."""
        lists = [np.fromiter(items, dtype=np.int64) for items in positives.values()]
        queries = np.fromiter(positives, dtype=np.int64, count=len(positives))
        items = np.concatenate(lists) if lists else np.empty(0, dtype=np.int64)
        return cls.from_pairs(np.repeat(queries, [len(part) for part in lists]), items, queries=queries)


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
