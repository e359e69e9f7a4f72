"""One pass over an answer table: the posterior of each item over hidden classes, and what it counts for each worker.

Dawid and Skene's model (a class is a true label) and the ordinal model (a class is a cell of the match's scale)
share it. Answers of one item multiply, so with the log-probability of each (worker, label) in each class at
hand a pass is a product of a sparse matrix and a small dense one, and the expected counts are the product with
its transpose. Items are taken in chunks that fit the processor's cache: memory does not grow with the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array

from mitl.core.arrays import Floats
from mitl.judgements.answer_table import AnswerTable


@dataclass(frozen=True, slots=True)
class Convergence:
    """The course of a fit."""

    objective: tuple[float, ...]
    """Nats after each pass: the log-likelihood of the answers, where confusion matrices have a prior with their
    log-density under it; as that prior follows the crowd's mean from pass to pass, the sum may fall.
    """
    settled: bool
    """False where the limit of passes ended the fit."""

    @property
    def passes(self) -> int:
        """Passes over the table."""
        return len(self.objective)

    @property
    def line(self) -> str:
        """How the fit ended, for people."""
        if self.settled:
            return f"settled after {self.passes} passes"
        change = abs(self.objective[-1] - self.objective[-2]) if self.passes > 1 else float("inf")
        return (
            f"stopped by the limit of {self.passes} passes, the last of which still changed "
            f"its objective by {change:.3g} nats"
        )


def has_settled(objective: Sequence[float], tolerance: float) -> bool:
    """Whether each of the last three passes changed the objective by no more than ``tolerance`` nats.

    One small change may be a turning point.
    """
    last = objective[-4:]
    return len(last) == 4 and all(abs(after - before) <= tolerance for before, after in pairwise(last))


Visit = Callable[[int, int, Floats], None]
"""Called with (start, stop, posterior (stop - start, classes)) for each run of items, in order."""

_CHUNK_CELLS = 1 << 17
"""Cells (items × classes) of a chunk: 1 MB."""


@dataclass(frozen=True, slots=True, eq=False)
class Swept:
    """What one pass found."""

    answers: Floats
    """(workers, labels, classes) expected number of answers."""
    items: Floats
    """(labels + 1, classes) expected number of items by what is known of them: unknown first, then each label."""
    log_likelihood: float = float("nan")
    """Of all answers, in nats; of a known item's answers given what is known."""


class Sweeper:
    """Passes over one table, seen as a sparse matrix (items, workers × labels)."""

    def __init__(self, table: AnswerTable) -> None:
        self.table = table
        self.n_cells = table.n_workers * table.n_labels
        if self.n_cells > np.iinfo(np.int32).max:
            raise ValueError(f"{table.n_workers} workers with {table.n_labels} labels each are too many")
        self._cells = table.worker * np.int32(table.n_labels) + table.label
        self._ones = np.ones(1 << 16)

    def sweep(self, log_answer: Floats, log_prior: Floats, visit: Visit | None = None) -> Swept:
        """The posterior of each item under a model, item by item to ``visit``, and its expected counts.

        Args:
            log_answer: (workers, labels, classes) log-probability of an answer in each class; finite.
            log_prior: (labels + 1, classes) of an unknown item, then of items known to be each label;
                -inf rules a class out, and each row in use must leave one.
        """
        n_classes = log_answer.shape[2]
        weights = np.ascontiguousarray(log_answer.reshape(self.n_cells, n_classes))
        tally = _Tally(self.table, n_classes)
        log_likelihood = 0.0
        for start, stop, matrix in self._chunks(n_classes):
            posterior = matrix @ weights
            posterior += log_prior[self.table.known[start:stop].astype(np.intp) + 1]
            log_likelihood += _normalise(posterior)
            tally.add(start, stop, matrix, posterior)
            if visit is not None:
                visit(start, stop, posterior)
        return tally.swept(log_likelihood)

    def count(self, posterior: Floats) -> Swept:
        """The expected counts of a posterior (items, classes) that comes from elsewhere."""
        tally = _Tally(self.table, posterior.shape[1])
        for start, stop, matrix in self._chunks(posterior.shape[1]):
            tally.add(start, stop, matrix, posterior[start:stop])
        return tally.swept(float("nan"))

    def _chunks(self, n_classes: int) -> Iterator[tuple[int, int, csr_array]]:
        # The transposed product makes a row for each worker, so a chunk must not be small against them.
        step = max(1, _CHUNK_CELLS // n_classes, self.n_cells)
        starts = self.table.starts
        for start in range(0, self.table.n_items, step):
            stop = min(start + step, self.table.n_items)
            first, last = int(starts[start]), int(starts[stop])
            if last - first > len(self._ones):
                self._ones = np.ones(last - first)
            pointers = (starts[start : stop + 1] - first).astype(np.int32)
            parts = (self._ones[: last - first], self._cells[first:last], pointers)
            yield start, stop, csr_array(parts, shape=(stop - start, self.n_cells))


class _Tally:
    """Expected counts, summed chunk by chunk."""

    def __init__(self, table: AnswerTable, n_classes: int) -> None:
        self._table = table
        self._answers = np.zeros((table.n_workers * table.n_labels, n_classes))
        self._items = np.zeros((table.n_labels + 1, n_classes))

    def add(self, start: int, stop: int, matrix: csr_array, posterior: Floats) -> None:
        self._answers += matrix.T @ posterior
        kind = self._table.known[start:stop].astype(np.int32) + 1
        parts = (np.ones(len(kind)), kind, np.arange(len(kind) + 1, dtype=np.int32))
        self._items += csr_array(parts, shape=(len(kind), len(self._items))).T @ posterior

    def swept(self, log_likelihood: float) -> Swept:
        shape = (self._table.n_workers, self._table.n_labels, -1)
        return Swept(self._answers.reshape(shape), self._items, log_likelihood)


def _normalise(log_weights: Floats) -> float:
    """Turn each row of log-weights into probabilities, in place; return the sum of the rows' log-totals."""
    highest = _across(np.maximum, log_weights)
    log_weights -= highest[:, None]
    np.exp(log_weights, out=log_weights)
    totals = _across(np.add, log_weights)
    log_weights /= totals[:, None]
    return float(np.log(totals).sum() + highest.sum())


def _across(operation: np.ufunc, rows: Floats) -> Floats:
    """What ``operation.reduce`` gives along short rows, column by column: ten times as quick."""
    reduced = rows[:, 0].copy()
    for column in rows.T[1:]:
        operation(reduced, column, out=reduced)
    return reduced
