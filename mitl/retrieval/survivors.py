"""Which items may still belong to the top k of each query of a block, while the gallery goes by.

An item is a key: its similarity and its gallery position in one integer, the smaller the better. The high half holds
the float32, the highest first; the low half the position. So one sort of integers orders by similarity falling, then by
position, and equal similarities are ordered exactly.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from mmap import mmap
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mitl.retrieval.processor import compiled_loops
from mitl.retrieval.vectors import UNIT

Places = NDArray[np.int64]
Keys = NDArray[np.uint64]

NOTHING = np.uint64(0xFFFFFFFFFFFFFFFF)
"""Worse than every key: a free place, or a bound that is not known yet."""
MOST_POSITIONS = 1 << 32

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


class Rescores(Protocol):
    """Better similarities of chosen pairs."""

    @property
    def nearer_pays(self) -> bool:
        """Whether ``nearer`` is cheaper than ``similarities``."""
        ...

    def similarities(self, rows: Places, positions: Places) -> NDArray[np.float32]:
        """Canonical ones of n pairs of a row and a gallery position, in order of rows, none twice: (n,)."""
        ...

    def nearer(self, rows: Places, positions: Places) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Of the same kind of pairs in float32: (n,) values and (n,) how far they may be off."""
        ...


_ROWS = 2048
"""Rows that are sorted at once."""
_FINISHED = 1024
"""Rows that are finished at once: an item that several of them want is read once."""
_FULL, _FRESH = 0.75, 0.2
"""A row is thinned out along with one that overflows when this share of its places is taken, this much since last."""
_MANY = 1.25
"""Survivors per row, in units of k, from which nearer values are worth having before canonical ones."""


def _some_of(rows: Places) -> Iterator[Places | slice]:
    """Rows whose keys, and what is made of them meanwhile, stay in a core's cache and take little memory.

    Ascending rows; those that follow each other without a gap as a slice, whose keys need no copy.
    """
    for start in range(0, len(rows), _ROWS):
        some = rows[start : start + _ROWS]
        whole = some[-1] - some[0] + 1 == len(some)
        yield slice(int(some[0]), int(some[-1]) + 1) if whole else some


def keys_of(values: NDArray[np.float32], positions: NDArray[Any]) -> Keys:
    """The keys of values, NaN excluded, at positions below 2^32; -0.0 counts as 0.0."""
    bits = (values + np.float32(0)).view(np.int32)
    # Rising integers for rising floats: the magnitude of negative ones is turned over; then all for "falling".
    falling = (~(bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF)))).view(np.uint32) ^ np.uint32(0x80000000)
    keys = falling.astype(np.uint64)
    keys <<= _HALF
    keys |= positions.astype(np.uint64)
    return keys


def values_of(keys: Keys) -> NDArray[np.float32]:
    """The similarities of keys; of ``NOTHING`` minus infinity."""
    # Other threads may set bounds meanwhile, so that keys are read once; no number's upper half is that of NOTHING.
    falling = (keys >> _HALF).astype(np.uint32)
    rising = (~(falling ^ np.uint32(0x80000000))).view(np.int32)
    bits = rising ^ ((rising >> 31) & np.int32(0x7FFFFFFF))
    return np.where(falling == np.uint32(_LOW), np.float32(-np.inf), bits.view(np.float32))


def positions_of(keys: Keys) -> NDArray[np.int64]:
    """The gallery positions of keys."""
    return (keys & _LOW).astype(np.int64)


def bounds_of(values: NDArray[np.float32]) -> Keys:
    """The worst keys of items that reach ``values``."""
    return keys_of(values, np.full(values.shape, MOST_POSITIONS - 1, np.uint64))


class Survivors:
    """For each row a few places of keys (value, position) whose value the canonical similarity cannot exceed.

    Each row has a bound: the worst key that can still be among its best k. It follows from k values and how far
    they may be off, or, better, from k canonical similarities. Whoever is beyond it is dropped. Items may come in
    any order and from any thread, each once.

    Args:
        places: survivors that a row can hold; more than k.
        rescores: better similarities of survivors; None where values come canonical.
    """

    def __init__(self, rows: int, k: int, places: int, rescores: Rescores | None) -> None:
        assert places > k, "a full row must have room for a newcomer"
        self.k, self._places, self._rescores = k, places, rescores
        # Straight from the system, which has it back as soon as the block is finished: a heap would keep it.
        memory = mmap(-1, max(1, rows * places * NOTHING.itemsize))
        self._keys: Keys = np.frombuffer(memory, np.uint64, rows * places).reshape(rows, places)
        self._keys.fill(NOTHING)
        self._fill = np.zeros(rows, np.int64)
        self._sorted = np.zeros(rows, np.int64)  # how many of them were left when the row was last sorted
        self._bound: Keys = np.full(rows, NOTHING)
        self._guess = np.full(rows, -np.inf)
        self._error, self._rounding = np.zeros(rows), 0.0
        self._lock = threading.RLock()
        self.missed: Places = np.empty(0, np.int64)
        """Finished rows whose guessed floor was too high, so that they may lack items."""
        self.rescored = 0
        """How many canonical similarities were computed."""

    def __len__(self) -> int:
        return int(self._fill.sum())

    def floors(self) -> NDArray[np.float64]:
        """The value below which no canonical similarity can be, or is likely to be, among a row's best k, (rows,)."""
        return np.asarray(np.maximum(values_of(self._bound), self._guess))

    def reach(self, lowest: NDArray[Any]) -> None:
        """Learn that the canonical similarities of at least k items of each row reach ``lowest``, (rows,)."""
        with self._lock:
            np.minimum(self._bound, bounds_of(_down(lowest)), out=self._bound)

    def add(
        self,
        rows: Places,
        positions: Places,
        highest: NDArray[Any],
        errors: NDArray[np.float64],
        rounding: float = 0.0,
    ) -> None:
        """Take in items of rows.

        Args:
            highest: the most that their canonical similarities can be; themselves where values are canonical.
            errors, rounding: at most how far they may lie above the near values, for each row of the block and
                relative to the near value; as far again below are the least that similarities can be.
        """
        with self._lock:
            np.maximum(self._error, errors, out=self._error)
            self._rounding = max(self._rounding, rounding)
            while len(rest := self._store(rows, positions, highest)):
                rows, positions, highest = rows[rest], positions[rest], highest[rest]
                self._thin(rows)

    def sharpen(self, enough: float, rank: int = 0) -> None:
        """Bound rows by nearer values of their best k so far, those rows with more than ``enough`` times k.

        With a ``rank`` up to k, floors are raised to the item of that rank so far: a guess, checked at the end.
        """
        with self._lock:
            self._sort(np.arange(len(self._fill)))
            self._sharpen(np.flatnonzero(self._fill > enough * self.k))
            if rank:
                rows = np.flatnonzero(self._fill >= self.k)
                likely = self._lowest(values_of(self._keys[rows, rank - 1]), rows)
                self._guess[rows] = np.maximum(self._guess[rows], likely)

    def finish(self) -> tuple[Places, NDArray[np.float32]]:
        """Gallery positions and canonical similarities (rows, k), best first, ties by position."""
        shape = len(self._fill), self.k
        positions, similarities = np.empty(shape, np.int64), np.empty(shape, np.float32)
        with self._lock:
            for start in range(0, len(self._fill), _FINISHED):
                rows = np.arange(start, min(start + _FINISHED, len(self._fill)))
                self._sort(rows)
                assert self._fill[rows].min() >= self.k, "every row meets at least k items"
                best = self._keys[rows, : self.k] if self._rescores is None else self._finally(rows)
                positions[rows], similarities[rows] = positions_of(best), values_of(best)
        self.missed = np.flatnonzero(similarities[:, -1] < self._guess)
        return positions, similarities

    def _finally(self, rows: Places) -> Keys:
        """Canonical keys of the best k of sorted rows; their worst decides who else is worth rescoring."""
        assert self._rescores is not None
        if self._rescores.nearer_pays and self._fill[rows].sum() > _MANY * self.k * len(rows):
            self._approach(rows, self._places)
        keys = self._keys[rows, : int(self._fill[rows].max())]
        best, rest = self._canonical(rows, keys[:, : self.k]), keys[:, self.k :]
        worst = best.max(axis=1, initial=0)[:, None]
        rest = rest[:, : int((rest <= worst).sum(axis=1).max(initial=0))]
        rest[rest > worst] = NOTHING
        canonical = np.concatenate([best, self._canonical(rows, rest)], axis=1)
        canonical.sort(axis=1)
        return canonical[:, : self.k]

    def _approach(self, rows: Places, columns: int) -> None:
        """Learn nearer values of the first survivors of sorted rows, and what they say of the rows' bounds."""
        assert self._rescores is not None
        keys = self._keys[rows, :columns]
        row, place = np.nonzero(keys != NOTHING)
        positions = positions_of(keys[row, place])
        values, errors = self._rescores.nearer(rows[row], positions)
        lowest = np.full(keys.shape, -np.inf)
        lowest[row, place] = values - errors
        lowest.partition(keys.shape[1] - self.k, axis=1)
        bounds = bounds_of(_down(lowest[:, keys.shape[1] - self.k]))
        self._bound[rows] = np.minimum(self._bound[rows], bounds)
        # The old value stands where it is the better one.
        self._keys[rows[row], place] = np.maximum(keys[row, place], keys_of(_up(values + errors), positions))
        self._sort(rows)

    def _store(self, rows: Places, positions: Places, highest: NDArray[Any]) -> Places:
        """Put keys that are not beyond the bounds on free places of their rows; which items found no room."""
        if (loops := compiled_loops()) is not None:
            rest, up = np.empty(len(rows), np.int64), int(self._rescores is not None)
            table = self._bound, self._keys, self._fill
            return rest[: loops.store(rows, positions, highest, up, *table, rest)]
        keys = keys_of(_up(highest) if self._rescores is not None else highest, positions)
        keep = np.flatnonzero(keys <= self._bound[rows])
        if (np.diff(rows[keep]) < 0).any():
            keep = keep[np.argsort(rows[keep], kind="stable")]
        rows, keys = rows[keep], keys[keep]
        counts = np.bincount(rows, minlength=len(self._fill))
        starts = np.cumsum(counts) - counts
        places = np.arange(len(rows)) + (self._fill - starts)[rows]
        fits = places < self._places
        self._keys[rows[fits], places[fits]] = keys[fits]
        np.minimum(self._fill + counts, self._places, out=self._fill)
        return keep[~fits]

    def _thin(self, crowded: Places) -> None:
        """Make room in rows that overflow, and in those that soon would and have not been looked at lately."""
        late = (self._fill >= _FULL * self._places) & (self._fill - self._sorted >= _FRESH * self._places)
        late[crowded] = True
        rows = np.flatnonzero(late)
        self._sort(rows)
        half = self.k + (self._places - self.k) // 2
        self._sharpen(rows[self._fill[rows] > half])
        crowded = np.unique(crowded)
        self._settle(crowded[self._fill[crowded] > half])

    def _sharpen(self, rows: Places) -> None:
        if self._rescores is not None and len(rows):
            self._approach(rows, self.k)

    def _settle(self, rows: Places) -> None:
        """Decide near ties that no bound can part: canonical keys, the best k of each row."""
        if self._rescores is not None and len(rows):
            keys = self._canonical(rows, self._keys[rows])
            keys.sort(axis=1)
            self._bound[rows] = np.minimum(self._bound[rows], keys[:, self.k - 1])
            keys[:, self.k :] = NOTHING
            self._keys[rows], self._fill[rows], self._sorted[rows] = keys, self.k, self.k

    def _sort(self, rows: Places) -> None:
        """Sort these rows, best first, raise their bounds, drop who is beyond."""
        for some in _some_of(rows):
            taken = self._fill[some]
            keys = self._keys[some, : max(self.k, int(taken.max()))]
            keys.sort(axis=1)
            full = taken >= self.k
            kth = keys[:, self.k - 1]
            if self._rescores is not None:
                values = np.where(full, values_of(kth), np.float32(0))
                kth = bounds_of(self._lowest(values, some))
            bound = np.where(full, np.minimum(self._bound[some], kth), self._bound[some])
            taken = np.minimum(taken, _trimmed(keys, bound))
            if not isinstance(some, slice):  # else these are the places themselves
                self._keys[some, : keys.shape[1]] = keys
            self._bound[some] = bound
            self._fill[some] = self._sorted[some] = taken

    def _lowest(self, highest: NDArray[np.float32], rows: Places | slice) -> NDArray[np.float32]:
        """The least that a canonical similarity can be whose highest value is this."""
        wide = np.minimum(highest.astype(np.float64), np.finfo(np.float32).max)
        error, rounding = self._error[rows], self._rounding
        near = wide - error
        near = np.where(near >= 0, near / (1 + rounding), near / (1 - rounding))
        return _down(near - rounding * np.abs(near) - error - 4 * UNIT * (np.abs(wide) + error))

    def _canonical(self, rows: Places, keys: Keys) -> Keys:
        """The same items' canonical keys; free places stay free."""
        assert self._rescores is not None
        taken = keys != NOTHING
        row, place = np.nonzero(taken)
        positions = positions_of(keys[row, place])
        self.rescored += len(row)
        canonical = np.full(keys.shape, NOTHING)
        canonical[row, place] = keys_of(self._rescores.similarities(rows[row], positions), positions)
        return canonical


def _trimmed(keys: Keys, bounds: Keys) -> NDArray[np.int64]:
    """Free the places of sorted rows whose keys are beyond the row's bound; how many are not, (rows,)."""
    kept = np.empty(len(keys), np.int64)
    if (loops := compiled_loops()) is not None:
        loops.trim(keys, bounds, kept)
    else:
        beyond = keys > bounds[:, None]
        keys[beyond] = NOTHING
        kept[:] = keys.shape[1] - beyond.sum(axis=1)
    return kept


def _down(values: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        return np.nextafter(values.astype(np.float32), np.float32(-np.inf))


def _up(values: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        return np.nextafter(values.astype(np.float32), np.float32(np.inf))
