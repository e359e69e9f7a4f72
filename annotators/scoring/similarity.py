"""Similarities of encoded items that come out the same in every block size.

Products are summed in float64 and rounded once to float32, so that the different summation orders of a matrix
product on blocks of different shapes (relative error about 1e-15) do not reach the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def inner_products(queries: NDArray[Any], gallery: NDArray[Any]) -> NDArray[np.float32]:
    """(Q, G) inner products of the rows of (Q, D) and (G, D)."""
    exact: NDArray[np.float64] = queries.astype(np.float64) @ gallery.astype(np.float64).T
    return exact.astype(np.float32)


def best_inner_products(queries: NDArray[Any], gallery: NDArray[Any]) -> NDArray[np.float32]:
    """(Q, G) the greatest of the K x K inner products between the vectors of (Q, K, D) and (G, K, D).

    Source: Song and Soleymani, PVSE, CVPR 2019, section 3.2.
    """
    best: NDArray[np.float32] | None = None
    for i in range(queries.shape[1]):
        for j in range(gallery.shape[1]):
            block = inner_products(queries[:, i], gallery[:, j])
            best = block if best is None else np.maximum(best, block)
    assert best is not None, "no vectors per item"
    return best


def unit_rows(vectors: NDArray[Any]) -> NDArray[np.float32]:
    """Vectors (..., D) divided by their length; a zero vector stays zero."""
    exact = vectors.astype(np.float64)
    length = np.linalg.norm(exact, axis=-1, keepdims=True)
    unit: NDArray[np.float64] = exact / np.where(length > 0, length, 1.0)
    return unit.astype(np.float32)
