"""How sure a metric is: bootstrap intervals, and a paired test of two models on the same queries.

The query is the unit: it is drawn with all its values, so that a query that stands in several folds is drawn
with each of them. Queries that are hit or missed together, such as the captions of one image, are drawn together if
their groups are given. Weights go with their values, and the shares of a resample are made to add up to 1 again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import Floats, places
from mitl.core.statistics import clopper_pearson, percentile_interval
from mitl.errors import MetricError
from mitl.metrics.positives import Ids, QueryValues, Statistic
from mitl.metrics.table import metric_named

Drawn = Callable[[Ids], Ids]
"""Query ids (N,) to a number for what is drawn with each, equal for those that are drawn together."""
_CELLS = 1 << 20
"""Draws held at once: some 30 MB, whatever the numbers of queries and samples are."""
_FEW = 32
"""Distinct values are drawn in place of queries where they are this many times fewer: the same distribution, faster."""
_ROUNDING = 1e-12
"""Relative difference up to which two sums over the same numbers count as equal."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A metric with the ends of its percentile bootstrap interval, in the metric's own unit."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class QueryGroups:
    """Which queries are drawn together."""

    query_ids: Ids
    """(Q,) rising."""
    groups: Ids
    """(Q,) equal for queries of one group."""

    def of(self, query_ids: Ids) -> Ids:
        """(N,) a number for each one's group; a query whose group is not told stands alone."""
        at = places(self.query_ids, query_ids)
        return np.where(at >= 0, 2 * self.groups[at], 2 * query_ids + 1)


@dataclass(frozen=True, slots=True)
class PairedTest:
    """One model's metric minus the other's, with the ends of its interval and a two-sided p-value."""

    difference: float
    low: float
    high: float
    p_value: float
    """At least 1 / (1 + samples)."""
    n_queries: int


def interval(
    values: QueryValues,
    *,
    samples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    groups: QueryGroups | None = None,
) -> Interval:
    """The metric and its percentile interval over ``samples`` resamples of the queries, wider for means of few.

    Where every query has the same value, the interval is that value. Of a share that is 0 or 1 for every query,
    resamples would hide all doubt, and the other end is Clopper and Pearson's.

    Args:
        groups: queries that are drawn together; each is drawn by itself where None.

    Raises:
        MetricError: fewer than two queries or groups, a value that is not a number, a weight that is not above 0,
            ``samples`` below 1 or ``confidence`` not between 0 and 1.
    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13; Hesterberg, The American
        Statistician 2015; Clopper and Pearson, Biometrika 1934.
    """
    _check(values, samples, confidence)
    units = Units.of(values.query_ids, values.metric, groups)
    metric = metric_named(values.metric)
    if metric is not None and metric.is_share and np.ptp(values.values) == 0 and values.values[0] in (0, 1):
        return Interval(values.estimate, *clopper_pearson(values.values[0] * units.n, units.n, confidence))
    return Interval(values.estimate, *_ends(units, [values], samples, confidence, seed))


def paired(
    one: QueryValues,
    other: QueryValues,
    *,
    samples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    groups: QueryGroups | None = None,
) -> PairedTest:
    """``one`` minus ``other``, query by query: a paired bootstrap interval and a randomisation test.

    The test swaps the two models' values of each query, or not, by a fair coin, and counts how often the
    difference is at least as far from 0 as the one seen; the arrangement seen is counted among the samples,
    so that p is never 0. Queries are matched by id, those that stand there several times by occurrence.

    Raises:
        MetricError: the metrics, their statistics, the queries or the weights differ; and as
            ``interval``.
    Source: Smucker, Allan and Carterette, A Comparison of Statistical Significance Tests for Information
        Retrieval Evaluation, CIKM 2007; for counting the arrangement seen, Davison and Hinkley, Bootstrap
        Methods and their Application, 1997, chapter 4.
    """
    for values in (one, other):
        _check(values, samples, confidence)
    one, other = _matched(one, other)
    units = Units.of(one.query_ids, one.metric, groups)
    difference = one.estimate - other.estimate
    low, high = _ends(units, [one, other], samples, confidence, seed)
    swapped = swaps(units, one, other, samples, seed)
    p_value = _p_value(difference, swapped, float(np.abs([one.values, other.values]).max()))
    return PairedTest(difference, low, high, p_value, len(np.unique(one.query_ids)))


def paired_sum(
    ones: Sequence[QueryValues],
    others: Sequence[QueryValues],
    drawn: Sequence[Drawn],
    *,
    samples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> PairedTest:
    """As ``paired``, of the sums of several means: what is drawn or swapped together is so in all of them.

    Raises:
        MetricError: as ``paired``, of any part.
    """
    parts = []
    for pair in zip(ones, others, strict=True):
        for values in pair:
            _check(values, samples, confidence)
        one, other = _matched(*pair)
        parts.append(replace(one, values=one.values - other.values))
    difference = sum(part.estimate for part in parts)
    low, high = sum_ends(parts, drawn, samples, confidence, seed)
    units = _in_common(parts, drawn)
    sums = sum(at.sums(part.values * shares(part)) for at, part in zip(units, parts, strict=True))
    rng = np.random.default_rng([seed, 1])
    largest = max(float(np.abs(values.values).max()) for values in (*ones, *others))
    p_value = _p_value(difference, _swapped_sums(np.asarray(sums), samples, rng), largest)
    return PairedTest(difference, low, high, p_value, sum(len(np.unique(part.query_ids)) for part in parts))


def _p_value(difference: float, swapped: Floats, largest: float) -> float:
    """The share of arrangements, the one seen among them, that are as far from 0, of values up to ``largest``."""
    hits = int((np.abs(swapped) >= abs(difference) - _ROUNDING * largest).sum())
    return (1 + hits) / (1 + len(swapped))


def _matched(one: QueryValues, other: QueryValues) -> tuple[QueryValues, QueryValues]:
    """Both in the order of query ids."""
    if (one.metric, one.statistic) != (other.metric, other.statistic):
        raise MetricError(
            f"a paired test needs one metric of both models, not the {one.statistic} of {one.metric!r} "
            f"and the {other.statistic} of {other.metric!r}"
        )
    first, second = _in_id_order(one), _in_id_order(other)
    if not np.array_equal(first.query_ids, second.query_ids):
        raise MetricError(_unmatched(first.query_ids, second.query_ids, one.metric))
    if not np.allclose(shares(first), shares(second), rtol=1e-9, atol=0):
        raise MetricError(
            f"the two models' values of {one.metric} are weighted differently; use one weighting"
        )
    return first, second


def _in_id_order(values: QueryValues) -> QueryValues:
    order = np.argsort(values.query_ids, kind="stable")
    weights = None if values.weights is None else values.weights[order]
    return replace(values, query_ids=values.query_ids[order], values=values.values[order], weights=weights)


def _unmatched(one: Ids, other: Ids, metric: str) -> str:
    """Which query is not there as often in both."""
    queries = np.union1d(one, other)
    times = [
        np.searchsorted(ids, queries, "right") - np.searchsorted(ids, queries, "left") for ids in (one, other)
    ]
    place = int(np.flatnonzero(times[0] != times[1])[0])
    return (
        f"query {queries[place]} has {times[0][place]} values of {metric} from the one model and "
        f"{times[1][place]} from the other; score both on the same queries"
    )


def _check(values: QueryValues, samples: int, confidence: float) -> None:
    if samples < 1:
        raise MetricError(f"{samples} resamples were asked for; at least 1 is needed, 1000 are usual")
    if not 0 < confidence < 1:
        raise MetricError(f"the confidence is {confidence}; it lies between 0 and 1, 0.95 is usual")
    strange = np.flatnonzero(~np.isfinite(values.values))
    if len(strange):
        place = strange[0]
        raise MetricError(
            f"{values.metric} of query {values.query_ids[place]} is {values.values[place]}; leave the query out"
        )
    if values.weights is not None and (
        len(values.weights) != len(values) or not (np.isfinite(values.weights) & (values.weights > 0)).all()
    ):
        raise MetricError(f"{values.metric} needs a weight above 0 for each of its {len(values)} values")


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """What is drawn, queries or groups of them: ``codes`` (N,) is its number, below ``n``, of each value."""

    codes: Ids
    n: int

    @classmethod
    def of(cls, query_ids: Ids, metric: str, groups: QueryGroups | None = None) -> Units:
        """The distinct queries, or their groups; MetricError where they are fewer than two."""
        drawn = query_ids if groups is None else groups.of(query_ids)
        distinct, codes = np.unique(drawn, return_inverse=True)
        if len(distinct) < 2:
            raise MetricError(
                f"{metric} was taken over 1 {'query' if groups is None else 'group of queries'}; an interval or a "
                "test needs at least 2"
            )
        return cls(codes.astype(np.int64), len(distinct))

    def sums(self, values: Floats) -> Floats:
        """(n,) the sum of each one's values."""
        return np.asarray(np.bincount(self.codes, values, self.n), dtype=np.float64)


def _ends(
    units: Units, models: list[QueryValues], samples: int, confidence: float, seed: int
) -> tuple[float, float]:
    of = units.n if models[0].statistic is Statistic.MEAN else None
    return percentile_interval(bootstrap(units, models, samples, seed), confidence, of)


def bootstrap(units: Units, models: list[QueryValues], samples: int, seed: int) -> Floats:
    """(samples,) the statistic of one model, or of the first minus the second, on resamples of the queries."""
    rng = np.random.default_rng(seed)
    if models[0].statistic is Statistic.MEAN:
        return _resampled_means(units, models, samples, rng)
    return _resampled_medians(units, models, samples, rng)


def swaps(units: Units, one: QueryValues, other: QueryValues, samples: int, seed: int) -> Floats:
    """(samples,) the difference when the models' values are swapped within queries chosen by a fair coin."""
    rng = np.random.default_rng([seed, 1])  # apart from the bootstrap's stream
    if one.statistic is Statistic.MEDIAN:
        return _swapped_medians(units, one, other, samples, rng)
    return _swapped_sums(units.sums((one.values - other.values) * shares(one)), samples, rng)


def _swapped_sums(sums: Floats, samples: int, rng: np.random.Generator) -> Floats:
    """(samples,) what the differences (n,) add up to when a fair coin turns each."""
    sums = sums[sums != 0]  # a swap of equal values changes nothing
    if not len(sums):
        return np.zeros(samples)
    return np.concatenate([sums.sum() - 2 * (coins @ sums) for coins in _coins(len(sums), samples, rng)])


def shares(values: QueryValues) -> Floats:
    """(Q,) each value's share of the mean."""
    return np.full(len(values), 1 / len(values)) if values.weights is None else values.weights


def sum_ends(
    parts: Sequence[QueryValues], drawn: Sequence[Drawn], samples: int, confidence: float, seed: int
) -> tuple[float, float]:
    """The ends of the interval of a sum of means; arguments as of :func:`bootstrap_sum`."""
    fewest = min(len(np.unique(of(part.query_ids))) for part, of in zip(parts, drawn, strict=True))
    return percentile_interval(bootstrap_sum(parts, drawn, samples, seed), confidence, fewest)


def bootstrap_sum(parts: Sequence[QueryValues], drawn: Sequence[Drawn], samples: int, seed: int) -> Floats:
    """(samples,) the sum of several means on resamples of all that they were taken over.

    What only some of them were taken over is drawn apart, so that a resample has as much of each as there is.

    Args:
        drawn: of each part, (N,) query ids to a number for what is drawn with each, the same in all parts.
    """
    rows = np.hstack(
        [_rows(units, part.values, part) for units, part in zip(_in_common(parts, drawn), parts, strict=True)]
    )
    rng = np.random.default_rng(seed)
    _, strata = np.unique(rows[:, 1::2] > 0, axis=0, return_inverse=True)
    strata = strata.ravel()
    totals = np.zeros((samples, rows.shape[1]))
    for stratum in range(strata.max() + 1):
        totals += _resampled_totals(rows[strata == stratum], samples, rng)
    return np.asarray((totals[:, 0::2] / totals[:, 1::2]).sum(axis=1), dtype=np.float64)


def _in_common(parts: Sequence[QueryValues], drawn: Sequence[Drawn]) -> list[Units]:
    """What is drawn of each part, numbered over all parts."""
    numbers = [of(part.query_ids) for of, part in zip(drawn, parts, strict=True)]
    distinct, codes = np.unique(np.concatenate(numbers), return_inverse=True)
    ends = np.cumsum([len(part) for part in parts])
    return [Units(at, len(distinct)) for at in np.split(codes.astype(np.int64), ends[:-1])]


def _resampled_means(
    units: Units, models: list[QueryValues], samples: int, rng: np.random.Generator
) -> Floats:
    values = models[0].values if len(models) == 1 else models[0].values - models[1].values
    totals = _resampled_totals(_rows(units, values, models[0]), samples, rng)
    return np.asarray(totals[:, 0] / totals[:, 1], dtype=np.float64)


def _rows(units: Units, values: Floats, weighted: QueryValues) -> Floats:
    """(U, 2) each unit's part of the mean, and its share."""
    share = shares(weighted)
    return np.stack([units.sums(values * share), units.sums(share)], axis=1)


def _resampled_totals(rows: Floats, samples: int, rng: np.random.Generator) -> Floats:
    """(samples, K) the sums of the rows (U, K) of each resample of them."""
    distinct, sizes = _distinct(rows)
    if len(sizes) < len(rows):
        share_of = sizes / len(rows)
        blocks = _blocks(samples, len(sizes))
        return np.concatenate([rng.multinomial(len(rows), share_of, size=size) @ distinct for size in blocks])
    return np.concatenate([_totals(rows, drawn) for drawn in _draws(len(rows), samples, rng)])


def _totals(rows: Floats, drawn: Ids) -> Floats:
    """(B, K) the sums of the rows (U, K) that are drawn (B, U); gathering is faster than products with counts."""
    columns = [np.ascontiguousarray(column) for column in rows.T]
    return np.stack(
        [
            np.full(len(drawn), column.sum())
            if (column == column[0]).all()
            else column.take(drawn).sum(axis=1)
            for column in columns
        ],
        axis=1,
    )


def _resampled_medians(
    units: Units, models: list[QueryValues], samples: int, rng: np.random.Generator
) -> Floats:
    columns = [np.unique(model.values, return_inverse=True) for model in models]
    place_of = np.argsort(units.codes)  # where each query stands once
    blocks = []
    for drawn in _draws(units.n, samples, rng):
        if units.n < len(units.codes):
            times = _counts(drawn, units.n)[:, units.codes]  # (B, N)
            medians = [_medians(levels, _counts(codes, len(levels), times)) for levels, codes in columns]
        else:
            places = place_of[drawn]
            medians = [_medians(levels, _counts(codes[places], len(levels))) for levels, codes in columns]
        blocks.append(medians[0] if len(medians) == 1 else medians[0] - medians[1])
    return np.concatenate(blocks)


def _swapped_medians(
    units: Units, one: QueryValues, other: QueryValues, samples: int, rng: np.random.Generator
) -> Floats:
    levels, codes = np.unique([one.values, other.values], return_inverse=True)
    first, second = codes.reshape(2, -1)
    whole = np.bincount(codes.ravel(), minlength=len(levels))
    blocks = []
    for coins in _coins(units.n, samples, rng):
        counts = _counts(np.where(coins[:, units.codes] > 0, second, first), len(levels))
        blocks.append(_medians(levels, counts) - _medians(levels, whole - counts))
    return np.concatenate(blocks)


def _counts(codes: Ids, distinct: int, times: Ids | None = None) -> Ids:
    """(B, distinct) how often each code is in a row of (B, N), or in a row of (N,) for all, each ``times`` (B, N)."""
    shape = codes.shape if times is None else times.shape
    apart = codes + np.arange(shape[0])[:, None] * distinct
    weights = None if times is None else times.ravel()
    counts = np.bincount(apart.ravel(), weights, shape[0] * distinct)
    return counts.reshape(shape[0], distinct).astype(np.int64, copy=False)


def _medians(levels: Floats, counts: Ids) -> Floats:
    """(B,) the median of the rising values ``levels`` (K,), each taken as often as a row of ``counts`` (B, K) says."""
    upto = np.cumsum(counts, axis=1)
    total = upto[:, -1:]
    lower = (upto > (total - 1) // 2).argmax(axis=1)
    upper = (upto > total // 2).argmax(axis=1)
    return np.asarray((levels[lower] + levels[upper]) / 2, dtype=np.float64)


def _distinct(rows: Floats) -> tuple[Floats, Ids]:
    """The distinct rows and how often each is there, where they are few; else the rows, once each."""
    distinct, sizes = np.unique(rows, axis=0, return_counts=True)
    if len(distinct) * _FEW <= len(rows):
        return distinct, sizes.astype(np.int64)
    return rows, np.ones(len(rows), dtype=np.int64)


def _draws(n: int, samples: int, rng: np.random.Generator) -> Iterator[Ids]:
    """Blocks (B, n) of ``n`` queries drawn with replacement."""
    for rows in _blocks(samples, n):
        yield rng.integers(0, n, (rows, n))


def _coins(n: int, samples: int, rng: np.random.Generator) -> Iterator[NDArray[np.int8]]:
    """Blocks (B, n) of fair coins, 0 or 1."""
    for rows in _blocks(samples, n):
        yield rng.integers(0, 2, (rows, n), dtype=np.int8)


def _blocks(samples: int, width: int) -> Iterator[int]:
    """The rows of each block."""
    block = max(1, _CELLS // width)
    yield from (min(block, samples - start) for start in range(0, samples, block))
