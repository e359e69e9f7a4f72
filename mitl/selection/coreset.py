"""Core-sets: what lies farthest from all that is known comes next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.core.arrays import Floats, Ints, places
from mitl.fusion.evidence import UnitVectors
from mitl.selection.choice import SelectionProblem, draws, in_order

_CELLS = 1 << 24
"""Distances held at once."""
Distances = Callable[[int], Floats]
"""(N,) from one row to all."""


def core_set(vectors: NDArray[np.floating[Any]], labelled: Ints, n: int) -> tuple[Ints, Floats]:
    """Rows of ``vectors`` (N, D) that cover the rest, in the order of choosing, and how far each lay from those before.

    Each next row is the one whose nearest labelled or chosen row is farthest away (Euclidean); where nothing is
    labelled, the first is the one nearest to the mean, at a distance of infinity. All that is left where ``n`` is more.

    Args:
        labelled: rows that are known already.

    Source: Sener and Savarese, ICLR 2018, Algorithm 1 (k-center greedy).
    """
    rows = np.asarray(vectors, np.float64)
    squares = (rows**2).sum(axis=1)

    def squared(at: int) -> Floats:
        return np.asarray(np.maximum(squares - 2 * rows @ rows[at] + squares[at], 0))

    nearest = np.full(len(rows), np.inf)
    step = max(1, _CELLS // max(1, len(rows)))
    for start in range(0, len(labelled), step):
        some = labelled[start : start + step]
        block = squares[:, None] - 2 * rows @ rows[some].T + squares[some]
        nearest = np.minimum(nearest, np.maximum(block, 0).min(axis=1))
    free = np.ones(len(rows), np.bool_)
    free[labelled] = False
    first = None
    if not len(labelled) and len(rows):
        first = int(((rows - rows.mean(axis=0)) ** 2).sum(axis=1).argmin())
    order, distance = farthest_first(squared, nearest, free, n, first)
    return order, np.sqrt(distance)


def farthest_first(
    distances: Distances, nearest: Floats, free: NDArray[np.bool_], n: int, first: int | None = None
) -> tuple[Ints, Floats]:
    """The free rows in the order of the greedy choice, ``n`` at most, and each one's distance when it was chosen.

    Args:
        nearest: (N,) from each row to what is known; infinity where nothing is.
        free: (N,) rows that may be chosen.
        first: the row to begin with; None for the farthest.
    """
    nearest = np.where(free, nearest, -np.inf)
    n = min(n, int(free.sum()))
    order, found = np.empty(n, np.int64), np.empty(n)
    for place in range(n):
        at = first if place == 0 and first is not None else int(nearest.argmax())
        order[place], found[place] = at, nearest[at]
        np.minimum(nearest, distances(at), out=nearest)
        nearest[at] = -np.inf
    return order, found


def coreset(choice: SelectionProblem) -> pd.DataFrame:
    """``CHOSEN``: open pairs that cover the pool: each next lies farthest from all that were asked or chosen.

    Two pairs are as far apart as their images and their captions are, by ``likeness``; of a side of which nothing is
    known, nothing counts. Where that is so of both, pairs lie where annotators see them
    (``nearness``, each of variance 1). The score is the squared distance.

    Source: as `core_set`; pairs for images are ours.
    """
    free = np.zeros(len(choice.pairs), np.bool_)
    free[choice.open_at] = True
    distances = _distances(choice)
    nearest = np.full(len(free), np.inf)
    known = np.flatnonzero(~free)
    for at in known.tolist():
        np.minimum(nearest, distances(at), out=nearest)
    first = None
    if not len(known):
        first = int(draws(choice.pairs, choice.seed, "first of a core-set").argmin()) if len(free) else None
    order, found = farthest_first(distances, nearest, free, choice.budget, first)
    return in_order(choice, order, found, "coreset")


def _distances(choice: SelectionProblem) -> Distances:
    """Squared, from one pair to all."""
    sides = [
        _Side(vectors, items)
        for vectors, items in zip(choice.likeness.sides, choice.items, strict=True)
        if vectors is not None
    ]
    if sides:
        return lambda at: np.asarray(sum((side.squared(at) for side in sides), np.zeros(len(choice.pairs))))
    columns = [np.nan_to_num(values - np.nanmean(values)) for values in choice.nearness.values()]
    rows = np.stack([values / (values.std() or 1.0) for values in columns], axis=1)
    return lambda at: np.asarray(((rows - rows[at]) ** 2).sum(axis=1))


class _Side:
    """The items of one side of all pairs; a pair's part of the distance is looked up by its item."""

    def __init__(self, vectors: UnitVectors, items: Ints) -> None:
        known = np.unique(items)
        self._rows = vectors.of(known)
        self._length = (self._rows**2).sum(axis=1)
        self._at = places(known, items)

    def squared(self, at: int) -> Floats:
        """(n,) from this pair's item to each pair's."""
        one = self._at[at]
        of_items = self._length + self._length[one] - 2 * self._rows @ self._rows[one]
        return np.asarray(np.maximum(of_items, 0)[self._at], np.float64)
