"""Tables of answers with known truth: drawn from the ordinal model, from confusion matrices, from real crowds."""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from mitl.judgements.agreement import REPLICATES, Alpha, Scale, _estimate
from mitl.judgements.answer_table import UNKNOWN, AnswerTable, answer_table, codes


def count_alpha(
    counts: ArrayLike, scale: Scale = Scale.ORDINAL, *, replicates: int = REPLICATES, seed: int = 0
) -> Alpha:
    """Agreement from (units, values) how many people gave each value to each unit; each person once."""
    table = np.asarray(counts, np.int64)
    rows, times = np.unique(table[table.sum(axis=1) > 1], axis=0, return_counts=True)
    return _estimate(rows, times, np.arange(table.shape[1]), scale, replicates, seed)


THRESHOLDS = np.array([-0.2, 0.3, 1.0])


@st.composite
def answers(draw: st.DrawFn, max_rows: int = 40, max_items: int = 8, n_labels: int = 4):
    """(item, worker, label) rows that name every item from 0 to the greatest."""
    n_items = draw(st.integers(1, max_items))
    cell = st.tuples(st.integers(0, n_items - 1), st.integers(0, 5), st.integers(0, n_labels - 1))
    rows = draw(st.lists(cell, max_size=max_rows))
    rows += [(i, draw(st.integers(0, 5)), draw(st.integers(0, n_labels - 1))) for i in range(n_items)]
    return draw(st.permutations(rows))


def as_table(rows, **options) -> AnswerTable:
    """A table of (item, worker, label) rows."""
    return answer_table(*zip(*rows, strict=True), n_workers=6, **options)


@dataclass(frozen=True, eq=False)
class Drawn:
    """Answers drawn from the ordinal model, and what they were drawn from."""

    table: AnswerTable
    match: NDArray[np.float64]
    bias: NDArray[np.float64]
    log_noise: NDArray[np.float64]
    truth: NDArray[np.int64]


def draw_ordinal(
    n_items: int, n_workers: int, per_item: int, *, golds: int = 0, noise: float = 0.5, seed: int = 0
) -> Drawn:
    """Workers with b ~ N(0, .4²) and log s ~ N(log noise, .4²), some of them busier than others.

    The first ``golds`` items are controls, half beyond either outer threshold; every worker's every tenth
    answer or so goes to one.
    """
    rng = np.random.default_rng(seed)
    z = rng.standard_normal(n_items)
    known = np.full(n_items, UNKNOWN)
    half = golds // 2
    top = ndtr(THRESHOLDS[-1])
    z[:half] = ndtri(top + (1 - top) * rng.random(half))
    z[half:golds] = ndtri(ndtr(THRESHOLDS[0]) * rng.random(golds - half))
    known[:half], known[half:golds] = 0, len(THRESHOLDS)
    bias = 0.4 * rng.standard_normal(n_workers)
    log_noise = np.log(noise) + 0.4 * rng.standard_normal(n_workers)
    busy = 1 / np.arange(1, n_workers + 1) ** 0.8
    item = np.repeat(np.arange(golds, n_items), per_item)
    if golds:
        item = np.concatenate([item, np.arange(golds), rng.integers(golds, size=len(item) // 9)])
    worker = rng.choice(n_workers, size=len(item), p=busy / busy.sum())
    seen = z[item] - bias[worker] + np.exp(log_noise[worker]) * rng.standard_normal(len(item))
    label = len(THRESHOLDS) - (seen[:, None] >= THRESHOLDS).sum(axis=1)
    truth = len(THRESHOLDS) - (z[:, None] >= THRESHOLDS).sum(axis=1)
    table = answer_table(item, worker, label, n_workers=n_workers, known=known)
    return Drawn(table, z, bias, log_noise, truth)


def draw_uneven(
    truth: NDArray[np.int64],
    match: NDArray[np.float64],
    thresholds: NDArray[np.float64],
    per_item: int,
    *,
    bias: NDArray[np.float64],
    noise: NDArray[np.float64],
    blind: NDArray[np.float64],
    busy: float,
    seed: int = 0,
) -> AnswerTable:
    """Answers of workers of (W,) bias and noise, and (W, labels) shares of answers given blindly.

    The first workers answer most: the load of the n-th falls as n to the power of ``-busy``.
    """
    rng = np.random.default_rng(seed)
    n_workers, n_labels = blind.shape
    load = np.arange(1, n_workers + 1) ** -busy
    item = np.repeat(np.arange(len(truth)), per_item)
    worker = rng.choice(n_workers, size=len(item), p=load / load.sum())
    seen = match[item] - bias[worker] + noise[worker] * rng.standard_normal(len(item))
    label = n_labels - 1 - (seen[:, None] >= thresholds).sum(axis=1)
    blindly = rng.random(len(item))[:, None] > blind[worker].cumsum(axis=1)
    clicked = blindly.sum(axis=1)
    label = np.where(clicked < n_labels, clicked, label)
    return answer_table(item, worker, label, n_labels=n_labels, n_workers=n_workers)


def draw_scale(
    n_items: int, shares: ArrayLike, *, gathered: float = 0.0, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Normal matches cut into levels of these shares, the best first: true labels, matches and thresholds.

    Args:
        gathered: how far each match is drawn towards the middle of its level, from 0 to 1.
    """
    thresholds = ndtri(np.cumsum(np.asarray(shares)[::-1])[:-1])
    match = np.random.default_rng(seed).standard_normal(n_items)
    level = (match[:, None] >= thresholds).sum(axis=1)
    edges = np.concatenate([[-2.2], thresholds, [2.2]])
    middle = (edges[1:] + edges[:-1]) / 2
    return len(thresholds) - level, (1 - gathered) * match + gathered * middle[level], thresholds


def draw_confused(
    n_items: int,
    matrices: NDArray[np.float64],
    per_item: int,
    *,
    shares=(0.1, 0.15, 0.25, 0.5),
    seed: int = 0,
) -> tuple[AnswerTable, NDArray[np.int64]]:
    """Answers of workers with these (workers, true labels, labels) matrices, and the true labels."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(matrices.shape[1], size=n_items, p=shares)
    item = np.repeat(np.arange(n_items), per_item)
    worker = rng.integers(len(matrices), size=len(item))
    upper = matrices[worker, truth[item]].cumsum(axis=1)[:, :-1]
    label = (rng.random(len(item))[:, None] > upper).sum(axis=1)
    return answer_table(item, worker, label, n_labels=matrices.shape[2], n_workers=len(matrices)), truth


@dataclass(frozen=True, eq=False)
class RealSet:
    """A real crowd's answers, with the truth of some items."""

    table: AnswerTable
    judged: NDArray[np.int64]
    truth: NDArray[np.int64]

    def accuracy(self, label: NDArray[np.int8]) -> float:
        """Share of the items with a truth that have this label."""
        return float((label[self.judged] == self.truth).mean())


def read_set(folder: Path, name: str, scale: int | None = None) -> RealSet:
    """One of the sets of worker-level labels with truth; with ``scale`` without the labels from that number on."""
    with gzip.open(folder / f"{name}.label.csv.gz", "rt") as file:
        rows = np.array(list(csv.reader(file))[1:], dtype=np.int64)
    with (folder / f"{name}.truth.csv").open() as file:
        known = np.array(list(csv.reader(file))[1:], dtype=np.int64)
    n_labels = scale or int(max(rows[:, 2].max(), known[:, 1].max())) + 1
    rows, known = rows[rows[:, 2] < n_labels], known[known[:, 1] < n_labels]
    item, ids = codes(rows[:, 0])
    worker, _ = codes(rows[:, 1])
    known = known[np.isin(known[:, 0], ids)]
    table = answer_table(item, worker, rows[:, 2], n_labels=n_labels)
    return RealSet(table, np.searchsorted(ids, known[:, 0]), known[:, 1])
