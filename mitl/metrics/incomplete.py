"""Metrics of models on a pool of which not every pair is judged, from a random sample of its pairs.

Values of each metric, all means over the same queries, those with a released positive:

* naive: what is not judged is no match;
* Horvitz-Thompson: the same, and what the sample shows it to miss, each audited pair standing for 1 / inclusion pairs;
* expected: the metric over labels that are matches by a given chance, each apart from the others;
* prediction-powered: expected, and what the sample shows the chances to miss;
* settled: expected, and of what prediction-powered adds as much as is more than noise.

Both corrections are one step: sum of D_i (y_i - f_i) / pi_i over the sample, D_i the metric's derivative by label i.
They have no bias where the metric is linear in the labels that are not known (P@K, Recall@1), whatever the chances are.
Where it is not (Recall@K, R-Precision, mAP@R), what is left are products of two errors of one query: small where
chances are near, and 0 on average where they are calibrated and labels independent. What is audited is put in as known,
so that with every pair audited all of them are the metric itself.

A sample need not have met the variance that ranked pairs bring which are hardly ever drawn, yet decide a metric. Where
no audited pair is among a model's first K, the sample's own spread says that nothing can change. What the chances of
the pairs there and their inclusion probabilities foresee says how much would, over other samples.

Source: Horvitz and Thompson, JASA 1952; Sarndal, Swensson and Wretman, Model Assisted Survey Sampling, 1992, chapter 6
(the difference estimator); Angelopoulos et al., Prediction-powered inference, Science 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import hypot
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import Floats, places
from mitl.errors import MetricError
from mitl.metrics.expected import DRAWS, Cases, Worlds, depth_needed, expected_values
from mitl.metrics.partial_labels import CorrectedLabels, PartialLabels
from mitl.metrics.positives import Ids, Short
from mitl.metrics.ranks import NOTHING, Rankings
from mitl.metrics.table import Asked, precision_at_k, recall_at_k


@dataclass(frozen=True, slots=True, eq=False)
class Foreseen:
    """Doubtful pairs among a model's first K, each once."""

    rows: Ids
    items: Ids
    effects: Floats
    """(n,) the change of the mean between either label of the pair."""
    spreads: Floats
    """(n,) f (1 - f) (1 / inclusion - 1)."""

    @property
    def variance(self) -> float:
        """Of a correction over samples that hold each pair apart from the others."""
        return float(self.effects**2 @ self.spreads)

    def minus(self, other: Foreseen) -> Foreseen:
        """Of the difference of two models: what a pair changes in both cancels."""
        rows, items = np.concatenate([self.rows, other.rows]), np.concatenate([self.items, other.items])
        effects = np.concatenate([self.effects, -other.effects])
        spreads = np.concatenate([self.spreads, other.spreads])
        order = np.lexsort((items, rows))
        if not len(order):
            return self
        rows, items = rows[order], items[order]
        firsts = np.flatnonzero(np.append(True, (rows[1:] != rows[:-1]) | (items[1:] != items[:-1])))
        return Foreseen(
            rows[firsts], items[firsts], np.add.reduceat(effects[order], firsts), spreads[order][firsts]
        )


def foreseen(rankings: Rankings, labels: PartialLabels, one: Asked) -> Foreseen | None:
    """For Recall@K and P@K, where effects follow from the chances; None for metrics that look to R.

    There every pair of a query has an effect, and so the sample meets it.
    """
    if one.metric.of not in (recall_at_k, precision_at_k):
        return None
    queries = np.arange(len(labels))
    items = np.asarray(rankings.block(rankings.rows_of(labels.query_ids), 0, one.k), np.int64)
    chances, weights = labels.chances_of(queries, items), labels.weights_of(queries, items)
    effects = np.full(items.shape, 1 / one.k)
    if one.metric.of is recall_at_k:
        misses = 1 - chances
        others = [np.delete(misses, place, axis=1).prod(axis=1) for place in range(items.shape[1])]
        effects = np.stack(others, axis=1)
    at = np.nonzero((chances > 0) & (chances < 1) & (items != NOTHING))
    spreads = chances[at] * (1 - chances[at]) * (weights[at] - 1)
    return Foreseen(at[0], items[at], effects[at] / len(labels), spreads)


CONFIDENCE = 0.95
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class AuditSample:
    """Pairs drawn at random from a pool, as one direction sees them, with what people say of them.

    A stratum's pairs are a simple random sample of it without replacement. Pairs of queries that are not scored belong
    to the sample too: they count as ones that change nothing.
    """

    queries: Ids
    items: Ids
    matches: NDArray[np.bool_]
    """(n,) the label, by the rule of the audit."""
    strata: NDArray[np.integer]
    inclusion: Floats
    """(n,) the probability that the sample holds it."""
    known_reading: CorrectedLabels | None = None
    """What the labels are worth; without it, they are taken for the truth."""

    def __post_init__(self) -> None:
        wrong = ~((self.inclusion > 0) & (self.inclusion <= 1))
        if wrong.any():
            raise MetricError(
                f"an audited pair has the inclusion probability {self.inclusion[wrong][0]}; it should be above 0 and "
                "at most 1"
            )

    @classmethod
    def empty(cls) -> AuditSample:
        """Before anything was drawn."""
        nobody = np.empty(0, np.int64)
        return cls(nobody, nobody, np.empty(0, np.bool_), nobody, np.empty(0))

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def reading(self) -> CorrectedLabels:
        """Labels that are right on average."""
        return self.known_reading or CorrectedLabels.of(self.matches, self.matches, None)

    def variance(self, effects: Floats, surprises: Floats) -> float:
        """Of the sum of effects x surprises / inclusion over samples drawn like this one.

        A few pairs that surprise nobody say little of how rare surprises are, so a stratum counts no less than if one
        pair more had been drawn, its label the other than expected and its effect like that of the others.
        """
        total = 0.0
        for stratum in np.unique(self.strata):
            here = self.strata == stratum
            drawn, size = int(here.sum()), round(float((1 / self.inclusion[here]).sum()))
            changes, squares = effects[here] * surprises[here], surprises[here] ** 2
            shown = changes.var(ddof=1) if drawn > 1 else 0.0
            one_more = (effects[here] ** 2).mean() * (squares.sum() + 1) / (drawn + 1)
            total += size * (size - drawn) / drawn * max(shown, one_more)
        return total + self.reading.variance(effects, self.inclusion)


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """One metric of one model, or the difference of two models, by one method; a correction may leave 0 to 1."""

    metric: str
    value: float
    """The mean over the queries."""
    expected: float
    """Without the correction."""
    std_error: float
    """Over samples of pairs; the queries are taken as they are."""
    effects: Floats
    """(n,) what the label of each audited pair changes in the mean."""
    foreseen: Foreseen | None = None
    left: float = 0.0
    """What the correction may leave of the chances' errors, since it takes one step along a metric that is bent."""
    is_census: bool = False
    """Whether every pair of the pool was audited."""

    @property
    def ends(self) -> tuple[float, float]:
        """Low and high of the normal interval, with what may be left as one error more."""
        half = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * hypot(self.std_error, self.left)
        return self.value - half, self.value + half

    @property
    def sign(self) -> int:
        """1 or -1 where the interval leaves out 0, else 0; so too where no audited pair met what could change it.

        A census leaves nothing that could.
        """
        low, high = self.ends
        unmet = low == high and not self.is_census
        return 0 if unmet or (low <= _ROUNDING and high >= -_ROUNDING) else int(np.sign(self.value))

    def holds(self, value: float) -> bool:
        """Whether the interval does, up to rounding."""
        low, high = self.ends
        return low - _ROUNDING <= value <= high + _ROUNDING


@dataclass(frozen=True, slots=True, eq=False)
class Corrected:
    """Labels as a method takes them, the audited ones known, with what the audit found otherwise."""

    worlds: Worlds
    audit: AuditSample
    surprises: Floats
    """(n,) y - f, y right on average."""
    shares: Floats
    """(n,) what each changes in the sum: (y - f) / inclusion, less what the label that is put in as known changes."""

    @classmethod
    def of(cls, labels: PartialLabels, audit: AuditSample, draws: int, seed: int) -> Corrected:
        """From the labels as they are without the audit."""
        rows = places(labels.query_ids, audit.queries)
        listed = labels.find(np.maximum(rows, 0), audit.items)
        chances = np.full(len(audit), labels.remainder)
        chances[listed >= 0] = labels.chances[listed[listed >= 0]]
        chances = np.where(rows >= 0, chances, audit.matches)  # what is not scored surprises nobody
        audited = labels.known(audit.queries, audit.items, audit.matches)
        surprises = np.where(rows >= 0, audit.reading.values - chances, 0.0)
        shares = surprises / audit.inclusion - (audit.matches - chances)
        return cls(Worlds.draw(audited, draws, seed), audit, surprises, shares)

    def estimates(self, rankings: Rankings, asked: Sequence[Asked], short: Short) -> tuple[Estimate, ...]:
        """One for each metric, with an interval."""
        labels = self.worlds.labels
        base = expected_values(rankings, self.worlds, asked, Cases.plain(len(labels)), short=short).mean(0)
        effects = self._effects(rankings, asked, short)  # (n, M)
        estimates = []
        for place, request in enumerate(asked):
            step, ahead = float(effects[:, place] @ self.shares), foreseen(rankings, labels, request)
            estimate = self.estimate(
                request.name, (base[place], base[place] + step), effects[:, place], ahead
            )
            estimates.append(estimate if ahead is not None else replace(estimate, left=abs(step)))
        return tuple(estimates)

    def estimate(
        self, metric: str, values: tuple[float, float], effects: Floats, ahead: Foreseen | None
    ) -> Estimate:
        """Expected and corrected, with the larger of the standard errors that the sample shows and that is foreseen."""
        own = np.ascontiguousarray(effects)
        variance = self.audit.variance(own, self.surprises)
        variance = max(variance, 0.0 if ahead is None else ahead.variance)
        every = bool(len(self.audit) and (self.audit.inclusion == 1).all())
        return Estimate(
            metric, float(values[1]), float(values[0]), float(variance**0.5), own, ahead, is_census=every
        )

    def _effects(self, rankings: Rankings, asked: Sequence[Asked], short: Short) -> Floats:
        """(n, M) the change of the mean between either label of each audited pair, all else as drawn."""
        labels = self.worlds.labels
        effects = np.zeros((len(self.audit), len(asked)))
        rows = places(labels.query_ids, self.audit.queries)
        wanted = np.flatnonzero((rows >= 0) & ((self.audit.inclusion < 1) | (self.shares != 0)))
        if len(wanted):
            rows = rows[wanted]
            items = self.audit.items[wanted]
            both = np.repeat([0, 1], len(wanted))
            cases = Cases(np.tile(rows, 2), np.tile(items, 2), both)
            without, with_ = np.split(expected_values(rankings, self.worlds, asked, cases, short=short), 2)
            effects[wanted] = (with_ - without) / len(labels)
        return effects


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """All that is known of one direction's labels; any number of models are compared on it."""

    naive: Worlds
    classical: Corrected
    powered: Corrected

    @classmethod
    def of(
        cls,
        released: PartialLabels,
        audit: AuditSample,
        *,
        chances: PartialLabels | None = None,
        draws: int = DRAWS,
        seed: int = 0,
    ) -> Evidence:
        """From what the release says, the chances of the same and other pairs (its own by default), and the audit.

        Raises:
            MetricError: no query has a released positive, or an audited pair is there twice.
        """
        if not len(released) or not released.positives.all():
            raise MetricError(
                "fair estimates are taken over queries with a released positive; leave others out"
            )
        naive = released.as_released()
        return cls(
            Worlds.draw(naive, 1, seed),
            Corrected.of(naive, audit, 1, seed),
            Corrected.of(released if chances is None else chances, audit, draws, seed),
        )

    def depth(self, asked: Sequence[Asked]) -> int:
        """How deep rankings must be."""
        return depth_needed([self.naive, self.classical.worlds, self.powered.worlds], asked)

    def fair(self, rankings: Rankings, asked: Sequence[Asked], *, short: Short = "raise") -> Fair:
        """One model's metrics by all three methods.

        Raises:
            MetricError: a metric has no fair estimate, or a ranking is missing or ends too early.
        """
        cases = Cases.plain(len(self.naive.labels))
        naive = expected_values(rankings, self.naive, asked, cases, short=short).mean(0)
        return Fair(
            tuple(naive.tolist()),
            self.classical.estimates(rankings, asked, short),
            self.powered.estimates(rankings, asked, short),
        )

    def difference(self, one: Estimate, other: Estimate) -> Estimate:
        """One model's prediction-powered estimate minus another's, on the same audited pairs."""
        ahead = None
        if one.foreseen is not None and other.foreseen is not None:
            ahead = one.foreseen.minus(other.foreseen)
        values = one.expected - other.expected, one.value - other.value
        return self.powered.estimate(one.metric, values, one.effects - other.effects, ahead)

    def settled(self, models: Sequence[Fair]) -> tuple[tuple[float, ...], ...]:
        """(models, metrics) the values to rank models by: expected, and what to believe of the correction."""
        columns = []
        for row in zip(*(model.powered for model in models), strict=True):
            errors = np.array([[self.difference(one, other).std_error for other in row] for one in row])
            variances = np.array([estimate.std_error**2 for estimate in row])
            corrections = np.array([estimate.value - estimate.expected for estimate in row])
            covariance = (variances[:, None] + variances - errors**2) / 2
            columns.append(
                np.array([estimate.expected for estimate in row]) + shrunken(corrections, covariance)
            )
        return tuple(tuple(values) for values in np.transpose(columns).tolist())


@dataclass(frozen=True, slots=True, eq=False)
class Fair:
    """One model's metrics, in the order asked for."""

    naive: tuple[float, ...]
    classical: tuple[Estimate, ...]
    powered: tuple[Estimate, ...]


def shrunken(corrections: Floats, covariance: Floats) -> Floats:
    """(n,) what to believe of n models' corrections, whose noise has this (n, n) covariance.

    A correction is what the expected value truly misses, and noise. What is missed lies around the models' mean with
    one variance t, so that deviations from the mean, turned until their noises are uncorrelated, keep t / (v + t) of
    themselves, v the variance of each one's noise; t is where their squares over v + t sum to n - 1, or 0 where they
    never do. The mean, which orders nothing, keeps max(0, 1 - its variance / its square).

    Deviations are shrunk rather than values, since noise that models share cancels in them; to 0, so towards expected,
    which orders models better than naive, and in all but the largest samples better than the whole correction. Where
    expected stays wrong, v falls with a growing sample and t does not, so that the order becomes the corrected one.

    Source: Fay and Herriot, JASA 1979, for t; Efron and Morris, JASA 1973, for shrinking towards the mean.
    """
    from scipy.linalg import helmert
    from scipy.optimize import brentq

    mean, noise = corrections.mean(), max(covariance.mean(), 0.0)
    level = mean * max(0.0, 1 - noise / mean**2) if mean else 0.0
    if len(corrections) == 1:
        return np.full(1, level)
    contrasts = helmert(len(corrections))
    variances, axes = np.linalg.eigh(contrasts @ covariance @ contrasts.T)
    variances = np.maximum(variances, _ROUNDING**2)
    turned = axes.T @ contrasts
    components = turned @ corrections
    most = 2 * float((components**2).mean())

    def beyond(spread: float) -> float:
        return float((components**2 / (variances + spread)).sum() - len(components))

    spread = brentq(beyond, 0.0, most, xtol=most * 1e-9) if beyond(0.0) > 0 else 0.0
    return np.asarray(level + (components * spread / (variances + spread)) @ turned)


def hole_shares(
    rankings: Rankings, labels: PartialLabels, ks: Sequence[int]
) -> tuple[float, tuple[float, ...]]:
    """The shares of ranked pairs that nobody judged: of the first R of each query, and of its first K for each K.

    R counts the released positives. A place beyond a ranking's end is left out.
    """
    rows = rankings.rows_of(labels.query_ids)
    depth = min(max([int(labels.positives.max(initial=1)), *ks]), labels.gallery)
    shares = [
        _holes(np.asarray(rankings.block(rows[part], 0, depth), np.int64), labels, part, ks)
        for part in np.array_split(np.arange(len(labels)), -(-len(labels) * depth // (1 << 22)))
    ]
    r, *at = np.concatenate(shares).mean(0).tolist()
    return r, tuple(at)


def _holes(items: Ids, labels: PartialLabels, rows: Ids, ks: Sequence[int]) -> Floats:
    """(n, 1 + K) of these queries."""
    listed = labels.find(rows, items)
    judged = (listed >= 0) & labels.judged[listed] if len(labels.items) else np.zeros(items.shape, np.bool_)
    ranked = items != NOTHING
    ranks = np.arange(items.shape[1])
    limits = [labels.positives[rows, None], *(np.full((len(rows), 1), k) for k in ks)]
    return np.stack(
        [
            (ranked & ~judged & (ranks < limit)).sum(1) / np.maximum((ranked & (ranks < limit)).sum(1), 1)
            for limit in limits
        ],
        axis=1,
    )
