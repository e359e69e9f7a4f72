"""Ids told as places in an array of ids, for whole rankings at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.metrics.positives import Ids

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
            ordered = self.ids[self._order]
            near = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
            return np.asarray(np.where(ordered[near] == wanted, self._order[near], -1))
        shifted = np.asarray(wanted, dtype=np.int64) - self._low
        inside = (shifted >= 0) & (shifted < len(self._table))
        if inside.all():
            return np.asarray(self._table[shifted])
        return np.asarray(np.where(inside, self._table[np.where(inside, shifted, 0)], -1))

    def need(self, wanted: NDArray[Any], whose: str) -> NDArray[np.integer[Any]]:
        """As :meth:`find`; MetricError where an id is not among these. ``whose`` names what the ids are from."""
        places = self.find(wanted)
        missing = places < 0
        if missing.any():
            first = np.asarray(wanted)[missing].flat[0]
            raise MetricError(f"{whose} name {first}, which is not among the {len(self)} {self.what}")
        return places
