"""What is read off the posteriors of a pass, chunk by chunk: the report of each item, and a sample of answers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mitl.judgements.answer_table import AnswerTable
from mitl.judgements.ordinal_curves import Grid, curves
from mitl.judgements.ordinal_parameters import Parameters
from mitl.judgements.ordinal_steps import observed_shares

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

_SAMPLE = 20_000
"""Answers enough for a share that is the same for the whole crowd."""


class Sample:
    """The posteriors of items taken at even distances, with their answers."""

    def __init__(self, table: AnswerTable, grid: Grid) -> None:
        self._stride = max(1, -(-len(table) // _SAMPLE))
        items = np.arange(0, table.n_items, self._stride)
        sizes = table.answers_per_item[items]
        self._place = np.repeat(np.arange(len(items)), sizes)
        within = np.arange(len(self._place)) - np.repeat(sizes.cumsum() - sizes, sizes)
        rows = table.starts[items][self._place] + within
        self._workers = table.worker[rows].astype(np.int64)
        self._levels = table.n_labels - 1 - table.label[rows].astype(np.int64)
        self._posterior = np.empty((len(items), len(grid.nodes)))
        self._nodes = grid.nodes

    def read(self, start: int, stop: int, posterior: Floats) -> None:
        """Keep the posteriors of this run's items that belong to the sample."""
        taken = posterior[-start % self._stride :: self._stride]
        place = -(-start // self._stride)
        self._posterior[place : place + len(taken)] = taken

    def observed_shares(self, parameters: Parameters) -> tuple[float, float]:
        """As :func:`mitl.judgements.ordinal_steps.observed_shares`, of the sample."""
        posterior = self._posterior[self._place]
        return observed_shares(parameters, self._nodes, self._workers, self._levels, posterior)


class Reader:
    """What is reported of each item."""

    def __init__(self, table: AnswerTable, parameters: Parameters, grid: Grid, interval: float) -> None:
        n, n_labels = table.n_items, table.n_labels
        self.level, self.answer = (np.empty((n, n_labels), dtype=np.float32) for _ in range(2))
        self.match, self.low, self.high = (np.empty(n, dtype=np.float32) for _ in range(3))
        self._grid, self._tail, self._known = grid, (1 - interval) / 2, table.known
        self._within = (grid.within(parameters.thresholds) / grid.mass)[::-1].T  # (Q, labels)
        noise = np.exp([parameters.typical_log_noise])
        typical = curves(
            grid.nodes, parameters.thresholds, np.zeros(1), noise, parameters.typical_blind[None]
        )
        self._answers = typical.probability[0, ::-1].T  # (Q, labels)

    def read(self, start: int, stop: int, posterior: Floats) -> None:
        """Fill in the items from ``start`` to before ``stop``."""
        rows = slice(start, stop)
        self.level[rows] = posterior @ self._within
        known = self._known[rows]
        sure = np.flatnonzero(known >= 0)
        self.level[start + sure] = np.eye(self.level.shape[1], dtype=np.float32)[known[sure]]
        self.answer[rows] = posterior @ self._answers
        self.match[rows] = posterior @ self._grid.nodes
        below = posterior.cumsum(axis=1)
        self.low[rows] = self._quantile(posterior, below, self._tail)
        self.high[rows] = self._quantile(posterior, below, 1 - self._tail)

    def _quantile(self, posterior: Floats, below: Floats, share: float) -> Floats:
        """(items,) where the distribution function reaches a share; within a cell it rises evenly."""
        nodes = self._grid.nodes
        cell = np.minimum((below < share).sum(axis=1), len(nodes) - 1)
        rows = np.arange(len(posterior))
        mass = posterior[rows, cell]
        inside = (share - (below[rows, cell] - mass)) / np.where(mass > 0, mass, 1.0)
        found: Floats = nodes[cell] + (inside.clip(0, 1) - 0.5) * self._grid.width
        return found
