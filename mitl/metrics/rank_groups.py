"""How far an audit orders models: groups that it does not tell apart, the sample that would, and where it is drawn.

Two models are apart where the interval of their difference leaves out 0. Each two models of different groups are apart;
within a group at least the neighbours are tied, and a rank between them would be a claim that the audit does not make.

What the label of each pair changes in the difference of models says where an audit tells them apart for the least
money. A stratum's share of a sample is best in proportion to its pairs times the standard deviation of what each adds
(Neyman, JRSS 1934). What a pair with the chance f of a match adds to the difference of two models has the variance
f (1 - f) d², with d the difference of what its label changes in either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import Floats
from mitl.metrics.expected import Cases, Worlds, expected_values
from mitl.metrics.incomplete import CONFIDENCE, AuditSample
from mitl.metrics.partial_labels import PartialLabels
from mitl.metrics.positives import Ids
from mitl.metrics.rank_chances import with_rank_chances
from mitl.metrics.ranks import Rankings
from mitl.metrics.table import Asked

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
    wanted = audited * ((_quantile() + NormalDist().inv_cdf(_POWER)) * std_error / difference) ** 2
    return None if wanted > pool else _two_digits(wanted)


def more_pairs(audited: int, std_error: float, difference: float, pool: float) -> int | None:
    """Those beside the ones of an audit that does not tell two models apart; None as above.

    The difference counts as no more than this audit's interval leaves open.
    """
    most = min(abs(difference), _quantile() * std_error)
    wanted = wanted_pairs(audited, std_error, most, pool)
    return None if wanted is None else _two_digits(wanted - audited)


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
    found = np.empty(len(weights), np.int64)
    found[order] = np.minimum(before / weights.sum() * number, number - 1).astype(np.int64)
    return found


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
