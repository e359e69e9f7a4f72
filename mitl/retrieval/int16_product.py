"""The product by 16-bit integers, for processors whose only fast products are of float32: up to twice as fast."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import numpy as np

from mitl.errors import RetrievalError
from mitl.retrieval.products import Buffers, FloatProduct, Operand, Side, Tile
from mitl.retrieval.torch_products import pieces
from mitl.retrieval.vectors import UNIT, Floats, Vectors, bounded, writeable

_MOST = 2.0**15 - 1
_LEAST_STEP = 1e-30
"""A step below it would have no inverse in float32."""
_LONGEST = 46_340
"""Sums of products of two vectors up to this length, the root of 2^31, are integers of 32 bits."""


class Int16Product(FloatProduct):
    """Integers of 16 bits, each item in steps of its own; sums are exact and come as float32 times their steps.

    By the inequality of Cauchy and Schwarz no sum of a part of the products is larger than the product of the vectors'
    lengths, so that vectors of at most ``_LONGEST`` steps never leave 32 bits.

    Raises:
        RetrievalError: numba is not installed, or the processor has no AVX2.
    """

    name = "int16"
    roundoff = 0.0
    number_bytes = 2
    tile = (1536, 2048)
    loses = True

    def __init__(self) -> None:
        try:
            self._kernels: Any = import_module("mitl.retrieval.int16_kernels")
        except ImportError as error:
            raise RetrievalError(
                "backend 'int16' needs numba, which is not installed; use 'auto' or install mitl[fast]"
            ) from error
        if not self._kernels.runs_here():
            raise RetrievalError("backend 'int16' needs a processor with AVX2; use 'auto'")

    def load(self, vectors: Vectors, rows: slice, side: Side) -> Operand:
        """The items in steps, those of the right in panels; what that takes away is measured."""
        count, numbers, width = rows.stop - rows.start, vectors.per_item, vectors.width
        columns = 1 if side == "left" else self._kernels.COLUMNS
        multiple = self._kernels.ROWS if side == "left" else columns
        padded, pairs = -(-count // multiple) * multiple, -(-width // 2)
        data = np.zeros((numbers, padded // columns, pairs, columns), np.int32)
        squares, lost, steps = np.empty(count), np.empty(count), np.zeros(padded, np.float32)
        longest = (
            _LONGEST - math.sqrt(width) - 1
        )  # rounding to whole steps lengthens a vector by half of the root
        for piece, block in pieces(vectors, rows):
            found = steps[piece], squares[piece], lost[piece]
            self._kernels.to_steps(writeable(block), (longest, _MOST, _LEAST_STEP), data, piece.start, found)
        lengths = vectors.checked(np.where(squares == 0, 0, bounded(squares, width)), rows.start)
        # Scaling rounds each number twice before it is compared with its integer.
        losses = bounded(lost, width) * steps[:count] + 2 * UNIT * lengths
        losses[lengths == 0] = 0
        halves = data.view(np.int16)
        shape = (numbers, padded, 2 * pairs) if side == "left" else (numbers, -1, 2 * pairs, columns)
        return Operand(halves.reshape(shape), lengths, losses, steps)

    def multiply(self, left: Operand, right: Operand, buffers: Buffers) -> Tile:
        """(rows, columns) float32, a view of what is padded to whole panels."""
        best: Floats | None = None
        for query in left.data:
            for item in right.data:
                out = buffers.get(
                    "best" if best is None else "other", (len(left.steps), len(right.steps)), np.float32
                )
                self._kernels.multiply(query, left.steps, item, right.steps, out)
                best = out if best is None else np.maximum(best, out, out=best)
        assert best is not None
        return Tile(best[: len(left), : len(right)], left, right)
