"""How workers err, and what their answers prove in spite of it.

A match is a pair that more than half of the workers who pass the controls would accept; θ is that share. Of missing
matches b is the mean of 1 - θ, the rate of false noes; of wrong positives a is the mean of θ, the rate of false yeses.
Neither passes one half, by the definition of a match. The share is over the workers as they took part, each weighted
with the pages that the deal gave to them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mitl.core.arrays import Floats

WORST = 0.5
"""The highest rate that the definition of a match leaves."""
FEWEST = 20
"""Answers from which a rate is told; fewer are not worth the wide bound that they give."""
_CONFIRMING_SLOPE = 1.25
_GUESS = (0.5, 4.5)
"""Beta prior of a rate that is looked at again and again: one in ten, very vague."""
_HALVINGS = 50


@dataclass(frozen=True, slots=True, eq=False)
class Errors:
    """First answers of one group, (...,) each, and how many of them err; no answers where the group is too small."""

    errors: ArrayLike
    answers: ArrayLike
    drawn: float = np.inf
    """Pairs of the whole sample that may belong to the group, whatever is answered."""

    def is_read(self, risk: float, *, anytime: bool = False) -> bool:
        """Whether the rate is worth its risk: some numbers of errors would leave less than `WORST`.

        It hangs on how many were drawn alone, so it is decided before any answer.
        """
        return bool(np.isinf(self.drawn)) or float(Errors(0, self.drawn).upper(risk, anytime=anytime)) < WORST

    def upper(self, risk: float, *, anytime: bool = False) -> Floats:
        """(...,) the highest rate, at most one half, that these leave possible.

        Args:
            risk: of being too low.
            anytime: whether it shall hold at every number of answers at once, in the order in which they were drawn.
        """
        bound = anytime_upper if anytime else binomial_upper
        return np.minimum(bound(self.errors, self.answers, risk), WORST)


def binomial_upper(hits: ArrayLike, trials: ArrayLike, risk: float) -> Floats:
    """Clopper and Pearson's upper bound of a chance; 1 without trials."""
    from scipy.special import betaincinv

    hits, trials = np.asarray(hits, np.float64), np.asarray(trials, np.float64)
    inner = hits < trials
    bound = betaincinv(hits + 1, np.where(inner, trials - hits, 1.0), 1 - risk)
    return np.where(inner, bound, 1.0)


def anytime_upper(hits: ArrayLike, trials: ArrayLike, risk: float) -> Floats:
    """An upper bound of a chance that holds at all numbers of trials at once.

    Source: as `mitl.audits.finite.Bets`, for draws with replacement: the chance is below every value against which a
    beta-binomial forecaster has won the factor 1 / risk.
    """
    from scipy.special import betaln, xlog1py, xlogy

    hits, trials = np.asarray(hits, np.float64), np.asarray(trials, np.float64)
    a, b = _GUESS
    misses = trials - hits
    forecast = betaln(a + hits, b + misses) - betaln(a, b)
    low, high = np.where(trials > 0, hits / np.maximum(trials, 1), 0.0), np.ones(trials.shape)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        kept = forecast - xlogy(hits, middle) - xlog1py(misses, -middle) <= -np.log(risk)
        low, high = np.where(kept, middle, low), np.where(kept, high, middle)
    return np.asarray(high)


def confirmed_at_least(false_no: ArrayLike) -> Floats:
    """(2, ...) least mean chances that missing matches are confirmed, by a majority and by all of three workers.

    By a majority: a first yes, and one more of two further workers. For one pair that is g(θ) = θ (1 - (1 - θ)²), which
    is not convex; 1 - 1.25 (1 - θ) touches it at θ = 1/2, meets it at θ = 1 and is never above it, so that its mean
    bounds theirs whatever the mix of θ is. By all: θ³, which is convex, so that the cube of the mean θ bounds its mean.
    """
    rate = np.minimum(np.asarray(false_no, np.float64), WORST)
    return np.stack([1 - _CONFIRMING_SLOPE * rate, (1 - rate) ** 3])


def refused_at_least(false_yes: ArrayLike) -> Floats:
    """(2, ...) least mean chances that wrong positives are refused, by a majority and by all of three workers.

    A majority accepts one with the chance 3θ² - 2θ³, which is convex and at most θ for θ up to 1/2; all refuse it with
    the chance (1 - θ)³, which is convex.
    """
    rate = np.minimum(np.asarray(false_yes, np.float64), WORST)
    return np.stack([1 - rate, (1 - rate) ** 3])


def among_all(filtered: ArrayLike) -> Floats:
    """Highest mean rate b of false noes on matches whose rate is ``filtered`` where one of two others accepts them.

    The first answers that tell the rate are read only where at least one of two further workers says yes, which leaves
    out most wrong positives: those say no too, and rightly. With v = 1 - θ at most 1/2 the rate read is E v(1 - v²) /
    E (1 - v²), so that E v is at most that, plus (1/2 - it) E v², and E v² is at most half of E v. What is not a match
    in the group only raises the rate.
    """
    rate = np.minimum(np.asarray(filtered, np.float64), WORST)
    return np.asarray(rate / (0.75 + rate / 2))


def overturned_share(false_no: float) -> float:
    """Of missing matches that two of three workers accept, the share whose first answer is a no, at one common θ."""
    return false_no / (1 + 2 * false_no)
