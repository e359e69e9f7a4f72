"""Logistic regression with a ridge, for models of a few features; scikit-learn's has one penalty for all weights."""

from __future__ import annotations

import numpy as np

from mitl.core.arrays import Floats

_STEPS, _STILL = 30, 1e-7
"""Of Newton's method: at most so many, and done when one is as short."""


def expit(odds: Floats) -> Floats:
    """The probability of each log-odds, never quite 0 or 1."""
    return np.asarray(1 / (1 + np.exp(-np.clip(odds, -35, 35))))


def logistic(features: Floats, labels: Floats, weights: Floats, offset: Floats, ridge: Floats) -> Floats:
    """(F,) the weights of features that make labels likeliest, by Newton's method.

    Args:
        features: (n, F)
        labels: (n,) from 0 to 1.
        weights: (n,) observations that each stands for.
        offset: (n,) log-odds that are added as they are.
        ridge: (F,) penalty of half the square of each weight.
    """

    def loss(found: Floats) -> float:
        odds = offset + features @ found
        return float(weights @ (np.logaddexp(0, odds) - labels * odds) + ridge @ found**2 / 2)

    found = np.zeros(features.shape[1])
    for _ in range(_STEPS):
        chances = expit(offset + features @ found)
        slope = features.T @ (weights * (labels - chances)) - ridge * found
        bend = (features * (weights * chances * (1 - chances))[:, None]).T @ features + np.diag(ridge + 1e-9)
        step = np.linalg.solve(bend, slope)
        if np.abs(step).max() < _STILL:
            return found + step
        # A whole step from far away may lead farther away.
        before = loss(found) * (1 + 1e-12)
        while np.abs(step).max() > _STILL and loss(found + step) > before:
            step /= 2
        found += step
    return found
