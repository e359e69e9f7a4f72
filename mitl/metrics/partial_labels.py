"""The labels of one direction of a pool of which not every pair is judged."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import Flags, Floats, places
from mitl.errors import MetricError
from mitl.metrics.positives import Ids
from mitl.metrics.ranks import NOTHING

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PartialLabels:
    """What is known of one direction's labels: ``rows[i]`` is a place in ``query_ids``, ``items[i]`` a gallery item.

    Listed pairs are in order of row, then item, each once; what is not listed has the chance ``remainder``.
    """

    query_ids: Ids
    """(Q,) rising."""
    gallery: int
    """Items that each query searches."""
    rows: Ids
    items: Ids
    chances: Floats
    """(P,) that the pair is a match: 0 or 1 where it is judged."""
    judged: Flags
    """(P,)"""
    remainder: float = 0.0
    weights: Floats | None = None
    """(P,) 1 / inclusion, where an audit's sample is drawn from these pairs; 1 where None."""
    remainder_weight: float = 1.0

    def __post_init__(self) -> None:
        wrong = ~((self.chances >= 0) & (self.chances <= 1))
        if wrong.any() or not 0 <= self.remainder <= 1:
            chance = self.chances[wrong][0] if wrong.any() else self.remainder
            raise MetricError(f"the chance of a match is {chance}; it should be from 0 to 1")

    @classmethod
    def of(
        cls,
        query_ids: Ids,
        gallery: int,
        pairs: tuple[Ids, Ids],
        chances: Floats,
        judged: Flags,
        *,
        remainder: float = 0.0,
    ) -> PartialLabels:
        """From pairs (query ids, items) in any order; those of other queries are left out.

        Raises:
            MetricError: a pair is listed twice, or a chance is not from 0 to 1.
        """
        rows = places(query_ids, pairs[0])
        kept = np.flatnonzero(rows >= 0)
        order = kept[np.lexsort((pairs[1][kept], rows[kept]))]
        rows, items = rows[order], np.asarray(pairs[1][order], np.int64)
        twice = np.flatnonzero((rows[1:] == rows[:-1]) & (items[1:] == items[:-1]))
        if len(twice):
            raise MetricError(
                f"the pair of query {query_ids[rows[twice[0]]]} and item {items[twice[0]]} is listed twice"
            )
        chosen = np.asarray(chances[order], np.float64), np.asarray(judged[order], np.bool_)
        return cls(query_ids, gallery, rows, items, *chosen, remainder)

    def __len__(self) -> int:
        return len(self.query_ids)

    @property
    def unlisted(self) -> Counts:
        """(Q,) gallery items that each query has no listed pair with."""
        return np.maximum(self.gallery - np.bincount(self.rows, minlength=len(self)), 0)

    @property
    def positives(self) -> Counts:
        """(Q,) matches among the judged pairs."""
        sure = self.judged & (self.chances >= 1)
        return np.bincount(self.rows[sure], minlength=len(self)).astype(np.int64)

    def find(self, rows: Ids, items: Ids) -> Ids:
        """Where these pairs are listed, of the shape of ``items`` (n, …) with ``rows`` (n,); -1 where they are not."""
        if not len(self.items):
            return np.full(np.shape(items), -1)
        known = np.unique(self.items)
        at = places(known, items)
        keys = self.rows * len(known) + np.searchsorted(known, self.items)
        wanted = rows.reshape(-1, *[1] * (np.ndim(items) - 1)) * len(known) + at
        return np.where(at >= 0, places(keys, wanted), -1)

    def chances_of(self, rows: Ids, items: Ids) -> Floats:
        """(n, …) of these pairs; 0 where a ranking names nothing."""
        return self._of(rows, items, self.chances, self.remainder, nothing=0.0)

    def weights_of(self, rows: Ids, items: Ids) -> Floats:
        """(n, …) 1 / inclusion of these pairs."""
        weights = np.ones(len(self.items)) if self.weights is None else self.weights
        return self._of(rows, items, weights, self.remainder_weight, nothing=1.0)

    def _of(self, rows: Ids, items: Ids, values: Floats, otherwise: float, *, nothing: float) -> Floats:
        found = np.append(values, otherwise)[self.find(rows, items)]  # -1 reads the last
        return np.where(items == NOTHING, nothing, found)

    def as_released(self) -> PartialLabels:
        """The same where all that is not judged is no match."""
        return replace(self, chances=np.where(self.judged, self.chances, 0.0), remainder=0.0)

    def known(self, queries: Ids, items: Ids, labels: Flags) -> PartialLabels:
        """The same with these pairs' labels known, of those whose query is among these."""
        rows = places(self.query_ids, queries)
        inside = rows >= 0
        rows, items, labels = rows[inside], items[inside], labels[inside]
        listed = self.find(rows, items)
        chances, judged = self.chances.copy(), self.judged.copy()
        there, new = listed >= 0, listed < 0
        chances[listed[there]] = labels[there]
        judged[listed[there]] = True
        found = PartialLabels.of(
            self.query_ids,
            self.gallery,
            (
                np.concatenate([self.query_ids[self.rows], self.query_ids[rows[new]]]),
                np.concatenate([self.items, items[new]]),
            ),
            np.concatenate([chances, labels[new].astype(np.float64)]),
            np.concatenate([judged, np.ones(int(new.sum()), np.bool_)]),
            remainder=self.remainder,
        )
        weights = self.weights_of(found.rows, found.items)
        return replace(found, weights=weights, remainder_weight=self.remainder_weight)
