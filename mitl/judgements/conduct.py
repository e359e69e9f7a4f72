"""How a worker goes about it: speed, straight-lining, variety, agreement with others. Evidence, never a verdict."""

from __future__ import annotations

import functools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from mitl.judgements.gold_records import GoldRecord
from mitl.records import Label, Pair
from mitl.retrieval.intervals import clopper_pearson

INTERVAL = 0.9
"""Probability that the interval of a gold record holds."""


@dataclass(frozen=True, slots=True)
class Run:
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
def gold_interval(record: GoldRecord, probability: float = INTERVAL) -> tuple[float, float]:
    """The central interval of the posterior Beta(passes + 1/2, failures + 1/2) of the pass rate.

    Its bounds are Clopper and Pearson's with the counts moved by a half, which is how those are defined.
    """
    low, _ = clopper_pearson(record.passes + 0.5, record.golds, probability)
    _, high = clopper_pearson(record.passes - 0.5, record.golds, probability)
    return low, high


def longest_run(pages: Iterable[Sequence[Label]]) -> Run | None:
    """The longest row of one answer on any of these pages; the earliest of equals, None without answers."""
    best: Run | None = None
    for labels in pages:
        length, before = 0, None
        for label in labels:
            length = length + 1 if label is before else 1
            before = label
            if best is None or length > best.length:
                best = Run(length, label)
    return best


def entropy_bits(labels: Iterable[Label]) -> float | None:
    """Shannon's entropy of the answers, 0 (always the same) to 2 (all four alike); None without answers."""
    counts = Counter(labels)
    total = counts.total()
    if not total:
        return None
    return max(0.0, -sum(n / total * math.log2(n / total) for n in counts.values()))


def median_seconds(active_ms: Iterable[int | None]) -> float | None:
    """Median active seconds on one pair; pairs whose time was not measured are left out."""
    times = [ms / 1000 for ms in active_ms if ms]
    return statistics.median(times) if times else None


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
            f"{self.median_s:.1f} s a pair (median), under the floor of {self.floor_s:g} s; "
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


def agreements(
    answers: Iterable[tuple[str, Pair, Label]], distrusted: Collection[str] = ()
) -> dict[str, Agreement]:
    """Each worker against every other who answered the same pair; workers without such a pair are left out.

    Args:
        answers: (worker, pair, label); a worker's first answer on a pair counts.
        distrusted: workers whom nobody is compared with; they themselves are compared.
    """
    by_pair: dict[Pair, dict[str, bool]] = defaultdict(dict)
    for worker, pair, label in answers:
        by_pair[pair].setdefault(worker, label.is_positive)
    same: dict[str, int] = defaultdict(int)
    total: dict[str, int] = defaultdict(int)
    for given in by_pair.values():
        for worker, side in given.items():
            for other, their in given.items():
                if other != worker and other not in distrusted:
                    total[worker] += 1
                    same[worker] += side == their
    return {worker: Agreement(same[worker], count) for worker, count in sorted(total.items())}


def consistency(answers: Iterable[tuple[str, Pair, Label]]) -> dict[str, Agreement]:
    """Each worker against their own first answer, where a pair came to them again; others are left out.

    Args:
        answers: (worker, pair, label), earlier before later.
    """
    first: dict[tuple[str, Pair], bool] = {}
    same: dict[str, int] = defaultdict(int)
    total: dict[str, int] = defaultdict(int)
    for worker, pair, label in answers:
        if (worker, pair) not in first:
            first[worker, pair] = label.is_positive
            continue
        total[worker] += 1
        same[worker] += label.is_positive == first[worker, pair]
    return {worker: Agreement(same[worker], count) for worker, count in sorted(total.items())}
