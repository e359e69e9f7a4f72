"""From votes to tables of preferences: who was preferred to whom how often, and by which unit of the bootstrap."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mitl.records import Preference, Vote

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Ballots:
    """Preferences as counts, unit by unit."""

    systems: tuple[str, ...]
    wins: Floats
    """(U, N, N); row i, column j: how often i was preferred to j."""
    ties: Floats
    """(U, N, N), symmetric."""

    @property
    def total_wins(self) -> Floats:
        """(N, N) over all units."""
        return np.asarray(self.wins.sum(0), np.float64)

    @property
    def total_ties(self) -> Floats:
        """(N, N) over all units."""
        return np.asarray(self.ties.sum(0), np.float64)


def first_votes(votes: Sequence[Vote]) -> list[Vote]:
    """Each worker's first vote on a comparison; who is asked the very same again is not counted twice."""
    kept: dict[Hashable, Vote] = {}
    for vote in votes:
        item = vote.comparison
        sides = frozenset({(item.left, item.left_items), (item.right, item.right_items)})
        kept.setdefault((vote.worker, item.direction, item.query_id, sides), vote)
    return list(kept.values())


def count_votes(votes: Sequence[Vote], *, by_worker: bool) -> Ballots:
    """The votes as tables, one for each worker or for each vote; systems sorted by name."""
    systems = tuple(
        sorted({name for vote in votes for name in (vote.comparison.left, vote.comparison.right)})
    )
    place = {name: number for number, name in enumerate(systems)}
    units = {vote.worker if by_worker else number: None for number, vote in enumerate(votes)}
    row = {unit: number for number, unit in enumerate(units)}
    wins = np.zeros((len(units), len(systems), len(systems)))
    ties = np.zeros_like(wins)
    for number, vote in enumerate(votes):
        unit = row[vote.worker if by_worker else number]
        left, right = place[vote.comparison.left], place[vote.comparison.right]
        if vote.answer is Preference.EQUAL:
            ties[unit, [left, right], [right, left]] += 1
        else:
            winner, loser = (left, right) if vote.answer is Preference.LEFT else (right, left)
            wins[unit, winner, loser] += 1
    return Ballots(systems, wins, ties)


def single_ballots(systems: Sequence[str], wins: Floats) -> Ballots:
    """A table of counts taken apart into single votes; the diagonal is left out."""
    rows, columns = np.nonzero(~np.eye(len(systems), dtype=bool) & (wins > 0))
    counts = wins[rows, columns].astype(int)
    units = np.zeros((int(counts.sum()), len(systems), len(systems)))
    units[np.arange(len(units)), np.repeat(rows, counts), np.repeat(columns, counts)] = 1
    return Ballots(tuple(systems), units, np.zeros_like(units))


def left_share(votes: Sequence[Vote]) -> float | None:
    """The share of the left among the votes for a side; None where there is none. Far from a half, people lean."""
    sided = [vote.answer for vote in votes if vote.answer is not Preference.EQUAL]
    return sum(answer is Preference.LEFT for answer in sided) / len(sided) if sided else None
