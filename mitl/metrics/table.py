"""The table of metrics: each is a function of the ranks of a query's positives, and anybody may add one.

A metric that is undefined for a query says so: nothing is scored as -1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, TypedDict, Unpack, get_args

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.metrics.positives import Ids, NoPositives, Short, Statistic
from mitl.metrics.ranks import PositiveRanks

Scores = NDArray[np.float64]

KS = (1, 5, 10)
R_PRECISION, MAP_AT_R, MEDIAN_RANK = "R-Precision", "mAP@R", "median rank"

ANYWHERE = np.iinfo(np.int64).max
"""How far a rank matters where it always does."""


@dataclass(frozen=True, slots=True)
class Metric:
    """How a value of each query follows from where its positives stand, and how it is shown."""

    of: Callable[[PositiveRanks, int], NDArray[Any]]
    """(Q,) from the ranks of some queries' positives and K, which is 0 where the name has none."""
    positives: Literal["first", "all"] = "all"
    """Whose ranks it needs: reading on to the first positive alone is cheaper."""
    places: Literal["K", "R", "any"] = "any"
    """How far down: to K, to the number of the query's positives, or wherever the positives stand."""
    statistic: Statistic = Statistic.MEAN
    is_share: bool = True
    """Whether it is shown in percent."""
    other_names: tuple[str, ...] = ()


def recall_at_k(found: PositiveRanks, k: int) -> NDArray[np.bool_]:
    """Whether a positive is among the first K items."""
    return (found.first > 0) & (found.first <= k)


def precision_at_k(found: PositiveRanks, k: int) -> Scores:
    """The share of positives among the first K items. Places beyond what was read are misses."""
    return np.asarray(found.hits(k).sum(axis=1) / k, dtype=np.float64)


def r_precisions(found: PositiveRanks, k: int = 0) -> Scores:
    """The share of positives among the first R items. Places beyond what was read are misses."""
    return np.asarray(found.hits(found.counts).sum(axis=1) / found.counts, dtype=np.float64)


def average_precisions_at_r(found: PositiveRanks, k: int = 0) -> Scores:
    """AP@R: precision at each place from 1 to R that holds a positive, summed, over R.

    Source: Musgrave et al., A Metric Learning Reality Check, ECCV 2020, section 3.2.
    """
    hits = found.hits(found.counts)
    precision = np.cumsum(hits, axis=1) / np.arange(1, found.depth + 1)  # (Q, depth)
    return np.asarray((precision * hits).sum(axis=1) / found.counts, dtype=np.float64)


def first_rank(found: PositiveRanks, k: int = 0) -> Ids:
    """The rank of the first positive; one that was not met stands right behind the end."""
    return np.where(found.first > 0, found.first, found.ends + 1)


USUAL = ("R@1", "R@5", "R@10", R_PRECISION, MAP_AT_R)
"""What is taken where no metric is named."""
METRICS: dict[str, Metric] = {
    "R@K": Metric(recall_at_k, "first", "K", other_names=("Recall@K",)),
    "P@K": Metric(precision_at_k, "all", "K", other_names=("Precision@K",)),
    R_PRECISION: Metric(r_precisions, "all", "R", other_names=("R-P",)),
    MAP_AT_R: Metric(average_precisions_at_r, "all", "R"),
    MEDIAN_RANK: Metric(first_rank, "first", "any", Statistic.MEDIAN, is_share=False),
}
"""By name, in the order of columns; ``@K`` at its end stands for any K. One entry more is one metric more, which
`mitl evaluate` and ``score_metrics`` take by its name. Installed packages add theirs as entry points of
``mitl.metrics``."""


@cache
def load_installed() -> tuple[tuple[str, MetricError], ...]:
    """Put the metrics of installed packages into the table; the name and the fault of each that cannot be there."""
    faults = []
    for point in entry_points(group="mitl.metrics"):
        try:
            metric = point.load()
        except Exception as error:
            faults.append((point.name, _unusable(point, f"cannot be loaded ({error})")))
            continue
        if why := _why_not(point.name, metric):
            faults.append((point.name, _unusable(point, why)))
        else:
            METRICS[point.name] = replace(metric, of=_guarded(point, metric.of))
    return tuple(faults)


def _why_not(name: str, metric: object) -> str:
    """Why what a package gives cannot be asked for by this name; empty where it can."""
    if not isinstance(metric, Metric):
        return f"is a {type(metric).__name__}, not a Metric"
    if "," in name:
        return "has a comma in its name, which parts the names of several"
    taken = {known.lower() for of, other in METRICS.items() for known in (of, *other.other_names)}
    return "is called as another metric, which keeps the name" if name.lower() in taken else ""


def _unusable(point: EntryPoint, why: str) -> MetricError:
    return MetricError(
        f"the metric {point.name!r} of an installed package {why}; mend its entry point {point.value!r} or uninstall it"
    )


def _guarded(
    point: EntryPoint, of: Callable[[PositiveRanks, int], NDArray[Any]]
) -> Callable[[PositiveRanks, int], NDArray[Any]]:
    """The same function; what goes wrong in it is told as the package's fault."""

    def values(found: PositiveRanks, k: int) -> NDArray[Any]:
        try:
            return np.asarray(of(found, k), dtype=np.float64)
        except Exception as error:
            raise _unusable(point, f"failed ({type(error).__name__}: {error})") from error

    return values


def metric_named(name: str) -> Metric | None:
    """The metric that values of this name are of, such as ``R@5``; None where they are of none in the table."""
    return METRICS.get(name) or METRICS.get(re.sub("@[0-9]+$", "@K", name))


@dataclass(frozen=True, slots=True)
class Asked:
    """A metric that is asked for, with its K where it has one."""

    name: str
    """``R@5``, as ``QueryValues`` names it."""
    metric: Metric
    k: int = 0

    def reach(self, counts: Ids) -> Ids:
        """(Q,) the rank beyond which a positive does not matter, for queries with so many positives."""
        if self.metric.places == "R":
            return counts
        return np.full(len(counts), self.k if self.metric.places == "K" else ANYWHERE)

    @property
    def reads_on(self) -> bool:
        """Whether a ranking is read until its first positive is met, and no further."""
        return self.metric.positives == "first" and self.metric.places == "any"

    @property
    def long_name(self) -> str:
        """``Recall@5``."""
        names = [name for name in self.metric.other_names if name.endswith("@K")]
        return f"{names[0][:-1]}{self.k}" if names else self.name


def asked_metrics(names: Iterable[str]) -> tuple[Asked, ...]:
    """The metrics named, each once and in the order of the table; case does not matter.

    Raises:
        MetricError: there is no such metric, or the package that has it is broken.
    """
    faults = load_installed()
    places = {_place_of(name, faults) for name in names}
    return tuple(_asked(list(METRICS)[row], k) for row, k in sorted(places))


def _place_of(name: str, faults: Iterable[tuple[str, MetricError]]) -> tuple[int, int]:
    """The metric's row in the table and its K, 0 where it has none."""
    for row, (metric_name, metric) in enumerate(METRICS.items()):
        k = _k_of(name, metric_name, *metric.other_names)
        if k is not None:
            return row, k
    for metric_name, fault in faults:
        if _k_of(name, metric_name) is not None:
            raise fault
    all_known = (
        f"{metric_name} for any K" if metric_name.endswith("@K") else metric_name.replace(" ", "-")
        for metric_name in METRICS
    )
    raise MetricError(f"no metric called {name!r}; known: {', '.join(all_known)}")


def _k_of(name: str, *known: str) -> int | None:
    """The K of a name that means a metric known by these, 0 where it has none; None where it means another."""
    stem, at, k = name.strip().lower().replace(" ", "-").partition("@")
    for other in known:
        said, _, ending = other.lower().replace(" ", "-").partition("@")
        if stem == said and k == ending and ending != "k":
            return 0
        if stem == said and ending == "k" and at and re.fullmatch("[1-9][0-9]*", k):
            return int(k)
    return None


def usual_metrics(ks: Sequence[int], *, by_r: bool, median_rank: bool) -> tuple[Asked, ...]:
    """Recall at these K, R-Precision and mAP@R, and the median rank; MetricError where a K is below 1."""
    for k in ks:
        if k < 1:
            raise MetricError(f"K is {k}, but ranks start at 1")
    names = [R_PRECISION, MAP_AT_R] * by_r + [MEDIAN_RANK] * median_rank
    return (*(_asked("R@K", k) for k in dict.fromkeys(ks)), *map(_asked, names))


def _asked(name: str, k: int = 0) -> Asked:
    return Asked(f"{name[:-1]}{k}" if name.endswith("@K") else name, METRICS[name], k)


class Gaps(TypedDict, total=False):
    """Keywords of scoring functions: what they make of what is missing."""

    short: Short
    no_positives: NoPositives


class WithoutR(Gaps, total=False):
    """The same, and which metrics of the first positives are wanted."""

    ks: Sequence[int]
    """K of Recall@K, 1, 5 and 10 by default."""
    median_rank: bool
    """Whether the rank of each query's first positive is wanted."""


class ScoreOptions(WithoutR, total=False):
    """The same, and whether those that look at R places are."""

    by_r: bool
    """R-Precision and mAP@R, as by default; else only max(ks) places are read."""


@dataclass(frozen=True, slots=True)
class MetricRequest:
    """Metrics that are asked for, and what is made of what is missing."""

    asked: Sequence[Asked]
    short: Short = "raise"
    no_positives: NoPositives = "raise"

    def __post_init__(self) -> None:
        for name, said, known in (
            ("short", self.short, get_args(Short)),
            ("no_positives", self.no_positives, get_args(NoPositives)),
        ):
            if said not in known:  # which would be taken for the lenient one
                raise MetricError(f"{name} is {said!r}; known: {', '.join(known)}")

    @classmethod
    def of(
        cls, ks: Sequence[int] = KS, by_r: bool = True, median_rank: bool = False, **gaps: Unpack[Gaps]
    ) -> MetricRequest:
        """The usual metrics; MetricError where a K is below 1."""
        return cls(usual_metrics(ks, by_r=by_r, median_rank=median_rank), **gaps)
