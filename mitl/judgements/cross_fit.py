"""Predictions for known items by fits that did not know them: how well calibrated a model is, on gold controls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.judgements.answer_table import UNKNOWN, AnswerTable

Floats = NDArray[np.float64]

Fit = Callable[[AnswerTable], NDArray[np.floating]]
"""(items,) probability that an item is positive, from a table."""


def cross_fit(
    table: AnswerTable, fit: Fit, *, folds: int = 5, seed: int = 0
) -> tuple[NDArray[np.int64], Floats]:
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
    fold[np.random.default_rng(seed).permutation(len(items))] = np.arange(len(items)) % folds
    probability = np.empty(len(items))
    for held_out in range(folds):
        hidden = items[fold == held_out]
        known = table.known.copy()
        known[hidden] = UNKNOWN
        probability[fold == held_out] = fit(table.with_known(known))[hidden]
    return items, probability
