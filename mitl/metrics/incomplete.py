"""Metrics of models on a pool of which not every pair is judged, from a random sample of its pairs.

Values of each metric, all means over the same queries, those with a released positive:

* naive: what is not judged is no match;
* Horvitz-Thompson: the same, and what the sample shows it to miss, each audited pair standing for 1 / inclusion pairs;
* expected: the metric over labels that are matches by a given chance, each apart from the others;
* prediction-powered: expected, and what the sample shows the chances to miss;
* settled: as far from expected towards prediction-powered as the sample, over all models, tells more than noise.

Both corrections are one step: sum of D_i (y_i - f_i) / pi_i over the sample, D_i the metric's derivative by label i.
They have no bias where the metric is linear in the labels that are not known (P@K, Recall@1), whatever the chances are.
Where it is not (Recall@K, R-Precision, mAP@R), what is left are products of two errors of one query: small where
chances are near, and 0 on average where they are calibrated and labels independent. What is audited is put in as known,
so that with every pair audited all of them are the metric itself.

Source: Horvitz and Thompson, JASA 1952; Sarndal, Swensson and Wretman, Model Assisted Survey Sampling, 1992, chapter 6
(the difference estimator); Angelopoulos et al., Prediction-powered inference, Science 2023; James and Stein, 1961, for
how far to go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from mitl.core.packed import places
from mitl.errors import MetricError
from mitl.metrics.expected import DRAWS, Cases, Worlds, depth_needed, expected_values
from mitl.metrics.foreseen import Foreseen, foreseen
from mitl.metrics.partial_labels import Floats, PartialLabels
from mitl.metrics.positives import Ids, Short
from mitl.metrics.ranks import NOTHING, Rankings
from mitl.metrics.table import Asked

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

    def __post_init__(self) -> None:
        wrong = ~((self.inclusion > 0) & (self.inclusion <= 1))
        if wrong.any():
            raise MetricError(
                f"an audited pair has the inclusion probability {self.inclusion[wrong][0]}; it should be above 0 and "
                "at most 1"
            )

    def __len__(self) -> int:
        return len(self.queries)

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
            own = changes.var(ddof=1) if drawn > 1 else 0.0
            one_more = (effects[here] ** 2).mean() * (squares.sum() + 1) / (drawn + 1)
            total += size * (size - drawn) / drawn * max(own, one_more)
        return total


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

    @property
    def ends(self) -> tuple[float, float]:
        """Low and high of the normal interval."""
        half = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * self.std_error
        return self.value - half, self.value + half

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
    """(n,) y - f."""

    @classmethod
    def of(cls, labels: PartialLabels, audit: AuditSample, draws: int, seed: int) -> Corrected:
        """From the labels as they are without the audit."""
        rows = places(labels.query_ids, audit.queries)
        listed = labels.find(np.maximum(rows, 0), audit.items)
        chances = np.full(len(audit), labels.remainder)
        chances[listed >= 0] = labels.chances[listed[listed >= 0]]
        chances = np.where(rows >= 0, chances, audit.matches)  # what is not scored surprises nobody
        known = labels.known(audit.queries, audit.items, audit.matches)
        return cls(Worlds.draw(known, draws, seed), audit, audit.matches - chances)

    def estimates(self, rankings: Rankings, asked: Sequence[Asked], short: Short) -> tuple[Estimate, ...]:
        """One for each metric, with an interval."""
        labels = self.worlds.labels
        base = expected_values(rankings, self.worlds, asked, Cases.plain(len(labels)), short=short).mean(0)
        effects = self._effects(rankings, asked, short)  # (n, M)
        weights = self.surprises * (1 / self.audit.inclusion - 1)
        return tuple(
            self.estimate(
                one.name,
                (base[place], base[place] + effects[:, place] @ weights),
                effects[:, place],
                foreseen(rankings, labels, one),
            )
            for place, one in enumerate(asked)
        )

    def estimate(
        self, metric: str, values: tuple[float, float], effects: Floats, ahead: Foreseen | None
    ) -> Estimate:
        """Expected and corrected, with the larger of the standard errors that the sample shows and that is foreseen."""
        own = np.ascontiguousarray(effects)
        variance = self.audit.variance(own, self.surprises)
        variance = max(variance, 0.0 if ahead is None else ahead.variance)
        return Estimate(metric, float(values[1]), float(values[0]), float(variance**0.5), own, ahead)

    def _effects(self, rankings: Rankings, asked: Sequence[Asked], short: Short) -> Floats:
        """(n, M) the change of the mean between either label of each audited pair, all else as drawn."""
        labels = self.worlds.labels
        effects = np.zeros((len(self.audit), len(asked)))
        rows = places(labels.query_ids, self.audit.queries)
        wanted = np.flatnonzero((rows >= 0) & (self.audit.inclusion < 1))
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
    def of(cls, labels: PartialLabels, audit: AuditSample, *, draws: int = DRAWS, seed: int = 0) -> Evidence:
        """From the labels without the audit, and the audit.

        Raises:
            MetricError: no query has a released positive, or an audited pair is there twice.
        """
        if not len(labels) or not labels.positives.all():
            raise MetricError(
                "fair estimates are taken over queries with a released positive; leave others out"
            )
        released = labels.as_released()
        return cls(
            Worlds.draw(released, 1, seed),
            Corrected.of(released, audit, 1, seed),
            Corrected.of(labels, audit, draws, seed),
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


@dataclass(frozen=True, slots=True, eq=False)
class Fair:
    """One model's metrics, in the order asked for."""

    naive: tuple[float, ...]
    classical: tuple[Estimate, ...]
    powered: tuple[Estimate, ...]


def settled(models: Sequence[Fair]) -> tuple[tuple[float, ...], ...]:
    """(models, metrics) the values to rank models by: one share of each metric's corrections, the same for all models.

    The share is 1 less the noise in the corrections, their variances over their squares, and at least 0: where the
    sample finds what the chances foretell, its noise does not reorder models; where it finds otherwise, it is heard.
    """
    metrics = range(len(models[0].powered))
    rows = [[model.powered[place] for model in models] for place in metrics]
    shares = []
    for row in rows:
        seen = sum((one.value - one.expected) ** 2 for one in row)
        noise = sum(one.std_error**2 for one in row)
        shares.append(max(0.0, 1 - noise / seen) if seen > 0 else 0.0)
    return tuple(
        tuple(
            share * one.value + (1 - share) * one.expected
            for share, one in zip(shares, model.powered, strict=True)
        )
        for model in models
    )


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
    there = items != NOTHING
    ranks = np.arange(items.shape[1])
    limits = [labels.positives[rows, None], *(np.full((len(rows), 1), k) for k in ks)]
    return np.stack(
        [
            (there & ~judged & (ranks < limit)).sum(1) / np.maximum((there & (ranks < limit)).sum(1), 1)
            for limit in limits
        ],
        axis=1,
    )
