"""How well scores tell matches from the rest: the area under the curve, and its interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mitl.errors import MetricError


@dataclass(frozen=True, slots=True)
class Area:
    """The area under the receiver operating characteristic, and where it lies with a given confidence."""

    value: float
    """Chance that a match scores above a pair that is none, ties counted half."""
    low: float
    high: float
    positives: int
    negatives: int


def area(scores: ArrayLike, truth: ArrayLike, clusters: ArrayLike, confidence: float = 0.95) -> Area:
    """The area over pairs that hang together in clusters, such as the pairs of one image.

    The interval is normal on the scale of log-odds, with the variance between clusters, so that many pairs of few
    queries do not count as many. It is from 0 to 1 where nothing can be said: one cluster, or no error at all.

    Raises:
        MetricError: all are matches or none is.

    Source: DeLong et al., Biometrics 1988; Obuchowski, Biometrics 1997 (clusters).
    """
    from scipy.special import ndtri
    from scipy.stats import rankdata

    score, true = np.asarray(scores, np.float64), np.asarray(truth, np.bool_)
    cluster = np.unique(np.asarray(clusters), return_inverse=True)[1]
    m, n = int(true.sum()), int((~true).sum())
    if not m or not n:
        raise MetricError(f"of {m + n:,} pairs {m:,} are matches; an area under the curve needs both kinds")
    both, positives, negatives = rankdata(score), rankdata(score[true]), rankdata(score[~true])
    below = (both[true] - positives) / n  # of each match: share of the others that score less
    above = 1 - (both[~true] - negatives) / m
    value = float(below.mean())
    k = int(cluster.max()) + 1
    by_match = np.bincount(cluster[true], below - value, k)
    by_other = np.bincount(cluster[~true], above - value, k)
    if k < 2 or not 0 < value < 1:
        return Area(value, 0.0, 1.0, m, n)
    variance = k / (k - 1) * float(((by_match / m + by_other / n) ** 2).sum())
    middle, wide = np.log(value / (1 - value)), float(ndtri((1 + confidence) / 2)) * np.sqrt(variance)
    ends = (middle + sign * wide / (value * (1 - value)) for sign in (-1, 1))
    low, high = (float(1 / (1 + np.exp(-end))) for end in ends)
    return Area(value, low, high, m, n)


def logits(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log-odds of probabilities, bounded where they are 0 or 1."""
    p = np.clip(probability, 1e-6, 1 - 1e-6)
    found: NDArray[np.float64] = np.log(p / (1 - p))
    return found
