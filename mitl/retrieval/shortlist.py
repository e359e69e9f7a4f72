"""Which items may still belong to the top k of each query of one block, while blocks of the gallery go by."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Rescore = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float32]]
"""(query rows, gallery positions) to canonical similarities."""

_WAITING_PER_ROW = 32
"""Newcomers per row that wait before they are merged: a fresh floor against the price of sorting."""
_SEED_WIDTH = 2048
"""Columns from which the first floor is estimated."""


def survivors_per_row(k: int) -> int:
    """How many survivors a row may have on average before they are thinned out."""
    return 2 * k + 64


class Shortlist:
    """The survivors of one query block: every item whose similarity reaches the row's running floor.

    Values may be off by ``error`` from the canonical similarities. Whoever is below the k-th best value by
    more than twice that cannot be in the top k, not even as a tie. With ``error`` None the values are
    canonical themselves. Blocks of the gallery must come in rising order, so that a newcomer loses its ties.
    """

    def __init__(self, rows: int, k: int, error: NDArray[np.float64] | None, rescore: Rescore | None) -> None:
        assert (error is None) == (rescore is None), "near values need rescoring, canonical ones do not"
        self._k = k
        self._count = rows
        self._slack = None if error is None else 2 * error
        self._rescore = rescore
        self._floor = np.full(rows, -np.inf, np.float32)
        self._rows = np.empty(0, np.int64)
        self._positions = np.empty(0, np.int64)
        self._values = np.empty(0, np.float32)
        self._waiting: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]] = []
        self._waiting_count = 0

    def offer(self, values: NDArray[np.float32], start: int) -> None:
        """Look at a block (rows, B) of similarities to the gallery from position ``start`` on."""
        if start == 0 and values.shape[1] >= 2 * self._k:
            self._floor = np.maximum(self._floor, self._lowered(_kth_of_chunks(values, self._k)))
        width = values.shape[1]
        reached = values >= self._floor[:, None]
        if width > 1 and np.count_nonzero(reached) > self._count * survivors_per_row(self._k):
            # Their places would need more memory than the block: take halves, between which floors rise.
            del reached
            self._merge()
            for part in (slice(0, width // 2), slice(width // 2, width)):
                self.offer(values[:, part], start + part.start)
                self._merge()
            return
        rows, columns = np.divmod(np.flatnonzero(reached), width)  # far faster than nonzero of two axes
        self._waiting.append((rows, columns + start, values[rows, columns]))
        self._waiting_count += len(rows)
        if self._waiting_count > _WAITING_PER_ROW * self._count:
            self._merge()

    def finish(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Gallery positions and canonical similarities (rows, k), best first, ties by position."""
        self._merge()
        if self._rescore is not None:
            self._settle()
        shape = (self._count, self._k)
        return self._positions.reshape(shape), self._values.reshape(shape)

    def _merge(self) -> None:
        """Bring the newcomers in, raise the floors, drop who fell below."""
        if not self._waiting_count:
            return
        rows = np.concatenate([self._rows, *(part[0] for part in self._waiting)])
        positions = np.concatenate([self._positions, *(part[1] for part in self._waiting)])
        values = np.concatenate([self._values, *(part[2] for part in self._waiting)])
        self._waiting, self._waiting_count = [], 0
        order = _order(rows, values, self._count)
        rows, values = rows[order], values[order]
        starts = np.searchsorted(rows, np.arange(self._count + 1))
        full = np.diff(starts) >= self._k
        kth = np.full(self._count, -np.inf, np.float32)
        kth[full] = values[starts[:-1][full] + self._k - 1]
        if self._slack is None:
            keep = np.arange(len(rows)) - starts[rows] < self._k
            self._floor = np.where(full, np.nextafter(kth, np.float32(np.inf)), self._floor)
        else:
            self._floor = np.maximum(self._floor, self._lowered(kth))
            keep = values >= self._floor[rows]
        self._rows, self._values, self._positions = rows[keep], values[keep], positions[order[keep]]
        # Many near ties would grow the list without end: decide them now.
        if self._rescore is not None and len(self._rows) > self._count * survivors_per_row(self._k):
            self._settle()

    def _settle(self) -> None:
        """Put canonical values in place of near ones and keep at most k in each row, best first."""
        assert self._rescore is not None
        values = self._rescore(self._rows, self._positions)
        order = np.lexsort((self._positions, -values, self._rows))
        rows = self._rows[order]
        starts = np.searchsorted(rows, np.arange(self._count))
        keep = order[np.arange(len(rows)) - starts[rows] < self._k]
        self._rows, self._positions, self._values = self._rows[keep], self._positions[keep], values[keep]

    def _lowered(self, kth: NDArray[np.float32]) -> NDArray[np.float32]:
        """The lowest value that may still belong to the top k if the k-th best value is ``kth``."""
        if self._slack is None:
            return kth
        floor = (kth - self._slack).astype(np.float32)
        return np.nextafter(floor, np.float32(-np.inf))


def _kth_of_chunks(values: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """A value that at least k entries of each row reach: the k-th best of the best of disjoint chunks."""
    chunks = min(values.shape[1], 4 * k)
    best = values[:, :chunks].copy()
    for start in range(chunks, min(values.shape[1], _SEED_WIDTH) - chunks + 1, chunks):
        np.maximum(best, values[:, start : start + chunks], out=best)
    return np.partition(best, chunks - k, axis=1)[:, chunks - k]


def _order(rows: NDArray[np.int64], values: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Positions that sort by row, then value falling, then the order given.

    One sort of packed integers (row, value, index) is several times faster than ``lexsort``, which steps in
    where 64 bits are too few.
    """
    index_bits = 32 - max(1, (count - 1).bit_length())
    if len(rows) > 1 << index_bits:
        return np.lexsort((-values, rows))
    bits = (values + np.float32(0)).view(np.int32)
    falling = np.where(bits < 0, bits, ~bits & 0x7FFFFFFF).view(np.uint32)
    keys = rows.astype(np.uint64) << np.uint64(32)
    keys |= falling
    keys <<= np.uint64(index_bits)
    keys |= np.arange(len(rows), dtype=np.uint64)
    keys.sort()
    keys &= np.uint64((1 << index_bits) - 1)
    return keys.view(np.int64)
