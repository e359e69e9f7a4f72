"""How far stated probabilities can be trusted: reliability curve, expected calibration error, Brier score, log-loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mitl.errors import MetricError

Floats = NDArray[np.float64]

_LEAST = 1e-12
"""Least probability that the log-loss takes for what did happen, so that no single case decides it."""


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Stated probabilities against what was true."""

    n: int
    error: float
    """Expected calibration error: mean of |stated - observed| over the bins, weighted by their cases."""
    brier: float
    """Mean squared distance of probability and truth."""
    log_loss: float
    """Mean -log of the probability of what was true, in nats."""
    stated: Floats
    """(bins,) mean probability in each bin that is not empty."""
    observed: Floats
    """(bins,) share that was true."""
    cases: NDArray[np.int64]
    """(bins,) how many."""


def calibration(probability: ArrayLike, truth: ArrayLike, bins: int = 10) -> Calibration:
    """The reliability of probabilities over bins of equal width from 0 to 1.

    Raises:
        MetricError: there are no cases, the two differ in length, or a probability is outside 0 to 1.
    """
    p = np.asarray(probability, dtype=np.float64)
    true = np.asarray(truth, dtype=bool)
    if not len(p) or p.shape != true.shape:
        raise MetricError(f"{len(p)} probabilities and {len(true)} truths cannot be compared")
    if not (p.min() >= 0 and p.max() <= 1):
        raise MetricError("a probability lies outside 0 to 1")
    place = np.minimum((p * bins).astype(np.int64), bins - 1)
    cases = np.bincount(place, minlength=bins)
    full = cases > 0
    stated = np.bincount(place, weights=p, minlength=bins)[full] / cases[full]
    observed = np.bincount(place, weights=true, minlength=bins)[full] / cases[full]
    return Calibration(
        n=len(p),
        error=float((cases[full] * np.abs(stated - observed)).sum() / len(p)),
        brier=float(np.mean((p - true) ** 2)),
        log_loss=float(-np.log(np.where(true, p, 1 - p).clip(min=_LEAST)).mean()),
        stated=stated,
        observed=observed,
        cases=cases[full],
    )
