"""How far stated probabilities can be trusted: reliability curve, expected calibration error, Brier score, log-loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mitl.core.arrays import Floats, Ints
from mitl.errors import MetricError
from mitl.judgements.answer_table import UNKNOWN, AnswerTable

_BINS = 10
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
    cases: Ints
    """(bins,) how many."""

    @property
    def bins(self) -> list[tuple[float, float, int]]:
        """``stated``, ``observed`` and ``cases`` of each bin."""
        return list(zip(self.stated.tolist(), self.observed.tolist(), self.cases.tolist(), strict=True))


def calibration(probability: ArrayLike, truth: ArrayLike) -> Calibration:
    """The reliability of probabilities over ten bins of equal width from 0 to 1.

    Raises:
        MetricError: there are no cases, the two differ in length, or a probability is outside 0 to 1.
    """
    p = np.asarray(probability, dtype=np.float64)
    true = np.asarray(truth, dtype=bool)
    if not len(p) or p.shape != true.shape:
        raise MetricError(f"{len(p)} probabilities and {len(true)} truths cannot be compared")
    if not (p.min() >= 0 and p.max() <= 1):
        raise MetricError("a probability lies outside 0 to 1")
    place = np.minimum((p * _BINS).astype(np.int64), _BINS - 1)
    cases = np.bincount(place, minlength=_BINS)
    full = cases > 0
    stated = np.bincount(place, weights=p, minlength=_BINS)[full] / cases[full]
    observed = np.bincount(place, weights=true, minlength=_BINS)[full] / cases[full]
    return Calibration(
        n=len(p),
        error=float((cases[full] * np.abs(stated - observed)).sum() / len(p)),
        brier=float(np.mean((p - true) ** 2)),
        log_loss=float(-np.log(np.where(true, p, 1 - p).clip(min=_LEAST)).mean()),
        stated=stated,
        observed=observed,
        cases=cases[full],
    )


Fit = Callable[[AnswerTable], NDArray[np.floating]]
"""(items,) probability that an item is positive, from a table."""


def cross_fit(table: AnswerTable, fit: Fit, *, folds: int = 5) -> tuple[Ints, Floats]:
    """The known items, and the probability that each is positive from a fit that took it for unknown.

    Controls are not drawn from the pairs that are asked (half of them match), so a model that learned how rare
    matches are is a little too doubtful of the positive ones: read the result as a bound.

    Returns:
        (known,) items, ascending, and (known,) probabilities.

    Raises:
        MetricError: fewer items are known than there are folds.
    """
    items = np.flatnonzero(table.known != UNKNOWN)
    if folds < 2 or len(items) < folds:
        raise MetricError(
            f"{len(items)} known items cannot be dealt to {folds} folds; two or more folds are right"
        )
    fold = np.empty(len(items), dtype=np.int64)
    fold[np.random.default_rng(0).permutation(len(items))] = np.arange(len(items)) % folds
    probability = np.empty(len(items))
    for held_out in range(folds):
        hidden = items[fold == held_out]
        known = table.known.copy()
        known[hidden] = UNKNOWN
        probability[fold == held_out] = fit(table.with_known(known))[hidden]
    return items, probability
