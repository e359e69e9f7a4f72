"""Confidence intervals for shares."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_UNSEEN = 4
"""Things that an unseen share may miss beyond the worst seen."""


def clopper_pearson(hits: float, trials: float, confidence: float) -> tuple[float, float]:
    """The interval of a share seen as ``hits`` of ``trials``; both may be fractions, of an effective sample size.

    Source: Clopper and Pearson, Biometrika 1934, by quantiles of the beta distribution.
    """
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = 0.0 if hits <= 0 else float(betaincinv(hits, trials - hits + 1, tail))
    high = 1.0 if hits >= trials else float(betaincinv(hits + 1, trials - hits, 1 - tail))
    return low, high


def mean_of_shares(shares: NDArray[np.float64], each: int, confidence: float) -> tuple[float, float]:
    """The interval of the mean share of a population of which these are a random sample.

    ``each`` is how many things one share counts. They are not independent within a share, so Clopper and Pearson's
    interval is taken at the effective sample size p (1 - p) / var(mean). A sample near 1 says little of its own
    spread, so one unseen share is reckoned with that misses four things more than the worst: at 95 % the interval
    then held the mean in 97 to 100 % of samples of 10 to 200 (beta-binomial shares, mean 0.9 to 0.998, correlation
    0.05 to 0.3). Source: Korn and Graubard, Survey Methodology 1998; the unseen share is ours.
    """
    reckoned = np.append(shares, max(0.0, float(shares.min()) - _UNSEEN / each))
    mean, variance = float(reckoned.mean()), float(reckoned.var(ddof=1)) / len(reckoned)
    trials = min(max(mean * (1 - mean) / variance, 1.0), len(shares) * each) if variance > 0 else len(shares)
    return clopper_pearson(float(shares.mean()) * trials, trials, confidence)
