"""A gallery by kinds of object vectors: how many items match a query, and which ranked ones do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.metrics.plausible.object_vectors import ObjectKinds, ObjectVectors
from mitl.metrics.positives import Ids, Places, Short

_CELLS = 1 << 22
"""Distances looked at in one go: some 50 MB."""


@dataclass(frozen=True, slots=True, eq=False)
class PlausibleSearch:
    """The gallery's items by id, their kinds, and which (G,) are left out for want of objects."""

    places: Places
    kinds: ObjectKinds
    silent: NDArray[np.bool_]

    @classmethod
    def of(cls, gallery: ObjectVectors, *, leave_out: bool) -> PlausibleSearch:
        """A gallery; ``leave_out`` says whether items without objects are passed over."""
        silent = ~gallery.vectors.any(axis=1) if leave_out else np.zeros(len(gallery), dtype=np.bool_)
        return cls(
            Places.of(gallery.ids, "items with objects"), ObjectKinds.of(gallery.vectors), np.asarray(silent)
        )

    @property
    def width(self) -> int:
        """Cells that a query takes at most beside its ranking."""
        return len(self.places)

    def reach(self, r: int) -> int:
        """Places of a ranking that hold ``r`` items for certain, whatever is left out."""
        return r + int(self.silent.sum())

    def counts(self, vectors: NDArray[np.bool_], zetas: Sequence[int]) -> Ids:
        """(Z, Q) how many gallery items match each of ``vectors`` (Q, C)."""
        queries = ObjectKinds.of(vectors)
        sizes = np.bincount(self.kinds.of_item[~self.silent], minlength=len(self.kinds.vectors))
        counts = np.empty((len(zetas), len(queries.vectors)), dtype=np.int64)
        block = max(1, _CELLS // len(sizes))
        for start in range(0, len(queries.vectors), block):
            part = slice(start, start + block)
            distances = self.kinds.distances(queries.vectors[part])
            for row, zeta in zip(counts, zetas, strict=True):
                row[part] = (distances <= zeta) @ sizes
        return counts[:, queries.of_item]

    def precisions(
        self,
        query_ids: Ids,
        head: NDArray[Any],
        vectors: NDArray[np.bool_],
        wanted: Ids,
        zetas: Sequence[int],
        short: Short,
    ) -> NDArray[np.float64]:
        """(Z, B) share of matches among the first ``wanted`` (Z, B) items of rankings ``head`` (B, depth).

        Raises:
            MetricError: an item is unknown or named twice; a ranking ends too early, unless ``short`` is "zero".
        """
        places = self.places.need(head, "the rankings")
        self._refuse_repeats(places, head, query_ids)
        heard = ~self.silent[places]
        rank = np.cumsum(heard, axis=1, dtype=np.int32)
        if short == "raise":
            refuse_short(rank[:, -1] if head.shape[1] else np.zeros(len(head)), wanted.max(axis=0), query_ids)
        distances = self.kinds.distances(vectors.astype(np.float32))  # (B, U)
        found = np.take_along_axis(distances, self.kinds.of_item[places], axis=1)  # (B, depth)
        found[~heard] = np.inf
        hits = [
            ((found <= zeta) & (rank <= r[:, None])).sum(axis=1) / r
            for zeta, r in zip(zetas, wanted, strict=True)
        ]
        return np.stack(hits)

    def _refuse_repeats(self, places: NDArray[Any], head: NDArray[Any], query_ids: Ids) -> None:
        seen = np.zeros((len(places), len(self.places)), dtype=np.bool_)
        np.put_along_axis(seen, places, True, axis=1)
        short = np.flatnonzero(seen.sum(axis=1) < places.shape[1])
        if len(short):
            known, times = np.unique(head[short[0]], return_counts=True)
            raise MetricError(
                f"the ranking of query {query_ids[short[0]]} names item {known[times > 1][0]} twice"
            )


def refuse_short(depths: NDArray[Any], wanted: Ids, query_ids: Ids) -> None:
    """MetricError where a ranking holds fewer items, ``depths`` (Q,), than are wanted (Q,)."""
    missing = np.flatnonzero(wanted > depths)
    if len(missing):
        row = missing[wanted[missing].argmax()]
        raise MetricError(
            f"query {query_ids[row]} needs {wanted[row]} ranked items, but its ranking holds {int(depths[row])}; "
            "rank deeper, bound R, or count the missing places as misses (short='zero')"
        )
