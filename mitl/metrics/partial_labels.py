"""The labels of a pool of which not every pair is judged, and labels that are right on average though workers err.

One rate of false noes b and one of false yeses a stand for all workers and pairs. A pair outside the release is called
a match by a first yes that one of two more confirms, one of the release by two of three. So the chance of being called
one is known for matches (hits) and for others (alarms), and (label - alarms) / (hits - alarms) is right on average.

Source: Rogan and Gladen, American Journal of Epidemiology 1978 (a prevalence from a test that errs); intervals by the
delta method. Both rules: `mitl.audits.evidence`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import Flags, Floats, coded, places
from mitl.errors import MetricError
from mitl.metrics.positives import Ids
from mitl.metrics.ranks import NOTHING

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PartialLabels:
    """What is known of one direction's labels: ``rows[i]`` is a place in ``query_ids``, ``items[i]`` a gallery item.

    Listed pairs are in order of row, then item, each once; what is not listed has the chance ``remainder``.
    """

    query_ids: Ids
    """(Q,) rising."""
    gallery: int
    """Items that each query searches."""
    rows: Ids
    items: Ids
    chances: Floats
    """(P,) that the pair is a match: 0 or 1 where it is judged."""
    judged: Flags
    """(P,)"""
    remainder: float = 0.0
    weights: Floats | None = None
    """(P,) 1 / inclusion, where an audit's sample is drawn from these pairs; 1 where None."""
    remainder_weight: float = 1.0

    def __post_init__(self) -> None:
        wrong = ~((self.chances >= 0) & (self.chances <= 1))
        if wrong.any() or not 0 <= self.remainder <= 1:
            chance = self.chances[wrong][0] if wrong.any() else self.remainder
            raise MetricError(f"the chance of a match is {chance}; it should be from 0 to 1")

    @classmethod
    def of(
        cls,
        query_ids: Ids,
        gallery: int,
        pairs: tuple[Ids, Ids],
        chances: Floats,
        judged: Flags,
        *,
        remainder: float = 0.0,
    ) -> PartialLabels:
        """From pairs (query ids, items) in any order; those of other queries are left out.

        Raises:
            MetricError: a pair is listed twice, or a chance is not from 0 to 1.
        """
        rows = places(query_ids, pairs[0])
        kept = np.flatnonzero(rows >= 0)
        order = kept[np.lexsort((pairs[1][kept], rows[kept]))]
        rows, items = rows[order], np.asarray(pairs[1][order], np.int64)
        twice = np.flatnonzero((rows[1:] == rows[:-1]) & (items[1:] == items[:-1]))
        if len(twice):
            raise MetricError(
                f"the pair of query {query_ids[rows[twice[0]]]} and item {items[twice[0]]} is listed twice"
            )
        chosen = np.asarray(chances[order], np.float64), np.asarray(judged[order], np.bool_)
        return cls(query_ids, gallery, rows, items, *chosen, remainder)

    def __len__(self) -> int:
        return len(self.query_ids)

    @property
    def unlisted(self) -> Counts:
        """(Q,) gallery items that each query has no listed pair with."""
        return np.maximum(self.gallery - np.bincount(self.rows, minlength=len(self)), 0)

    @property
    def positives(self) -> Counts:
        """(Q,) matches among the judged pairs."""
        sure = self.judged & (self.chances >= 1)
        return np.bincount(self.rows[sure], minlength=len(self)).astype(np.int64)

    def find(self, rows: Ids, items: Ids) -> Ids:
        """Where these pairs are listed, of the shape of ``items`` (n, …) with ``rows`` (n,); -1 where they are not."""
        if not len(self.items):
            return np.full(np.shape(items), -1)
        distinct, keys = self._keys
        at = places(distinct, items)
        asked_keys = rows.reshape(-1, *[1] * (np.ndim(items) - 1)) * len(distinct) + at
        return np.where(at >= 0, places(keys, asked_keys), -1)

    @cached_property
    def _keys(self) -> tuple[Ids, Ids]:
        """The distinct items, and a number for each listed pair: they rise."""
        distinct, at = coded(self.items)
        return distinct, self.rows * len(distinct) + at

    def chances_of(self, rows: Ids, items: Ids) -> Floats:
        """(n, …) of these pairs; 0 where a ranking names nothing."""
        return self._of(rows, items, self.chances, self.remainder, nothing=0.0)

    def weights_of(self, rows: Ids, items: Ids) -> Floats:
        """(n, …) 1 / inclusion of these pairs."""
        weights = np.ones(len(self.items)) if self.weights is None else self.weights
        return self._of(rows, items, weights, self.remainder_weight, nothing=1.0)

    def _of(self, rows: Ids, items: Ids, values: Floats, otherwise: float, *, nothing: float) -> Floats:
        looked_up = np.append(values, otherwise)[self.find(rows, items)]  # -1 reads the last
        return np.where(items == NOTHING, nothing, looked_up)

    def as_released(self) -> PartialLabels:
        """The same where all that is not judged is no match."""
        return replace(self, chances=np.where(self.judged, self.chances, 0.0), remainder=0.0)

    def listing(self, queries: Ids, items: Ids, chances: Floats | Flags, *, judged: bool) -> PartialLabels:
        """The same without weights, these further pairs listed too."""
        return PartialLabels.of(
            self.query_ids,
            self.gallery,
            (
                np.concatenate([self.query_ids[self.rows], queries]),
                np.concatenate([self.items, items]),
            ),
            np.concatenate([self.chances, chances]),
            np.concatenate([self.judged, np.full(len(items), judged)]),
            remainder=self.remainder,
        )

    def known(self, queries: Ids, items: Ids, labels: Flags) -> PartialLabels:
        """The same with these pairs' labels known, of those whose query is among these."""
        rows = places(self.query_ids, queries)
        inside = rows >= 0
        rows, items, labels = rows[inside], items[inside], labels[inside]
        listed = self.find(rows, items)
        chances, judged = self.chances.copy(), self.judged.copy()
        old, new = listed >= 0, listed < 0
        chances[listed[old]] = labels[old]
        judged[listed[old]] = True
        known = replace(self, chances=chances, judged=judged)
        updated = known.listing(self.query_ids[rows[new]], items[new], labels[new], judged=True)
        weights = self.weights_of(updated.rows, updated.items)
        return replace(updated, weights=weights, remainder_weight=self.remainder_weight)


FEWEST = 20
"""Released pairs with three answers, two of them yes, from which rates are told."""
_HIGHEST = 0.45
"""Rate that is taken for any above: near one half a label tells nothing, and would stand for any number of matches."""
_ROUNDS, _FLATTEST = 50, 0.1
"""Of putting in what was found of a; and the least slope of a (1 - a)^2, which is flat at one third, that is reckoned
with."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Of single answers, with the variances of these estimates."""

    false_no: float
    false_yes: float
    variance: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def measured(cls, yes: Flags, thrice: Flags, held: Flags) -> Rates | None:
        """From an audit's own answers; None where they are too few to tell.

        Of released pairs that two of three accept, the share s with a lone no tells b = s / (3 - 2 s). Of the other
        pairs, a first yes that nobody confirms tells a (1 - a)^2, less what b leaves of matches; those that are
        confirmed are matches but for what a makes of others.

        Args:
            yes: (3, n) answers that call the pair a match; False also where none was asked for.
            thrice: (n,) pairs that had to get three answers, whatever the first was.
            held: (n,) pairs of the release.
        """
        yeses = yes.sum(axis=0)
        accepted = held & thrice & (yeses >= 2)
        n = int(accepted.sum())
        if n < FEWEST:
            return None
        share = (float((yeses[accepted] == 2).sum()) + 0.5) / (n + 1)
        b = min(share / (3 - 2 * share), _HIGHEST)
        b_variance = share * (1 - share) / n * (3 / (3 - 2 * share) ** 2) ** 2
        called, outside = float((~held & yes[0] & (yeses >= 2)).sum()), float((~held).sum())
        lone = float((~held & yes[0] & (yeses == 1)).sum()) + 0.5
        a, others = 0.0, outside + 1
        for _ in range(_ROUNDS):
            alarms = _outside(a)[2]
            matches = min(max(called - outside * alarms, 0.0) / (_outside(b)[0] - alarms), outside)
            others = outside - matches + 1
            a = min(max(lone - matches * (1 - b) * b**2, 0.5) / (others * (1 - a) ** 2), _HIGHEST)
        slope = max((1 - a) * (1 - 3 * a), _FLATTEST)
        return cls(b, a, (b_variance, lone / (others * slope) ** 2))


@dataclass(frozen=True, slots=True, eq=False)
class CorrectedLabels:
    """Labels (n,) that are right on average, if answers err at the rates."""

    values: Floats
    """Some above 1 or below 0."""
    noise: Floats
    """Their variance given what is true, right on average as well."""
    slopes: Floats
    """(n, 2) their change with the rate of false noes and of false yeses."""
    rates: Rates

    @classmethod
    def of(cls, matches: Flags, held: Flags, rates: Rates | None) -> CorrectedLabels:
        """Of labels by the rule of the audit; as they are without rates."""
        if rates is None:
            rates, held = Rates(0.0, 0.0), np.zeros(len(matches), np.bool_)
        b, a = rates.false_no, rates.false_yes
        hits, by_b = (np.where(held, *pair) for pair in zip(_released(b)[:2], _outside(b)[:2], strict=True))
        alarms, by_a = (np.where(held, *pair) for pair in zip(_released(a)[2:], _outside(a)[2:], strict=True))
        gap = hits - alarms
        values = (matches - alarms) / gap
        of_match, of_other = hits * (1 - hits) / gap**2, alarms * (1 - alarms) / gap**2
        slopes = np.stack([-values / gap * by_b, (values - 1) / gap * by_a], axis=1)
        return cls(values, of_other + (of_match - of_other) * values, slopes, rates)

    def unread(self, chances: Floats, held: Flags) -> Floats:
        """(P,) chances of a match, from chances that the audit would call these pairs one."""
        b, a = self.rates.false_no, self.rates.false_yes
        hits, alarms = (
            np.where(held, _released(b)[0], _outside(b)[0]),
            np.where(held, _released(a)[2], _outside(a)[2]),
        )
        return np.asarray(np.clip((chances - alarms) / (hits - alarms), 0.0, 1.0))

    def variance(self, effects: Floats, inclusion: Floats) -> float:
        """Of sum of effects x values / inclusion by the rates, and by answers as far as the draw does not show them."""
        weighted = effects / inclusion
        by_rates = (weighted @ self.slopes) ** 2 @ np.array(self.rates.variance)
        return float(max(effects * weighted @ self.noise, 0.0) + by_rates)


def _outside(rate: float) -> tuple[float, float, float, float]:
    """Of a first yes and one more: hits and their slope by b, alarms and their slope by a, each at this rate."""
    r = rate
    return (1 - r) * (1 - r**2), -(1 - r**2) - 2 * r * (1 - r), r * (1 - (1 - r) ** 2), 4 * r - 3 * r**2


def _released(rate: float) -> tuple[float, float, float, float]:
    """Of two of three: the same."""
    r = rate
    wrong, slope = 3 * r**2 - 2 * r**3, 6 * r - 6 * r**2
    return 1 - wrong, -slope, wrong, slope
