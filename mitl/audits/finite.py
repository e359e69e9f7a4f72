"""How many marked pairs a finite population holds at most, told from simple random samples of its strata.

Every function works on arrays whose last axis is the strata: (H,) for one audit, (B, H) for a batch of them. Two
methods bound the sum over strata:

* ``exact``: the hypergeometric bound of each stratum at a share of the risk, added up.
* ``betting``: one bet on all strata together. A bettor with a beta-binomial prior puts stakes on every possible number
  D of marked pairs; log E(D) is by how much the bettor's forecasts beat those that are right if D is. At the true
  numbers the product over strata exceeds 1 / risk with a probability of at most risk, at whatever moment one looks, so
  the true sum is below the largest one whose product does not (Ville's inequality). No risk is dealt to strata.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mitl.errors import AuditError

Floats = NDArray[np.float64]
Method = Literal["betting", "exact"]
METHODS: tuple[Method, ...] = ("betting", "exact")

_SHAPE = 0.5
"""First parameter of the beta prior: how strongly one bets on the expected share; the smaller, the less surely."""
_LEAST_EXPECTED, _MOST_EXPECTED = 1e-7, 0.5
_STIRLING = 50.0
"""From here on three terms of Stirling's series give log Γ to the last digit."""
_HALVINGS = 60
_PRICES = 60


def total_upper(
    size: ArrayLike, sampled: ArrayLike, marked: ArrayLike, expected: ArrayLike, risk: float, method: Method
) -> Floats:
    """(...,) the most marked pairs that all strata together may hold; too low with a probability of at most ``risk``.

    Args:
        size: (..., H) pairs in each stratum.
        sampled: (..., H) how many of them were drawn without replacement; where none was, all may be marked.
        marked: (..., H) how many of these are marked.
        expected: (H,) or (..., H) share of marked pairs that was guessed before the draw, 0 to 1; a bad guess makes the
            bound wider and no less true.

    Raises:
        AuditError: the method is unknown.
    """
    if method == "exact":
        return exact_upper(size, sampled, marked, expected, risk)
    if method == "betting":
        return betting_upper(size, sampled, marked, expected, risk)
    raise AuditError(f"no method called {method!r} bounds an audit; known: {', '.join(METHODS)}")


def hypergeometric_upper(size: ArrayLike, sampled: ArrayLike, marked: ArrayLike, risk: ArrayLike) -> Floats:
    """The largest number D of marked pairs for which P(at most so many marked in the sample | D) > risk.

    With a risk of 0 it is what the sample cannot exclude: all pairs but those seen unmarked.
    Source: Clopper and Pearson's bound for samples of a finite population, Buonaccorsi, The American Statistician 1987.
    """
    from scipy.stats import hypergeom

    size, sampled, marked, risk = np.broadcast_arrays(
        *(np.asarray(value, np.float64) for value in (size, sampled, marked, risk))
    )
    low, high = marked.copy(), size - sampled + marked
    while (low < high).any():
        middle = np.ceil((low + high) / 2)
        likely = hypergeom.cdf(marked, size, middle, sampled) > risk
        low, high = np.where(likely, middle, low), np.where(likely, high, np.maximum(middle - 1, low))
    return np.asarray(low)


def dealt(size: ArrayLike, sampled: ArrayLike, expected: ArrayLike) -> Floats:
    """(..., H) shares of the risk for ``exact``, summing to 1: by how much each stratum's bound falls with more of it.

    They look at the design and at how many pairs were drawn, never at an answer. A stratum that was seen whole, or not
    at all, needs none.
    """
    size, sampled, expected = np.broadcast_arrays(
        *(np.asarray(value, np.float64) for value in (size, sampled, expected))
    )
    n = np.maximum(sampled, 1)
    need = np.where((sampled > 0) & (sampled < size), size * (1 / n + np.sqrt(expected / n) / 2), 0.0)
    total = need.sum(axis=-1, keepdims=True)
    return np.asarray(need / np.where(total > 0, total, 1.0))


def exact_upper(
    size: ArrayLike, sampled: ArrayLike, marked: ArrayLike, expected: ArrayLike, risk: float
) -> Floats:
    """(...,) the sum of hypergeometric bounds at risks dealt by the design."""
    return np.asarray(
        hypergeometric_upper(size, sampled, marked, risk * dealt(size, sampled, expected)).sum(axis=-1)
    )


def log_e(
    total: ArrayLike, size: ArrayLike, sampled: ArrayLike, marked: ArrayLike, expected: ArrayLike
) -> Floats:
    """Log of the e-value against ``total`` marked pairs in a stratum; infinite where the sample excludes them.

    It is convex in ``total`` between ``marked`` and ``size - sampled + marked``, since it is a sum of -log(total - i)
    and -log(size - total - j), i below the marked and j below the unmarked ones seen.
    Source: prior-posterior ratio of Waudby-Smith and Ramdas, Confidence sequences for sampling without replacement,
    NeurIPS 2020, with a beta-binomial prior, under which the draws are Pólya's urn.
    """
    from scipy.special import betaln

    total, size, sampled, marked = (
        np.asarray(value, np.float64) for value in (total, size, sampled, marked)
    )
    a, b = _prior(expected)
    unmarked = sampled - marked
    possible = (total >= marked) & (size - total >= unmarked)
    inside = np.clip(total, marked, size - unmarked)
    urn = betaln(a + marked, b + unmarked) - betaln(a, b)
    likelihood = (
        _log_falling(inside, marked)
        + _log_falling(size - inside, unmarked)
        - _log_falling(size, sampled)
    )
    return np.where(possible, urn - likelihood, np.inf)


def betting_upper(
    size: ArrayLike, sampled: ArrayLike, marked: ArrayLike, expected: ArrayLike, risk: float
) -> Floats:
    """(...,) the largest sum of numbers whose e-values multiply to at most 1 / risk, or a little more than that.

    One price of evidence, 1 / μ pairs for a nat, serves all strata: at a given μ each stratum takes the number at which
    its log E rises with slope μ. Whatever μ is, the sum of these numbers and the price of the evidence left over bounds
    the true maximum from above (weak duality), so that a coarse μ makes the bound wider and never false.
    """
    size, sampled, marked, expected = np.broadcast_arrays(
        *(np.asarray(value, np.float64) for value in (size, sampled, marked, expected))
    )
    budget = -np.log(risk)
    least, most = marked, size - sampled + marked
    best = most.sum(axis=-1)
    rising = _slope(most, size, sampled, marked)
    low = np.full(best.shape, -30.0)  # log μ
    high = np.log(np.maximum(np.max(rising, axis=-1, initial=1e-12), 1e-12)) + 1.0
    for _ in range(_PRICES):
        price = (low + high) / 2
        slope = np.exp(price)[..., None]
        numbers, short = _at_slope(slope, size, sampled, marked, least, most)
        spent = log_e(numbers, size, sampled, marked, expected).sum(axis=-1)
        bound = (numbers + short).sum(axis=-1) + (budget - spent) / slope[..., 0]
        best = np.minimum(best, np.where(np.isfinite(bound), bound, np.inf))
        under = spent <= budget
        low, high = np.where(under, price, low), np.where(under, high, price)
    return np.maximum(np.floor(best + 1e-6), least.sum(axis=-1))


def _prior(expected: ArrayLike) -> tuple[Floats, Floats]:
    """Parameters of the beta prior with this mean."""
    share = np.clip(np.asarray(expected, np.float64), _LEAST_EXPECTED, _MOST_EXPECTED)
    a = np.full(share.shape, _SHAPE)
    return a, np.asarray(a * (1 - share) / share)


def _log_falling(x: Floats, k: Floats) -> Floats:
    """log of x (x - 1) ... (x - k + 1), without the loss of digits that two large log Γ would bring."""
    from scipy.special import gammaln

    z, w = x + 1, x - k + 1
    far = np.maximum(w, _STIRLING)  # only looked at where w is that large
    step = np.maximum(z - w, 0.0)
    series = (far - 0.5) * np.log1p(step / far) + step * np.log(far + step) - step
    series = series + (_tail(far + step) - _tail(far))
    return np.where(w >= _STIRLING, series, gammaln(z) - gammaln(np.maximum(w, 1.0)))


def _tail(z: Floats) -> Floats:
    return np.asarray(1 / (12 * z) - 1 / (360 * z**3) + 1 / (1260 * z**5))


def _slope(total: Floats, size: Floats, sampled: Floats, marked: Floats) -> Floats:
    """By how much log E rises with one more marked pair."""
    from scipy.special import digamma

    unmarked = sampled - marked
    rest = size - total
    return np.asarray(
        digamma(rest + 1)
        - digamma(np.maximum(rest - unmarked, 0.0) + 1)
        - digamma(total + 1)
        + digamma(np.maximum(total - marked, 0.0) + 1)
    )


def _at_slope(
    slope: Floats, size: Floats, sampled: Floats, marked: Floats, least: Floats, most: Floats
) -> tuple[Floats, Floats]:
    """Numbers at which log E rises with this slope, and by how much each may stand short of the exact one."""
    low, high = least.copy(), most.copy()
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        flat = _slope(middle, size, sampled, marked) <= slope
        low, high = np.where(flat, middle, low), np.where(flat, high, middle)
    return low, high - low
