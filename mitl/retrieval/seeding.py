"""First floors: similarities that at least k items reach, from the best of disjoint chunks of a tile."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.retrieval.bounds import Doubles
from mitl.retrieval.products import Operand, Product, Side, tile_errors
from mitl.retrieval.vectors import Floats

_SEEDS = 2048
"""Items from which a first floor is estimated."""


def seeds(product: Product, tile: Any, left: Operand, right: Operand, k: int, side: Side) -> Doubles | None:
    """For each row (or column) of a tile a number that the canonical similarities of at least k of its items reach.

    From the k-th best of the best of 4 k disjoint chunks; None where there are fewer than 2 k items.
    """
    seen, whole = slice(0, max(_SEEDS, 4 * k)), slice(None)
    one, other, part = (left, right, (whole, seen)) if side == "left" else (right, left, (seen, whole))
    kth = product.kth(tile, left, right, part[0], part[1], k, side)
    if kth is None:
        return None
    errors = tile_errors(product, one, other, seen)
    lowest = np.asarray(kth, np.float64)
    lowest = lowest - errors - product.rounding * np.abs(lowest)
    return one.by_item(lowest)


def near_kth(
    product: Product,
    tile: Any,
    left: Operand,
    right: Operand,
    rows: slice,
    columns: slice,
    k: int,
    side: Side,
) -> Floats | None:
    """``Product.kth`` of the near similarities."""
    near = product.near(tile, left, right, rows, columns)
    return kth_of_chunks(near if side == "left" else near.T, k)


def kth_of_chunks(cells: NDArray[Any], k: int) -> NDArray[Any] | None:
    """A value that at least k entries of each row reach, (n,); None where a row has fewer than 2 k entries."""
    chunks = min(cells.shape[1], 4 * k)
    if chunks < 2 * k:
        return None
    best = cells[:, :chunks].copy()
    for start in range(chunks, cells.shape[1] - chunks + 1, chunks):
        np.maximum(best, cells[:, start : start + chunks], out=best)
    best.partition(chunks - k, axis=1)
    return np.asarray(best[:, chunks - k])
