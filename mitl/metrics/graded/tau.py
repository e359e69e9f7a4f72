"""Kendall's tau-b of many pairs of rows, short ones at once and long ones in n log n.

Source: Kendall, The treatment of ties in ranking problems, Biometrika 33, 1945: concordant less discordant pairs
over the geometric mean of the pairs that each side tells apart.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mitl.metrics.positives import Ids

Floats = NDArray[np.float64]

_CELLS = 1 << 22
"""Comparisons made in one go: some 50 MB."""
_LONG = 256
"""Items from which on sorting is faster than comparing every two."""


def tau_b_groups(one: Floats, other: Floats, offsets: Ids) -> Floats:
    """(Q,) tau-b of the values from ``offsets[i]`` to ``offsets[i + 1]``; NaN where a side tells no two apart.

    Args:
        one, other: (P,) without NaN.
        offsets: (Q + 1,) rising.
    """
    lengths = np.diff(offsets)
    found = np.full(len(lengths), np.nan)
    for length in np.unique(lengths[lengths > 1]):
        groups = np.flatnonzero(lengths == length)
        places = offsets[groups][:, None] + np.arange(length)  # (B, n)
        found[groups] = tau_b_rows(one[places], other[places])
    return found


def tau_b_rows(one: Floats, other: Floats) -> Floats:
    """(Q,) tau-b of each row of (Q, n) with the other's; NaN where a side tells no two apart."""
    n = one.shape[1]
    if n < 2:
        return np.full(len(one), np.nan)
    if n > _LONG:
        return np.array([_long_tau_b(*rows) for rows in zip(one, other, strict=True)], dtype=np.float64)
    found = np.empty(len(one))
    size = max(1, _CELLS // (n * n))
    for start in range(0, len(one), size):
        part = slice(start, start + size)
        found[part] = _compared_tau_b(one[part], other[part])
    return found


def _compared_tau_b(one: Floats, other: Floats) -> Floats:
    left, right = np.triu_indices(one.shape[1], 1)
    signs = [np.sign(values[:, left] - values[:, right]).astype(np.int8) for values in (one, other)]
    agreed = (signs[0] * signs[1]).sum(axis=1, dtype=np.int64)
    told_apart = [np.count_nonzero(sign, axis=1).astype(np.float64) for sign in signs]
    scale = np.sqrt(told_apart[0] * told_apart[1])
    taus = np.full(len(one), np.nan)
    np.divide(agreed, scale, out=taus, where=scale > 0)
    return taus


def _long_tau_b(one: Floats, other: Floats) -> float:
    from scipy.stats import kendalltau

    return float(kendalltau(one, other).statistic)
