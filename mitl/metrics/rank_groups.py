"""How far an audit orders models: groups that it does not tell apart, and the sample that would.

Two models are apart where the interval of their difference leaves out 0. Each two models of different groups are apart;
within a group at least the neighbours are tied, and a rank between them would be a claim that the audit does not make.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from mitl.metrics.incomplete import CONFIDENCE
from mitl.metrics.partial_labels import Floats

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
