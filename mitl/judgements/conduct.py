"""How workers go about it: speed, straight-lining, variety, agreement with others. Evidence, never a verdict.

What is said of all workers is computed from columns, half a million answers at once: workers and labels are codes,
labels in the order of `Label`.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import Flags, Ints, coded, pack_ids, unpack_ids
from mitl.core.formats import lower_bound
from mitl.core.statistics import clopper_pearson
from mitl.judgements.gold_records import GoldRecord
from mitl.records import Label
from mitl.records.frames import LABELS

Codes = NDArray[np.int8]

_SIDES = np.array([label.is_positive for label in LABELS])

INTERVAL = 0.9
"""Probability that the interval of a gold record holds."""


@dataclass(frozen=True, slots=True)
class AnswerRun:
    """The longest row of one answer on one page."""

    length: int
    label: Label


@dataclass(frozen=True, slots=True)
class Agreement:
    """On how many comparisons of two answers to one pair both said match, or both said no match."""

    same: int
    comparisons: int

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.same / self.comparisons


@functools.cache
def gold_interval(record: GoldRecord) -> tuple[float, float]:
    """The central interval of the posterior Beta(passes + 1/2, failures + 1/2) of the pass rate.

    Its bounds are Clopper and Pearson's with the counts moved by a half, which is how those are defined.
    """
    low, _ = clopper_pearson(record.passes + 0.5, record.golds, INTERVAL)
    _, high = clopper_pearson(record.passes - 0.5, record.golds, INTERVAL)
    return low, high


@dataclass(frozen=True, slots=True)
class Haste:
    """Half of some pairs took less time than anybody needs to look at one, however fast the other workers are."""

    median_s: float
    floor_s: float
    under: int
    """Pairs that took less than the floor."""
    timed: int
    """Pairs whose time was measured."""

    @property
    def text(self) -> str:
        """In words."""
        return (
            f"{lower_bound(self.median_s, 1)} s a pair (median), under the floor of {self.floor_s:g} s; "
            f"{self.under} of {self.timed} pairs took less"
        )


def haste(seconds: Iterable[float | None], floor_s: float) -> Haste | None:
    """Whether these times on pairs are too short to have looked; None where they are not, or none was measured.

    Args:
        seconds: active seconds on each pair; None or 0 where nothing was measured.
        floor_s: 0 calls nothing too short.
    """
    times = [time for time in seconds if time]
    if not times or (median := statistics.median(times)) >= floor_s:
        return None
    return Haste(median, floor_s, sum(time < floor_s for time in times), len(times))


def medians_s(worker: Ints, active_ms: Ints) -> dict[int, float]:
    """Worker → median active seconds on one pair; nobody of whom nothing was measured.

    Args:
        worker: (answers,), codes.
        active_ms: (answers,), 0 where nothing was measured.
    """
    measured = active_ms != 0
    order = np.sort(pack_ids(worker[measured], active_ms[measured]))  # both in one number: many times as fast
    who, times = unpack_ids(order)
    first = np.flatnonzero(np.diff(who, prepend=-1))
    workers, count = who[first], np.diff(first, append=len(who))
    low, high = times[first + (count - 1) // 2] / 1000, times[first + count // 2] / 1000
    middle = np.where(count % 2 == 1, low, (low + high) / 2)
    return dict(zip(workers.tolist(), middle.tolist(), strict=True))


def label_counts(worker: Ints, label: Codes, n_workers: int) -> Ints:
    """(workers, labels): how often each worker gave each label.

    Args:
        label: (answers,), codes; -1 for none.
    """
    given = label >= 0
    flat = np.bincount(worker[given] * len(LABELS) + label[given], minlength=n_workers * len(LABELS))
    return flat.reshape(n_workers, len(LABELS))


def entropy_of_counts(counts: Iterable[int]) -> float | None:
    """Shannon's entropy of the answers, 0 bits (always the same) to 2 (all four alike), from how often each was given;
    None without answers."""
    given = [count for count in counts if count]
    total = sum(given)
    if not total:
        return None
    return max(0.0, -sum(n / total * math.log2(n / total) for n in given))


def longest_runs(worker: Ints, page: Ints, label: Codes) -> dict[int, AnswerRun]:
    """Worker → the longest row of one answer on one page, the earliest of equals.

    Args:
        worker: (answers,), codes, of answers by page and place.
        page: (answers,), ascending.
        label: (answers,), codes; -1 for none, which ends no row.
    """
    given = label >= 0
    worker, page, label = worker[given], page[given], label[given]
    if not len(page):
        return {}
    begins = np.flatnonzero(np.append(True, (page[1:] != page[:-1]) | (label[1:] != label[:-1])))
    lengths = np.diff(np.append(begins, len(page)))
    workers, who = coded(worker[begins])
    longest = np.zeros(len(workers), np.int64)
    np.maximum.at(longest, who, lengths)
    is_longest = np.flatnonzero(lengths == longest[who])
    best = np.full(len(workers), len(begins))
    np.minimum.at(best, who[is_longest], is_longest)
    return {
        who: AnswerRun(length, LABELS[code])
        for who, length, code in zip(
            workers.tolist(), lengths[best].tolist(), label[begins[best]].tolist(), strict=True
        )
    }


@dataclass(frozen=True, slots=True)
class FirstAnswers:
    """Each worker's first answer on each pair, by worker and pair; each (answers,)."""

    worker: Ints
    """Codes."""
    pair: Ints
    side: Flags
    """Whether it said match."""


def first_answers(worker: Ints, pair: Ints, label: Codes) -> tuple[FirstAnswers, dict[int, Agreement]]:
    """Each worker's first answers, and worker → agreement of their later ones with these; without such, nothing.

    Args:
        worker: (answers,), codes, of answers in the order in which they count.
        pair: (answers,).
        label: (answers,), codes, none missing.
    """
    keys = pack_ids(worker, pair)
    order = np.argsort(keys, kind="stable")
    keys, side = keys[order], _SIDES[label[order]]
    is_first = np.diff(keys, prepend=-1) != 0
    of_first = np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    again = ~is_first
    who, pairs = unpack_ids(keys)
    n = int(worker.max(initial=-1)) + 1
    own = _tally(who[again], (side == side[of_first])[again], np.ones(again.sum(), np.int64), n)
    return FirstAnswers(who[is_first], pairs[is_first], side[is_first]), own


def agreement(first: FirstAnswers, distrusted: Flags) -> dict[int, Agreement]:
    """Worker → agreement with others on the same pairs, on match or no match; without such, nothing.

    Args:
        distrusted: (workers,), with whom nobody is compared.
    """
    several = (
        np.bincount(first.pair)[first.pair] > 1
    )  # few, among millions; the others are compared with nobody
    who, mine = first.worker[several], first.side[several]
    pairs, pair = coded(first.pair[several])
    trusted = ~distrusted[who]
    all_ = np.bincount(pair[trusted], minlength=len(pairs))[pair]
    positive = np.bincount(pair[trusted & mine], minlength=len(pairs))[pair]
    same = np.where(mine, positive, all_ - positive) - trusted
    return _tally(who, same, all_ - trusted, len(distrusted))


def _tally(worker: Ints, same: NDArray[np.generic], total: Ints, n: int) -> dict[int, Agreement]:
    """Sums for each worker with a comparison; whole numbers below 2^53, so floats add them exactly."""
    counted = np.bincount(worker, total, minlength=n).astype(np.int64)
    agreed = np.bincount(worker, same.astype(np.float64), minlength=n).astype(np.int64)
    return {who: Agreement(int(agreed[who]), int(counted[who])) for who in np.flatnonzero(counted).tolist()}
