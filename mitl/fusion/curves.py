"""How well scores tell matches from the rest: the area under the curve, its interval, and what it can save people."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mitl.errors import MetricError

POSITIVE_SHARE = 0.45
"""Matches among proposed pairs, for which savings are told where no other share is known."""


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


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What a release may lose and may get wrong by leaving pairs to a machine."""

    lost: float
    """Share of the matches that the machine may refuse, 0 to 1."""
    wrong: float
    """Share of the released matches that may be none."""


TOLERANCES = (Tolerance(0.01, 0.01), Tolerance(0.05, 0.01), Tolerance(0.10, 0.05))


def still_asked(auc: float, tolerance: Tolerance, positive_share: float = POSITIVE_SHARE) -> float:
    """The share of pairs that people must judge where a score of this area judges the others, at the best thresholds.

    Scores are taken for normal with equal variances, 1: of the others around 0, of matches around d, and
    auc = Phi(d / sqrt 2). The machine refuses below the quantile ``lost`` of matches; it accepts above the threshold
    at which the accepted others are the share ``wrong`` of all that is released. What an audit costs comes on top.

    Raises:
        MetricError: ``auc`` is not between 0.5 and 1.
    """
    from scipy.special import ndtr, ndtri

    if not 0.5 <= auc <= 1:
        raise MetricError(f"an area of {auc:.3f} is none of a score that says anything; 0.5 to 1 is right")
    if auc == 1:
        return 0.0
    p, d = positive_share, float(np.sqrt(2) * ndtri(auc))
    refused_below = d + float(ndtri(tolerance.lost))
    accepted = tolerance.wrong / (1 - tolerance.wrong) * p * (1 - tolerance.lost) / (1 - p)
    if accepted >= 1:
        return 0.0
    accepted_above = -float(ndtri(accepted))
    if accepted_above <= refused_below:
        return 0.0
    by_machine = (1 - p) * (ndtr(refused_below) + accepted) + p * (tolerance.lost + ndtr(d - accepted_above))
    return float(max(0.0, 1 - by_machine))


def logits(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log-odds of probabilities, bounded where they are 0 or 1."""
    p = np.clip(probability, 1e-6, 1 - 1e-6)
    found: NDArray[np.float64] = np.log(p / (1 - p))
    return found
