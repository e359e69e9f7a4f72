"""Products whose tiles are float32 in memory, and that of numpy's BLAS."""

from __future__ import annotations

from typing import Any

import numpy as np

from mitl.retrieval.bounds import UNIT, Doubles
from mitl.retrieval.products import MANY_THREADS, Buffers, Operand, Reached, Side, float_reached
from mitl.retrieval.seeding import near_kth
from mitl.retrieval.threads import can_limit_blas
from mitl.retrieval.vectors import Floats, Vectors


class FloatProduct:
    """Tiles (rows, columns) of float32."""

    name = ""
    roundoff = UNIT
    rounding = 0.0
    cell_bytes = 5
    number_bytes = 4
    threads = MANY_THREADS
    tile = (1024, 2048)

    def multiply(self, left: Operand, right: Operand, buffers: Buffers) -> Floats:
        """(rows, columns) float32."""
        best: Floats | None = None
        for query in left.data:
            for item in right.data:
                name = "best" if best is None else "other"
                out = buffers.get(name, (len(left), len(right)), np.float32)
                self._multiply(query, item, out)
                best = out if best is None else np.maximum(best, out, out=best)
        assert best is not None
        return best

    def load(self, vectors: Vectors, rows: slice, side: Side) -> Operand:
        """See ``Product``."""
        raise NotImplementedError

    def _multiply(self, query: Any, item: Any, out: Floats) -> None:
        raise NotImplementedError

    def near(self, tile: Floats, left: Operand, right: Operand, rows: slice, columns: slice) -> Floats:
        """The tile itself."""
        return tile[rows, columns]

    kth = near_kth

    def reached(
        self, tile: Floats, left: Operand, right: Operand, floors: Doubles, side: Side, part: slice, most: int
    ) -> Reached | None:
        """By one comparison of everything."""
        return float_reached(self, tile, left, right, floors, side, part, most)


class NumpyProduct(FloatProduct):
    """The float32 product of numpy's BLAS."""

    name = "numpy"

    def __init__(self) -> None:
        # Where BLAS cannot be held to one thread, it brings its own instead of ours.
        self.threads = MANY_THREADS if can_limit_blas() else 1

    def load(self, vectors: Vectors, rows: slice, side: Side) -> Operand:
        """The items as float32, not copied where they are float32 already."""
        block = vectors.block(rows)
        lengths = vectors.lengths(block, rows.start)
        return Operand(block.transpose(1, 0, 2), lengths, np.zeros(len(lengths)))

    def _multiply(self, query: Any, item: Any, out: Floats) -> None:
        np.matmul(query, item.T, out=out)
