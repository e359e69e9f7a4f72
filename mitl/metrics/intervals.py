"""How sure a metric is: bootstrap intervals, and a paired test of two models on the same queries.

The query is the unit: it is drawn with all its values, so that a query that stands in several folds is drawn
with each of them. Weights go with their values, and the shares of a resample are made to add up to 1 again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mitl.errors import MetricError
from mitl.metrics.positives import Ids, QueryValues
from mitl.metrics.resampling import Floats, Units, bootstrap, shares, swaps

_ROUNDING = 1e-12
"""Relative difference up to which two sums over the same numbers count as equal."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A metric with the ends of its percentile bootstrap interval, in the metric's own unit."""

    estimate: float
    low: float
    high: float


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
    values: QueryValues, *, samples: int = 1000, confidence: float = 0.95, seed: int = 0
) -> Interval:
    """The metric and its percentile interval over ``samples`` resamples of the queries.

    Where every query has the same value, the interval is that value.

    Raises:
        MetricError: fewer than two queries, a value that is no number, a weight that is not above 0,
            ``samples`` below 1 or ``confidence`` not between 0 and 1.
    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13.
    """
    _check(values, samples, confidence)
    units = Units.of(values.query_ids, values.metric)
    drawn = bootstrap(units, [values], samples, seed)
    low, high = _ends(drawn, confidence)
    return Interval(values.estimate, low, high)


def paired(
    one: QueryValues, other: QueryValues, *, samples: int = 1000, confidence: float = 0.95, seed: int = 0
) -> PairedTest:
    """``one`` minus ``other``, query by query: a paired bootstrap interval and a randomisation test.

    The test swaps the two models' values of each query, or not, by a fair coin, and counts how often the
    difference is at least as far from 0 as the one seen; the arrangement seen is counted among the samples,
    so that p is never 0. Queries are matched by id, those that stand there several times by occurrence.

    Raises:
        MetricError: the metrics, their statistics, the queries or the weights differ; and as
            :func:`interval`.
    Source: Smucker, Allan and Carterette, A Comparison of Statistical Significance Tests for Information
        Retrieval Evaluation, CIKM 2007; for counting the arrangement seen, Davison and Hinkley, Bootstrap
        Methods and their Application, 1997, chapter 4.
    """
    for values in (one, other):
        _check(values, samples, confidence)
    one, other = _matched(one, other)
    units = Units.of(one.query_ids, one.metric)
    difference = one.estimate - other.estimate
    low, high = _ends(bootstrap(units, [one, other], samples, seed), confidence)
    swapped = swaps(units, one, other, samples, seed)
    near = abs(difference) - _ROUNDING * float(np.abs([one.values, other.values]).max())
    hits = int((np.abs(swapped) >= near).sum())
    return PairedTest(difference, low, high, (1 + hits) / (1 + samples), units.n)


def _ends(drawn: Floats, confidence: float) -> tuple[float, float]:
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return float(low), float(high)


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
    return QueryValues(
        values.metric,
        values.query_ids[order],
        values.values[order],
        values.statistic,
        weights,
        values.left_out,
    )


def _unmatched(one: Ids, other: Ids, metric: str) -> str:
    """Which query is not there as often in both."""
    known = np.union1d(one, other)
    times = [
        np.searchsorted(ids, known, "right") - np.searchsorted(ids, known, "left") for ids in (one, other)
    ]
    place = int(np.flatnonzero(times[0] != times[1])[0])
    return (
        f"query {known[place]} has {times[0][place]} values of {metric} from the one model and "
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
