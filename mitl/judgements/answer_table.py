"""Answers as columns: item, worker and label of each, grouped by item; what every aggregator reads."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mitl.records import Label, PairRole

UNKNOWN = -1
"""In ``known``: nobody told the answer of this item."""

Ints = NDArray[np.int32]
Labels = NDArray[np.int8]
Known = dict[PairRole, Label]

GOLD_LABELS: Known = {PairRole.GOLD_POSITIVE: Label.YES, PairRole.GOLD_NEGATIVE: Label.NO}
"""What a gold control is known to be."""


@dataclass(frozen=True, slots=True, eq=False)
class AnswerTable:
    """Answers grouped by item, then by worker; several of one worker on one item keep the order given.

    Labels are places on a scale, 0 the best (``yes``) and ``n_labels - 1`` the worst (``no``).

    Raises:
        ValueError: columns differ in length, a code is out of range, or an item has no answer.
    """

    item: Ints
    """(n,) codes from 0 without gaps, ascending."""
    worker: Ints
    """(n,) codes from 0; a worker may have no answer."""
    label: Labels
    """(n,) from 0 to ``n_labels - 1``."""
    n_workers: int
    n_labels: int = len(Label)
    known: Labels = field(default_factory=lambda: np.empty(0, dtype=np.int8))
    """(items,) the label of an item that is known beforehand, else ``UNKNOWN``; empty: all unknown."""
    starts: NDArray[np.int64] = field(init=False)
    """(items + 1,) where each item's answers begin."""

    def __post_init__(self) -> None:
        columns = (self.item, self.worker, self.label)
        if len({len(column) for column in columns}) > 1:
            lengths = ", ".join(str(len(column)) for column in columns)
            raise ValueError(f"item, worker and label have {lengths} rows, but each answer needs all three")
        n_items = int(self.item[-1]) + 1 if len(self.item) else 0
        starts = np.searchsorted(self.item, np.arange(n_items + 1)).astype(np.int64)
        if len(self.item) and (
            np.any(np.diff(self.item) < 0) or self.item[0] < 0 or np.any(np.diff(starts) == 0)
        ):
            raise ValueError("items must ascend from 0 without gaps; use answer_table() to make them so")
        _check_range("worker", self.worker, 0, self.n_workers)
        _check_range("label", self.label, 0, self.n_labels)
        known = self.known if len(self.known) else np.full(n_items, UNKNOWN, dtype=np.int8)
        if len(known) != n_items:
            raise ValueError(f"known has {len(known)} rows, but there are {n_items} items")
        _check_range("known label", known, UNKNOWN, self.n_labels)
        object.__setattr__(self, "known", known)
        object.__setattr__(self, "starts", starts)

    def __len__(self) -> int:
        return len(self.item)

    @property
    def n_items(self) -> int:
        """Distinct items."""
        return len(self.starts) - 1

    @property
    def answers_per_item(self) -> NDArray[np.int64]:
        """(items,) how many answers each item has."""
        return np.diff(self.starts)

    def counts(self, start: int = 0, stop: int | None = None) -> NDArray[np.int64]:
        """(items, labels) how often each label was given, for the items from ``start`` to before ``stop``."""
        stop = self.n_items if stop is None else stop
        rows = slice(int(self.starts[start]), int(self.starts[stop]))
        cells = (self.item[rows].astype(np.int64) - start) * self.n_labels + self.label[rows]
        counted = np.bincount(cells, minlength=(stop - start) * self.n_labels)
        return counted.reshape(stop - start, self.n_labels)

    def with_known(self, known: ArrayLike) -> AnswerTable:
        """The same answers with other items known; (items,) of labels and ``UNKNOWN``."""
        column = np.asarray(known, dtype=np.int8)
        return AnswerTable(self.item, self.worker, self.label, self.n_workers, self.n_labels, column)


def answer_table(
    items: ArrayLike,
    workers: ArrayLike,
    labels: ArrayLike,
    *,
    n_labels: int = len(Label),
    n_workers: int | None = None,
    known: ArrayLike = (),
) -> AnswerTable:
    """A table of answers in any order.

    Args:
        items, workers: codes from 0; see :func:`codes` for other ids.
        known: (items,) as in :class:`AnswerTable`.

    Raises:
        ValueError: as :class:`AnswerTable`, before any code is narrowed.
    """
    item, worker, label = (
        _integers(name, c) for name, c in zip(_NAMES, (items, workers, labels), strict=True)
    )
    if not len(item) == len(worker) == len(label):
        return AnswerTable(item.astype(np.int32), worker.astype(np.int32), label.astype(np.int8), 0)
    workers_total = n_workers if n_workers is not None else int(worker.max(initial=-1)) + 1
    _check_range("item", item, 0, np.iinfo(np.int32).max)
    _check_range("worker", worker, 0, workers_total)
    _check_range("label", label, 0, n_labels)
    known_labels = _integers("known label", known)
    _check_range("known label", known_labels, UNKNOWN, n_labels)
    key = item.astype(np.int64) * workers_total + worker
    if np.any(key[1:] < key[:-1]):
        order = np.argsort(key, kind="stable")
        item, worker, label = item[order], worker[order], label[order]
    return AnswerTable(
        item.astype(np.int32),
        worker.astype(np.int32),
        label.astype(np.int8),
        workers_total,
        n_labels,
        known_labels.astype(np.int8),
    )


def codes(ids: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.generic]]:
    """Codes from 0 for ids of one kind, and the ids in the order of their codes (ascending).

    As everywhere in NumPy a string's trailing NULs do not count.
    """
    distinct, coded = np.unique(np.asarray(ids), return_inverse=True)
    return coded.reshape(-1).astype(np.int64), distinct


_NAMES = ("item", "worker", "label")


def _integers(name: str, column: ArrayLike) -> NDArray[np.integer]:
    array = np.asarray(column)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            f"the {name} column is {array.dtype} of shape {array.shape}; integers in one row are right"
        )
    return array


def _check_range(name: str, column: NDArray[np.integer], low: int, end: int) -> None:
    if len(column) and not (low <= column.min() and column.max() < end):
        wrong = column.min() if column.min() < low else column.max()
        raise ValueError(f"{name} {wrong} is out of range: {low} to {end - 1} are known")


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


def majority_table(table: AnswerTable) -> Majority:
    """Each item's most frequent label; a tie goes to the label nearer the median, then to the worse one.

    The median of an even number of answers lies half-way between the middle two.
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
        positive[rows] = counts[:POSITIVE_LABELS].sum(axis=0) / total
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
