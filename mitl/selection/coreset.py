"""Spreading a choice: core-sets, where what lies farthest from all that is known comes next, and rounds over items.

A round that is spread does not ask the same thing twenty times; any strategy for pairs can be spread.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.core.arrays import Floats, Ints, places, unpack_ids
from mitl.errors import RoundError
from mitl.fusion.evidence import UnitVectors
from mitl.records.frames import frame
from mitl.records.rounds import CHOSEN
from mitl.selection.choice import SelectionProblem, Strategy, draws, in_order

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
    order, gaps = np.empty(n, np.int64), np.empty(n)
    for place in range(n):
        at = first if place == 0 and first is not None else int(nearest.argmax())
        order[place], gaps[place] = at, nearest[at]
        np.minimum(nearest, distances(at), out=nearest)
        nearest[at] = -np.inf
    return order, gaps


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
    taken = np.flatnonzero(~free)
    for at in taken.tolist():
        np.minimum(nearest, distances(at), out=nearest)
    first = None
    if not len(taken):
        first = int(draws(choice.pairs, choice.seed, "first of a core-set").argmin()) if len(free) else None
    order, gaps = farthest_first(distances, nearest, free, choice.budget, first)
    return in_order(choice, order, gaps, "coreset")


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
    nowhere = np.zeros(len(choice.pairs))  # where nobody ranks anything
    rows = np.stack([nowhere, *(values / (values.std() or 1.0) for values in columns)], axis=1)
    return lambda at: np.asarray(((rows - rows[at]) ** 2).sum(axis=1))


class _Side:
    """The items of one side of all pairs; a pair's part of the distance is looked up by its item."""

    def __init__(self, vectors: UnitVectors, items: Ints) -> None:
        distinct = np.unique(items)
        self._rows = vectors.of(distinct)
        self._length = (self._rows**2).sum(axis=1)
        self._at = places(distinct, items)

    def squared(self, at: int) -> Floats:
        """(n,) from this pair's item to each pair's."""
        item = self._at[at]
        of_items = self._length + self._length[item] - 2 * self._rows @ self._rows[item]
        return np.asarray(np.maximum(of_items, 0)[self._at], np.float64)


ALIKE = 0.9
"""Cosine from which on two items say nearly the same."""
_AHEAD = 4
"""How many times the budget is looked at first."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How far a round is spread."""

    most: int | None = None
    """Pairs of one image, and of one caption, at most; None for any number."""
    alike: float | None = ALIKE
    """Cosine by ``SelectionProblem.likeness`` from which on two items are near-duplicates; None where none are."""

    def __post_init__(self) -> None:
        if self.most is not None and self.most < 1:
            raise RoundError(f"at most {self.most} pairs of an item are to be asked; give 1 or more")


def diverse(strategy: Strategy, spread: Spread) -> Strategy:
    """The strategy with its order spread.

    A pair repeats a chosen one where they share the item of one side and those of the other are near-duplicates. Its
    place counts double for each that it repeats, and the lowest count is next: a near-duplicate is asked once the
    strategy wants nothing else half as much. An item that has ``most`` pairs gets no more, so that fewer pairs than
    the budget may come out.
    """

    def spread_out(choice: SelectionProblem) -> pd.DataFrame:
        n_open = len(choice.open_at)
        ahead = min(n_open, _AHEAD * choice.budget)
        while True:
            chosen = strategy(replace(choice, budget=max(ahead, 1)))
            order, is_settled = _spread(chosen["pair"].to_numpy(), choice, spread)
            if is_settled or len(chosen) < ahead or ahead == n_open:
                break
            ahead = min(n_open, 2 * ahead)
        columns = {name: chosen[name].to_numpy()[order] for name in ("pair", "score", "strategy")}
        return frame(CHOSEN, {**columns, "place": np.arange(1, len(order) + 1)})[list(CHOSEN)]

    return spread_out


def _spread(pairs: Ints, choice: SelectionProblem, spread: Spread) -> tuple[Ints, bool]:
    """Places of the pairs in the order of asking, and whether reading on would change nothing."""
    sides = [ids.tolist() for ids in unpack_ids(pairs)]
    near = [_Near(vectors, spread.alike) for vectors in choice.likeness.sides]
    most = spread.most or len(pairs)
    chosen: list[int] = []
    of_item: Sequence[dict[int, list[int]]] = defaultdict(list), defaultdict(list)
    queue = [(place + 1, place, 0) for place in range(len(pairs))]  # ascending: a heap as it is
    highest = 0
    while queue and len(chosen) < choice.budget:
        count, place, counted = heapq.heappop(queue)
        left, right = sides[0][place], sides[1][place]
        if len(of_item[0][left]) >= most or len(of_item[1][right]) >= most:
            continue
        repeats = near[1].count(right, of_item[0][left]) + near[0].count(left, of_item[1][right])
        if repeats > counted:
            heapq.heappush(queue, ((place + 1) << repeats, place, repeats))
            continue
        chosen.append(place)
        of_item[0][left].append(right)
        of_item[1][right].append(left)
        highest = max(highest, count)
    is_settled = len(chosen) == choice.budget and highest <= len(pairs)
    return np.array(chosen, np.int64), is_settled


class _Near:
    """Which items of one side are near-duplicates."""

    def __init__(self, vectors: UnitVectors | None, alike: float | None) -> None:
        self._vectors = None if alike is None else vectors
        self._alike = alike or 0.0

    def count(self, item: int, others: list[int]) -> int:
        """How many of the others are near-duplicates of the item."""
        if self._vectors is None or not others:
            return 0
        vector, rows = self._vectors.of(np.array([item])), self._vectors.of(np.array(others))
        return int((rows @ vector[0] >= self._alike).sum())
