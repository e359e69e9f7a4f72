"""The majority of each item of an answer table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mitl.judgements.answer_table import AnswerTable, Labels
from mitl.records import Label

Counts = NDArray[np.int64]

POSITIVE_LABELS = sum(label.is_positive for label in Label)
"""How many labels, counted from the best, make a match: ``yes`` and ``weak_yes``."""

_CHUNK = 1 << 18
"""Items taken at a time; bounds the memory of the counts."""


@dataclass(frozen=True, slots=True, eq=False)
class Majority:
    """What the answers of each item say together; all arrays are (items,)."""

    label: Labels
    margin: NDArray[np.float32]
    """Share of the answers that gave the label, less the share of the most frequent other one; 0 in a tie."""
    tied: NDArray[np.bool_]
    """Whether the tie rule decided."""
    n_answers: NDArray[np.int32]
    positive: NDArray[np.float32]
    """Share of the answers that are positive, without smoothing."""


def majority_table(table: AnswerTable, n_positive: int = POSITIVE_LABELS) -> Majority:
    """Each item's most frequent label; a tie goes to the label nearer the median, then to the worse one.

    The median of an even number of answers lies half-way between the middle two.

    Args:
        n_positive: how many labels, counted from the best, are positive.
    """
    n = table.n_items
    label, tied = np.empty(n, dtype=np.int8), np.empty(n, dtype=np.bool_)
    margin, positive = np.empty(n, dtype=np.float32), np.empty(n, dtype=np.float32)
    for start in range(0, n, _CHUNK):
        rows = slice(start, min(start + _CHUNK, n))
        counts = np.ascontiguousarray(
            table.counts(rows.start, rows.stop).T
        )  # (labels, items): short sums are slow
        total = counts.sum(axis=0)
        positive[rows] = counts[:n_positive].sum(axis=0) / total
        most = counts.max(axis=0)
        label[rows], tied[rows] = _winners(counts, most, total)
        counts[label[rows], np.arange(counts.shape[1])] = 0
        margin[rows] = (most - counts.max(axis=0)) / total
    return Majority(label, margin, tied, table.answers_per_item.astype(np.int32), positive)


def _winners(counts: Counts, most: Counts, total: Counts) -> tuple[Labels, NDArray[np.bool_]]:
    """The winning label of each column of (labels, items), and whether others are as frequent."""
    n_labels = len(counts)
    winner = n_labels - 1 - counts[::-1].argmax(axis=0)  # the worst of the most frequent
    tied = (counts == most).sum(axis=0) > 1
    if tied.any():
        rivals = counts[:, tied]
        middle = _twice_the_median(rivals, total[tied])
        away = np.abs(2 * np.arange(n_labels)[:, None] - middle)
        away[rivals != most[tied]] = 2 * n_labels
        winner[tied] = n_labels - 1 - away[::-1].argmin(axis=0)
    return winner.astype(np.int8), tied


def _twice_the_median(counts: Counts, total: Counts) -> Counts:
    up_to = counts.cumsum(axis=0)
    twice: Counts = (up_to <= (total - 1) // 2).sum(axis=0) + (up_to <= total // 2).sum(axis=0)
    return twice


def most_positive_table(table: AnswerTable) -> Labels:
    """(items,) each item's best label: the official merge calls a pair positive if any one answer does."""
    if not len(table):
        return np.empty(0, dtype=np.int8)
    best: Labels = np.minimum.reduceat(table.label, table.starts[:-1])
    return best
