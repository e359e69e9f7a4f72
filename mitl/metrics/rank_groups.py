"""How likely pairs are matches by where models rank them, and how far an audit orders the models.

What the judged pairs tell of a pair: how much each model's ranks are worth, and which queries and items match more than
their ranks foretell. What the audit tells: how much chances differ where nobody looked, where people refused, and where
the release holds the pair. Which pairs are judged follows from the proposers' ranks, which are among the features, so
that their labels may teach. All models get the same chances.

The order: groups that an audit does not tell apart, the sample that would, and where it is drawn.

Two models are apart where the interval of their difference leaves out 0. Each two models of different groups are apart;
within a group at least the neighbours are tied, and a rank between them would be a claim that the audit does not make.

What the label of each pair changes in the difference of models says where an audit tells them apart for the least
money. A stratum's share of a sample is best in proportion to its pairs times the standard deviation of what each adds
(Neyman, JRSS 1934). What a pair with the chance f of a match adds to the difference of two models has the variance
f (1 - f) d², with d the difference of what its label changes in either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import Flags, Floats, places
from mitl.core.statistics import expit, logistic
from mitl.metrics.expected import Cases, Worlds, expected_values
from mitl.metrics.incomplete import CONFIDENCE, AuditSample
from mitl.metrics.partial_labels import PartialLabels
from mitl.metrics.positives import Ids
from mitl.metrics.ranks import NOTHING, Rankings
from mitl.metrics.table import Asked

DEPTH = 64
"""Places of a ranking that are read, and of the fused one that are listed."""
_DAMPING = 60
"""Source: Cormack, Clarke and Büttcher, Reciprocal Rank Fusion, SIGIR 2009."""
_OPEN, _REFUSED, _HELD = range(3)
_PRIOR_ODDS = np.array([0.0, np.log(0.1 / 0.98), np.log(0.9 / 0.02)])
"""What an answer adds to a match's log-odds before the audit is heard, by what was said: one in ten noes on a match,
one in fifty yeses on another pair."""
_RIDGE, _EFFECT = 1.0, 1.0
"""Penalty of a squared weight of a standardised feature, and of the log-odds that a query or an item adds; in the unit
of one pair's log-likelihood."""
_SHIFT, _SLOPE = 0.5, 5.0
"""The same of what the audit adds to log-odds, and to their slope."""
_PRIOR = 2.0
"""Pairs of the mean share that the remainder is taken to hold beside its audited ones."""


def with_rank_chances(
    judged: PartialLabels, rankings: Sequence[Rankings], audit: AuditSample
) -> PartialLabels:
    """The judged pairs, and those that the models together rank first, each with its chance.

    A ridge regression of what was said of judged and audited pairs on the models' log-ranks, their mean, its square and
    the best two; again with what queries and items have beyond that, a pair's own label left out; then, for each thing
    that can have been said of a pair, a shift and a slope of the log-odds by its audited pairs, each weighted by
    1 / inclusion. What is not listed has the share of matches among the audited ones there.

    Args:
        judged: the judged pairs alone, as the release has them.
    """
    listed = _listed(judged, rankings)
    said = np.where(listed.judged, np.where(listed.chances > 0, _HELD, _REFUSED), _OPEN)
    rows = places(judged.query_ids, audit.queries)
    scored = np.flatnonzero(rows >= 0)
    at = listed.find(rows[scored], audit.items[scored])
    drawn, at = scored[at >= 0], at[at >= 0]
    beyond = np.setdiff1d(scored, drawn)
    matches = audit.matches.astype(np.float64)

    labels, taught = listed.chances.copy(), listed.judged.copy()
    new = ~listed.judged[at]
    labels[at[new]], taught[at[new]] = matches[drawn[new]], True
    odds = _odds(listed, _rank_features(listed, rankings), labels, taught) + _PRIOR_ODDS[said]
    for verdict in (_OPEN, _REFUSED, _HELD):
        here, members = drawn[said[at] == verdict], np.flatnonzero(said == verdict)
        if len(here):
            weights, log_odds = 1 / audit.inclusion[here], odds[at[said[at] == verdict]]
            line = np.stack([np.ones(len(log_odds)), log_odds], axis=1)
            fit = logistic(
                line, matches[here], weights / weights.mean(), log_odds, np.array([_SHIFT, _SLOPE])
            )
            odds[members] += fit[0] + fit[1] * odds[members]
    return _weighted(
        replace(listed, chances=audit.reading.unread(expit(odds), said == _HELD)),
        said,
        (at, drawn, beyond),
        audit,
    )


def _odds(labels: PartialLabels, features: Floats, said: Floats, taught: Flags) -> Floats:
    """(P,) log-odds that a pair is called a match, by its features and by the other pairs of its query and its item."""
    first = expit(_fitted(features, said, taught))
    surprises = np.where(taught, said - first, 0.0)
    spreads = np.where(taught, first * (1 - first), 0.0)
    more = []
    for side in (labels.rows, np.unique(labels.items, return_inverse=True)[1]):
        above, below = (np.bincount(side, weights)[side] - weights for weights in (surprises, spreads))
        more.append(above / (below + _EFFECT))
    return _fitted(np.concatenate([features, _standardised(np.stack(more, axis=1))], axis=1), said, taught)


def _fitted(features: Floats, said: Floats, taught: Flags) -> Floats:
    some, ridge = features[taught], np.append(0.0, np.full(features.shape[1] - 1, _RIDGE))
    return np.asarray(features @ logistic(some, said[taught], np.ones(len(some)), np.zeros(len(some)), ridge))


def _listed(judged: PartialLabels, rankings: Sequence[Rankings]) -> PartialLabels:
    queries, items = fused_pairs(rankings, judged.query_ids, DEPTH)
    new = judged.find(places(judged.query_ids, queries), items) < 0
    return judged.listing(queries[new], items[new], np.zeros(int(new.sum())), judged=False)


def fused_pairs(rankings: Sequence[Rankings], query_ids: Ids, depth: int) -> tuple[Ids, Ids]:
    """(P,) query ids and items of the ``depth`` pairs of each query that reciprocal rank fusion places first.

    They are in order of query, then item.
    """
    parts = []
    for ranking in rankings:
        items = np.asarray(ranking.block(ranking.rows_of(query_ids), 0, depth), np.int64)
        rows, at = np.nonzero(items != NOTHING)
        parts.append((rows, items[rows, at], 1 / (_DAMPING + 1 + at)))
    rows, items, gains = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.lexsort((items, rows))
    rows, items, gains = rows[order], items[order], gains[order]
    firsts = np.flatnonzero(np.append(True, (rows[1:] != rows[:-1]) | (items[1:] != items[:-1])))
    rows, items, fused = rows[firsts], items[firsts], np.add.reduceat(gains, firsts)
    order = np.lexsort((items, -fused, rows))
    starts = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
    place = np.empty(len(rows), np.int64)
    place[order] = np.arange(len(rows)) - np.repeat(starts, np.diff(np.append(starts, len(rows))))
    kept = place < depth
    return query_ids[rows[kept]], items[kept]


def _rank_features(labels: PartialLabels, rankings: Sequence[Rankings]) -> Floats:
    """(P, F) of the listed pairs: 1, and standardised what the models' ranks say; one behind all where unread."""
    logs = np.full((len(labels.items), len(rankings)), np.log(DEPTH + 1.0))
    for column, ranking in enumerate(rankings):
        items: Ids = np.asarray(ranking.block(ranking.rows_of(labels.query_ids), 0, DEPTH), np.int64)
        at = labels.find(np.arange(len(labels)), items)
        rows, ranks = np.nonzero((at >= 0) & (items != NOTHING))
        logs[at[rows, ranks], column] = np.log(ranks + 1.0)
    mean, ordered = logs.mean(axis=1), np.sort(logs, axis=1)
    several = np.concatenate([logs, ordered[:, :2], np.stack([mean, mean**2], axis=1)], axis=1)
    return np.concatenate([np.ones((len(several), 1)), _standardised(several)], axis=1)


def _weighted(
    labels: PartialLabels, said: NDArray[np.integer], pair_places: tuple[Ids, Ids, Ids], audit: AuditSample
) -> PartialLabels:
    """With the remainder's chance, and the mean of 1 / inclusion over pairs that were said the same of.

    From the audited ones, each standing for so many; where there are none, it is the largest of all.

    Args:
        pair_places: (n,) places of audited pairs in the labels, and in the audit; (m,) places of the other scored ones.
    """
    at, drawn, beyond = pair_places
    weights = 1 / audit.inclusion
    of = np.concatenate([said[at], np.full(len(beyond), _HELD + 1)])
    pair_weights = weights[np.concatenate([drawn, beyond])]
    total, squares = np.bincount(of, pair_weights, _HELD + 2), np.bincount(of, pair_weights**2, _HELD + 2)
    most = np.full(len(total), weights.max(initial=1.0))
    means = np.divide(squares, total, out=most, where=total > 0)
    open_ = np.append(drawn[said[at] == _OPEN], beyond)
    mean = float(np.average(audit.matches[open_], weights=weights[open_])) if len(open_) else 0.0
    prior = _PRIOR * (float(weights[beyond].mean()) if len(beyond) else 1.0)
    rate = (weights[beyond] @ audit.matches[beyond] + prior * mean) / (weights[beyond].sum() + prior)
    return replace(
        labels, weights=means[said], remainder=float(rate), remainder_weight=float(means[_HELD + 1])
    )


def _standardised(values: Floats) -> Floats:
    spread = values.std(axis=0)
    return np.asarray((values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


_POWER = 0.8


def rank_groups(values: Floats, signs: NDArray[np.int64]) -> list[list[int]]:
    """Places of n models, in the smallest groups such that all of a group are apart from all of the next ones.

    Args:
        values: (n,) that order the models of a group.
        signs: (n, n) 1 where the model of the row is apart and ahead, -1 where it is apart and behind, else 0.
    """
    order = np.lexsort((-values, -signs.sum(axis=1)))
    ahead = signs[np.ix_(order, order)] == 1
    cuts = [place for place in range(1, len(order)) if ahead[:place, place:].all()]
    return [group.tolist() for group in np.split(order, cuts)]


def wanted_pairs(audited: int, std_error: float, difference: float, pool: float) -> int | None:
    """Audited pairs whose interval leaves out 0 in four of five audits, if two models differ by so much.

    The standard error falls with the square root of the sample. None where it would be more than the pool, or where
    there is no error, so that no audited pair changes the difference.
    """
    if not std_error or not difference:
        return None
    pairs = audited * ((_quantile() + NormalDist().inv_cdf(_POWER)) * std_error / difference) ** 2
    return None if pairs > pool else _two_digits(pairs)


def more_pairs(audited: int, std_error: float, difference: float, pool: float) -> int | None:
    """Those beside the ones of an audit that does not tell two models apart; None as above.

    The difference counts as no more than this audit's interval leaves open.
    """
    most = min(abs(difference), _quantile() * std_error)
    pairs = wanted_pairs(audited, std_error, most, pool)
    return None if pairs is None else _two_digits(pairs - audited)


def _quantile() -> float:
    return NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


def _two_digits(pairs: float) -> int:
    """Rounded up."""
    unit = 10.0 ** max(np.floor(np.log10(max(pairs, 1.0))) - 1, 0.0)
    return int(np.ceil(pairs / unit) * unit)


_DRAWS = 8
_DOUBT = 0.002
"""The least f (1 - f) that is reckoned with, since chances err."""


@dataclass(frozen=True, slots=True, eq=False)
class Influence:
    """Of one direction's listed pairs, before an audit."""

    labels: PartialLabels
    """With the chances that the models' ranks and what was judged give."""
    expected: Floats
    """(M,) each model's metric under these."""
    effects: Floats
    """(M, P) what each pair's label changes in each model's metric."""

    @property
    def doubt(self) -> Floats:
        """(P,) f (1 - f)."""
        return np.maximum(self.labels.chances * (1 - self.labels.chances), _DOUBT)

    @property
    def spread(self) -> Floats:
        """(P,) the variance that each pair's label brings into a difference, on average over pairs of models."""
        return np.asarray(2 * self.effects.var(axis=0, ddof=1) * self.doubt)


def bands(weights: Floats, number: int) -> Ids:
    """(P,) a band for each pair, the heaviest first, so that each band weighs about the same."""
    order = np.argsort(-weights, kind="stable")
    before = np.cumsum(weights[order]) - weights[order]
    band_of = np.empty(len(weights), np.int64)
    band_of[order] = np.minimum(before / weights.sum() * number, number - 1).astype(np.int64)
    return band_of


def influence(judged: PartialLabels, rankings: Sequence[Rankings], asked: Asked, seed: int = 0) -> Influence:
    """Of the judged pairs and those that the models together rank first; a ranking that ends early misses the rest.

    Args:
        judged: the judged pairs alone.
        rankings: of two models or more.
    """
    labels = with_rank_chances(judged, rankings, AuditSample.empty())
    worlds, pairs = Worlds.draw(labels, _DRAWS, seed), len(labels.items)
    both = Cases(np.tile(labels.rows, 2), np.tile(labels.items, 2), np.repeat([0, 1], pairs))
    expected, effects = [], []
    for ranking in rankings:
        plain = Cases.plain(len(labels))
        expected.append(float(expected_values(ranking, worlds, [asked], plain, short="zero").mean()))
        without, with_ = np.split(expected_values(ranking, worlds, [asked], both, short="zero")[:, 0], 2)
        effects.append((with_ - without) / len(labels))
    return Influence(labels, np.array(expected), np.array(effects))
