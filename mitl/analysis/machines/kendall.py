"""Kendall's tau-b of many rows at once, and between the columns of a table.

Source: Kendall, The treatment of ties in ranking problems, Biometrika 33, 1945: concordant less discordant pairs over
the geometric mean of the pairs that each side tells apart.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CELLS = 1 << 24
"""Comparisons made at a time; bounds the memory to some 100 MB."""

Values = NDArray[np.float64]


def tau_b_rows(one: Values, other: Values, compared: NDArray[np.bool_]) -> Values:
    """(Q,) tau-b between two values of each row's items; NaN where one of them tells no two items apart.

    Args:
        one, other: (Q, P) what the items are ordered by.
        compared: (Q, P) which items of a row count.
    """
    found = np.full(len(one), np.nan)
    size = max(1, CELLS // max(1, one.shape[1] ** 2))
    for start in range(0, len(one), size):
        part = slice(start, start + size)
        pairs = compared[part, :, None] & compared[part, None, :]  # (B, P, P)
        signs = [_signs(values[part]) * pairs for values in (one, other)]
        agreed = (signs[0] * signs[1]).sum((1, 2), dtype=np.int64)
        told_apart = [np.abs(sign).sum((1, 2), dtype=np.int64).astype(np.float64) for sign in signs]
        scale = np.sqrt(told_apart[0] * told_apart[1])
        np.divide(agreed, scale, out=found[part], where=scale > 0)
    return found


def tau_b_table(columns: Values) -> Values:
    """(M, M) tau-b between every two of M columns of N values; NaN where undefined.

    Two columns are compared over the rows that both have.

    Args:
        columns: (M, N), NaN where a row lacks a value.
    """
    count = columns.shape[1]
    upper = np.triu_indices(count, 1)
    known = ~np.isnan(columns)
    filled = np.where(known, columns, 0.0)
    both = (known[:, upper[0]] & known[:, upper[1]]).astype(np.float64)  # (M, pairs of rows)
    signs = np.sign(filled[:, upper[0]] - filled[:, upper[1]]) * both
    told_apart = np.abs(signs) @ both.T  # [a, b]: pairs that a tells apart, of those that b knows
    scale = np.sqrt(told_apart * told_apart.T)
    table: Values = np.full((len(columns), len(columns)), np.nan)
    np.divide(signs @ signs.T, scale, out=table, where=scale > 0)
    return table


def _signs(values: Values) -> NDArray[np.int8]:
    found: NDArray[np.int8] = np.sign(values[:, :, None] - values[:, None, :]).astype(np.int8)
    return found
