"""Spreading a round over items, so that it does not ask the same thing twenty times; any strategy can be spread."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from mitl.core.arrays import Ints, unpack_ids
from mitl.errors import RoundError
from mitl.fusion.evidence import UnitVectors
from mitl.records.frames import frame
from mitl.records.rounds import CHOSEN
from mitl.selection.choice import SelectionProblem, Strategy

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
            wanted = strategy(replace(choice, budget=max(ahead, 1)))
            order, is_settled = _spread(wanted["pair"].to_numpy(), choice, spread)
            if is_settled or len(wanted) < ahead or ahead == n_open:
                break
            ahead = min(n_open, 2 * ahead)
        columns = {name: wanted[name].to_numpy()[order] for name in ("pair", "score", "strategy")}
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
        one, rows = self._vectors.of(np.array([item])), self._vectors.of(np.array(others))
        return int((rows @ one[0] >= self._alike).sum())
