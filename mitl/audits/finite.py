"""How many marked pairs a finite population holds at most, told from simple random samples of its strata.

Every function works on arrays whose last axis is the strata: (H,) for one audit, (B, H) for a batch of them. Two
methods bound the sum over strata:

* ``exact``: the hypergeometric bound of each stratum at a share of the risk, added up.
* ``betting``: one bet on all strata together. Forecasters with beta-binomial priors bet against every possible
  number D of marked pairs; E(D) is the bettor's money if D is wrong: by what factor the forecasts of the answers were
  likelier than under D. At the true numbers the product over strata exceeds 1 / risk with a probability of at most
  risk, at whatever moment one looks, so that the true sum is no larger than the largest one whose product does not
  (Ville's inequality). In each stratum only a share of the money is staked, `dealt` by the design: a bettor who stakes
  all loses a nat or two even to the true number, and one stratum's loss would widen all others' bounds.

``design`` takes the one whose bound is lower if the answers come as they were expected, which is known before the first
of them. That is mostly ``exact`` where a single stratum matters, and ``betting`` where several do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mitl.core.arrays import Floats
from mitl.errors import AuditError

Method = Literal["design", "betting", "exact"]
METHODS: tuple[Method, ...] = ("design", "betting", "exact")

_SHAPE = 2.0
"""First parameter of the forecaster's beta prior: the larger, the more surely the expected share is bet on."""
_VAGUE, _VAGUE_WEIGHT = (0.5, 4.5), 0.2
"""Prior of a second forecaster who was not told what to expect, and how much of the bet is left to that one."""
_LEAST_EXPECTED, _MOST_EXPECTED = 1e-7, 0.5
_STIRLING = 50.0
"""From here on three terms of Stirling's series give log Γ to the last digit."""
_ROUNDS = ((16, 15), (12, 20), (8, 33))
"""Prices tried in each round, between neighbours of the best one before, and halvings in the search for numbers."""
_CHEAPEST, _DEAREST = -25.0, 12.0
"""Log μ between which the price of evidence is sought; outside them the bound is only wider."""
_ROUNDING = 1e-6


def total_upper(
    size: ArrayLike,
    sampled: ArrayLike,
    marked: ArrayLike,
    expected: ArrayLike,
    risk: float,
    method: Method,
    *,
    planned: ArrayLike | None = None,
) -> Floats:
    """(...,) the most marked pairs that all strata together may hold; too low with a probability of at most ``risk``.

    Args:
        size: (..., H) pairs in each stratum.
        sampled: (..., H) how many of them were drawn without replacement; where none was, all may be marked.
        marked: (..., H) how many of these are marked.
        expected: (H,) or (..., H) share of marked pairs that was guessed before the draw, 0 to 1; a bad guess makes the
            bound wider and no less true.
        planned: (..., H) how many are drawn in the end, where this is one of several looks by ``betting``.

    Raises:
        AuditError: the method is unknown.
    """
    if method == "exact":
        return exact_upper(size, sampled, marked, expected, risk)
    if method == "betting":
        return betting_upper(size, sampled, marked, expected, risk, planned)
    if method != "design":
        raise AuditError(f"no method called {method!r} bounds an audit; known: {', '.join(METHODS)}")
    size, sampled, marked, expected = _together(size, sampled, marked, expected)
    rows = [values.reshape(-1, size.shape[-1]) for values in (size, sampled, marked, expected)]
    exact = _exact_is_lower(rows[0], rows[1], rows[3], risk)
    bound = np.empty(len(exact))
    for upper, chosen in ((exact_upper, exact), (betting_upper, ~exact)):
        N, n, c, e = (values[chosen] for values in rows)
        bound[chosen] = upper(N, n, c, e, risk)
    return bound.reshape(size.shape[:-1])


def _exact_is_lower(size: Floats, sampled: Floats, expected: Floats, risk: float) -> NDArray[np.bool_]:
    """(B,) whether ``exact`` bounds lower than ``betting`` if the answers come as expected."""
    rows, which = np.unique(np.concatenate([size, sampled, expected], axis=-1), axis=0, return_inverse=True)
    size, sampled, expected = np.split(rows, 3, axis=-1)
    marked = np.round(sampled * expected)
    lower = exact_upper(size, sampled, marked, expected, risk) <= betting_upper(
        size, sampled, marked, expected, risk
    )
    return np.asarray(lower[which.reshape(-1)])


def hypergeometric_upper(size: ArrayLike, sampled: ArrayLike, marked: ArrayLike, risk: ArrayLike) -> Floats:
    """The largest number D of marked pairs for which P(at most so many marked in the sample | D) > risk.

    With a risk of 0 it is what the sample cannot exclude: all pairs but those seen unmarked.
    Source: Clopper and Pearson's bound for samples of a finite population, Buonaccorsi, The American Statistician 1987.
    """
    from scipy.stats import hypergeom

    given = np.stack(_together(size, sampled, marked, risk), axis=-1)
    distinct, which = np.unique(given.reshape(-1, 4), axis=0, return_inverse=True)  # counts of audits repeat
    N, n, c, least = distinct.T
    low, high = c.copy(), N - n + c
    while (low < high).any():
        middle = np.ceil((low + high) / 2)
        likely = hypergeom.cdf(c, N, middle, n) > least
        low, high = np.where(likely, middle, low), np.where(likely, high, np.maximum(middle - 1, low))
    return np.asarray(low[which.reshape(given.shape[:-1])])


def dealt(size: ArrayLike, sampled: ArrayLike, expected: ArrayLike) -> Floats:
    """(..., H) shares of the risk for ``exact``, summing to 1: by how much each stratum's bound falls with more of it.

    They look at the design and at how many pairs were drawn, never at an answer. A stratum that was seen whole, or not
    at all, needs none.
    """
    size, sampled, expected = _together(size, sampled, expected)
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


@dataclass(frozen=True, slots=True, eq=False)
class Bets:
    """E-values of the strata, (..., H) each: what was seen, the forecaster's part, and the share of money at stake."""

    size: Floats
    sampled: Floats
    marked: Floats
    forecast: Floats
    """Log chance that the forecaster gave the answers as they came, over all orders of the stratum's pairs."""
    stake: Floats

    @classmethod
    def of(
        cls,
        size: ArrayLike,
        sampled: ArrayLike,
        marked: ArrayLike,
        expected: ArrayLike,
        planned: ArrayLike | None = None,
    ) -> Bets:
        """The bets on these samples; see `total_upper`.

        Between looks stakes stay those of the planned sample: money moved to a stratum after its bets were won would
        make the product more than a bettor's money, and Ville's inequality silent.

        Source: prior-posterior ratio of Waudby-Smith and Ramdas, Confidence sequences for sampling without
        replacement, NeurIPS 2020, with beta-binomial priors, under which the draws are Pólya's urn.
        """
        from scipy.special import betaln

        size, sampled, marked, expected = _together(size, sampled, marked, expected)
        share, unmarked = np.clip(expected, _LEAST_EXPECTED, _MOST_EXPECTED), sampled - marked
        a, b = np.full(share.shape, _SHAPE), _SHAPE * (1 - share) / share
        vague = betaln(_VAGUE[0] + marked, _VAGUE[1] + unmarked) - betaln(*_VAGUE)
        urn = np.logaddexp(
            np.log(1 - _VAGUE_WEIGHT) + betaln(a + marked, b + unmarked) - betaln(a, b),
            np.log(_VAGUE_WEIGHT) + vague,
        )
        # A stratum that will be seen whole is bet on until then.
        seen = sampled if planned is None else np.minimum(np.asarray(planned, np.float64), size - 1)
        stake = dealt(size, seen, expected)
        return cls(size, sampled, marked, urn + _log_falling(size, sampled), stake)

    @property
    def most(self) -> Floats:
        """As many marked pairs as the sample leaves possible."""
        return self.size - self.sampled + self.marked

    def log_e(self, total: Floats) -> Floats:
        """Log of the e-value against ``total`` marked pairs, which lies between ``marked`` and `most`.

        It is convex there: the part that depends on ``total`` is a sum of -log(total - i) and
        -log(size - total - j), i below the marked and j below the unmarked pairs seen; the constant of the money
        kept back leaves it so.
        """
        with np.errstate(divide="ignore"):
            return np.asarray(np.logaddexp(np.log1p(-self.stake), np.log(self.stake) + self._whole(total)))

    def slope(self, total: Floats) -> Floats:
        """By how much `log_e` rises with one more marked pair."""
        from scipy.special import digamma, expit

        unmarked, rest = self.sampled - self.marked, self.size - total
        whole = (
            digamma(rest + 1)
            - digamma(np.maximum(rest - unmarked, 0.0) + 1)
            - digamma(total + 1)
            + digamma(np.maximum(total - self.marked, 0.0) + 1)
        )
        with np.errstate(divide="ignore"):
            odds = np.log(self.stake) - np.log1p(-self.stake)
        return np.asarray(whole * expit(odds + self._whole(total)))

    def _whole(self, total: Floats) -> Floats:
        unmarked = self.sampled - self.marked
        return self.forecast - _log_falling(total, self.marked) - _log_falling(self.size - total, unmarked)


def betting_upper(
    size: ArrayLike,
    sampled: ArrayLike,
    marked: ArrayLike,
    expected: ArrayLike,
    risk: float,
    planned: ArrayLike | None = None,
) -> Floats:
    """(...,) the largest sum of numbers whose e-values multiply to at most 1 / risk, or a little more than that.

    One price of evidence, 1 / μ pairs for a nat, serves all strata: at a given μ each stratum takes the number at which
    its log E rises with slope μ. Whatever μ is, the sum of these numbers and the price of the evidence left over bounds
    the true maximum from above (weak duality), so that a coarse μ makes the bound wider and never false.
    A number is known to a cell alone; the tangent at its low end lies below log E, which is convex. Where log E falls
    there, as it does below its minimum, the evidence at the low end would be more than at the number.
    """
    size, sampled, marked, expected = (
        values[..., None, :] for values in _together(size, sampled, marked, expected)
    )
    planned = None if planned is None else np.asarray(planned, np.float64)[..., None, :]
    bets = Bets.of(size, sampled, marked, expected, planned)
    best = bets.most.sum(axis=-1)[..., 0]
    low, width = np.full(best.shape, _CHEAPEST), _DEAREST - _CHEAPEST
    for tried, halvings in _ROUNDS:
        step = width / tried
        prices = low[..., None] + step * np.arange(tried + 1)  # log μ
        slope = np.exp(prices)
        numbers, short = _at_slope(bets, slope[..., None], halvings)  # (..., P, H)
        evidence = bets.log_e(numbers) + np.minimum(bets.slope(numbers), 0) * short
        left = -np.log(risk) - evidence.sum(axis=-1)
        bounds = (numbers + short).sum(axis=-1) + left / slope
        best = np.minimum(best, bounds.min(axis=-1))
        low, width = low + step * (bounds.argmin(axis=-1) - 1), 2 * step
    return np.asarray(np.maximum(np.floor(best + _ROUNDING), bets.marked.sum(axis=-1)[..., 0]))


def _at_slope(bets: Bets, slope: Floats, halvings: int) -> tuple[Floats, Floats]:
    """Numbers just below those at which log E rises with this slope, and by how much at most they stand below."""
    low, high, _ = np.broadcast_arrays(bets.marked, bets.most, slope)
    for _ in range(halvings):
        middle = (low + high) / 2
        flat = bets.slope(middle) <= slope
        low, high = np.where(flat, middle, low), np.where(flat, high, middle)
    return low, np.asarray(high - low)


def _together(*values: ArrayLike) -> tuple[Floats, ...]:
    return tuple(np.broadcast_arrays(*(np.asarray(value, np.float64) for value in values)))


def _log_falling(x: Floats, k: Floats) -> Floats:
    """log of x (x - 1) ... (x - k + 1), without the loss of digits that two large log Γ would bring."""
    from scipy.special import gammaln

    z, w = np.broadcast_arrays(x + 1, x - k + 1)
    far = np.maximum(w, _STIRLING)  # only looked at where w is that large
    step = np.maximum(z - w, 0.0)
    falling = (far - 0.5) * np.log1p(step / far) + step * np.log(far + step) - step
    falling = np.asarray(falling + (_tail(far + step) - _tail(far)))
    near = w < _STIRLING
    falling[near] = gammaln(z[near]) - gammaln(np.maximum(w[near], 1.0))
    return falling


def _tail(z: Floats) -> Floats:
    inverse = 1 / z
    square = inverse * inverse  # a power costs more than all else here
    return np.asarray(inverse * (1 / 12 - square * (1 / 360 - square / 1260)))
