"""The canonical similarity of two vectors, the same bits on every machine, and how near a fast one is."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_CHUNK_BYTES = 1 << 19
"""Products of one chunk in float64: they fit a core's cache (measured best of 2^17 to 2^21)."""
_UNIT = 2.0**-24
"""Unit roundoff of float32."""


def canonical_similarities(
    queries: NDArray[np.float32],
    items: NDArray[np.float32],
    query_rows: NDArray[np.int64],
    item_rows: NDArray[np.int64],
) -> NDArray[np.float32]:
    """The best inner product between the vectors of each (query row, item row), (n,) float32.

    ``queries`` and ``items`` are (Q, K, D) and (G, L, D); each product of two float32 is exact in float64,
    the sum over D runs in the fixed order of ``_fixed_sum``, the largest of the K x L is rounded once to
    float32.
    """
    width = queries.shape[2]
    step = max(1, _CHUNK_BYTES // (8 * width))
    out = np.empty(len(query_rows), np.float32)
    wide = queries.astype(np.float64)
    for start in range(0, len(query_rows), step):
        part = slice(start, start + step)
        rows, right = query_rows[part], items[item_rows[part]]
        best = np.full(len(rows), -np.inf)
        for k in range(queries.shape[1]):
            for m in range(items.shape[1]):
                terms = wide[rows, k]
                terms *= right[:, m]
                np.maximum(best, _fixed_sum(terms), out=best)
        # + 0.0 turns -0.0 into 0.0, so that equal similarities have equal bytes.
        out[part] = best.astype(np.float32) + np.float32(0)
    return out


def _fixed_sum(terms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Row sums of (n, D): the second half is added to the first until one column is left; spoils terms.

    The order is ours and not that of a BLAS or of a numpy version. Of an odd width the middle column waits.
    """
    while (width := terms.shape[1]) > 1:
        half = (width + 1) // 2
        if width % 2:
            terms[:, : half - 1] += terms[:, half:]
            terms = terms[:, :half]
        else:
            terms = terms[:, :half] + terms[:, half:]
    return terms[:, 0]


def largest_lengths(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """An upper bound of the Euclidean length of the longest vector of each item, (N,), for (N, K, D).

    NaN or infinite where a vector is not finite or its squared length leaves float32.
    """
    width = vectors.shape[2]
    with np.errstate(over="ignore"):
        squares = np.einsum("nkd,nkd->nk", vectors, vectors)
    lengths = np.sqrt(squares.max(axis=1).astype(np.float64))
    # Squares below 2^-126 may have been lost: at most sqrt(D) 2^-63 of the length.
    return np.asarray(lengths * (1 + 2 * _gamma(width)) + math.sqrt(width) * 2.0**-62)


def error_bounds(
    query_lengths: NDArray[np.float64], item_length: float, width: int, input_error: float
) -> NDArray[np.float64]:
    """How far a fast product may be from the canonical similarity, for each query, (Q,) float64.

    With u = 2^-24, whatever the order of summation: gamma_(D+2) |q| |x| for the float32 accumulation, where
    gamma_n = n u / (1 - n u); what rounding the inputs costs; u |q| |x| for the rounding of the canonical
    value, 2^-40 |q| |x| for its float64 sum (a tree of depth log2 D: far less); and what underflow may lose.
    Source: the standard bound of inner products (Higham, Accuracy and Stability of Numerical Algorithms,
    3.1).
    """
    products = query_lengths * item_length
    relative = _gamma(width) * (1 + input_error) + input_error + _UNIT + 2.0**-40
    underflow = 2.0**-124 * (width + math.sqrt(width) * (query_lengths + item_length))
    return np.asarray(relative * products + underflow)


def _gamma(width: int) -> float:
    n = (width + 2) * _UNIT
    return n / (1 - n)
