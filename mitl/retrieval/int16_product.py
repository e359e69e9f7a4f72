"""The product by 16-bit integers, for processors whose only fast products are of float32: up to twice as fast."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import RetrievalError
from mitl.retrieval.products import Buffers, FloatProduct, Floors, Operand, Reached, Side, Tile
from mitl.retrieval.torch_products import pieces
from mitl.retrieval.vectors import UNIT, Doubles, Floats, Vectors, bounded, writeable

_MOST = 2.0**15 - 1
_LEAST_STEP = 1e-30
"""A step below it would have no inverse in float32."""
_LONGEST = 46_340
"""Sums of products of two vectors up to this length, the root of 2^31, are integers of 32 bits."""
_PATIENCE = 16
"""Tiles that the sieve may fail to thin out, net of those where it does, until it is left."""
_FOUND = {"rows": np.int32, "columns": np.int32, "near": np.float32}


class Int16Product(FloatProduct):
    """Integers of 16 bits, each item in steps of its own; sums are exact and come as float32 times their steps.

    By the inequality of Cauchy and Schwarz no sum of a part of the products is larger than the product of the vectors'
    lengths, so that vectors of at most ``_LONGEST`` steps never leave 32 bits.

    Raises:
        RetrievalError: numba is not installed, or the processor has no AVX2.
    """

    name = "int16"
    roundoff = 0.0
    number_bytes = 3
    tile = (1536, 2048)
    loses = True

    def __init__(self) -> None:
        try:
            self._kernels: Any = import_module("mitl.retrieval.int16_kernels")
            self._sieve: Any = import_module("mitl.retrieval.sieve_kernels")
        except ImportError as error:
            raise RetrievalError(
                "backend 'int16' needs numba, which is not installed; use 'auto' or install mitl[fast]"
            ) from error
        if not self._kernels.runs_here():
            raise RetrievalError("backend 'int16' needs a processor with AVX2; use 'auto'")
        self._panels = self._kernels.ROWS, self._kernels.COLUMNS
        self._patience = _PATIENCE

    def load(self, vectors: Vectors, rows: slice, side: Side) -> Operand:
        """The items in steps, and in panels for the sieve; what that takes away is measured."""
        count, numbers, width = rows.stop - rows.start, vectors.per_item, vectors.width
        number = 0 if side == "left" else 1
        panel, segments = self._panels[number], -(-width // self._sieve.SEGMENT)
        padded = -(-count // panel) * panel
        data = np.zeros((numbers, count, segments * self._sieve.SEGMENT), np.int16)
        coarse = np.zeros((padded // panel, segments, *self._sieve.PARTS[number]), ("u1", "i1")[number])
        squares, (lost, coarsely_lost) = np.empty(count), np.empty((2, count))
        steps, scales = np.zeros((2, padded), np.float32)
        # Rounding to whole steps lengthens a vector by half of the root.
        most = _LONGEST - math.sqrt(width) - 1, _MOST, _LEAST_STEP
        for piece, block in pieces(vectors, rows):
            block = writeable(block)
            self._kernels.to_steps(block, most, data[:, piece], (steps[piece], squares[piece], lost[piece]))
            if numbers == 1:
                found = scales[piece], coarsely_lost[piece]
                self._sieve.to_panels(block[:, 0], number, coarse, piece.start, found)
        lengths = vectors.checked(np.where(squares == 0, 0, bounded(squares, width)), rows.start)

        def operand(numbers: Any, lost: Doubles, steps: NDArray[Any], coarse: Operand | None) -> Operand:
            # Scaling rounds each number twice before it is compared with its integer.
            losses = bounded(lost, width) * steps[:count] + 2 * UNIT * lengths
            losses[lengths == 0] = 0
            return Operand(numbers, lengths, losses, steps, coarse=coarse)

        sieved = (
            operand(coarse.reshape(1, len(coarse), -1), coarsely_lost, scales, None) if numbers == 1 else None
        )
        return operand(data, lost, steps, sieved)

    def multiply(self, left: Operand, right: Operand, buffers: Buffers) -> Tile:
        """(rows, columns) float32, a view of what is padded to whole panels."""
        best: Floats | None = None
        for query in self._packed(left, 0, buffers):
            for item in self._packed(right, 1, buffers):
                out = buffers.get(
                    "best" if best is None else "other", (len(left.steps), len(right.steps)), np.float32
                )
                self._kernels.multiply(query, left.steps, item, right.steps, out)
                best = out if best is None else np.maximum(best, out, out=best)
        assert best is not None
        return Tile(best[: len(left), : len(right)], left, right)

    def _packed(self, operand: Operand, number: int, buffers: Buffers) -> Iterator[NDArray[np.int16]]:
        """Its vectors in panels, one after the other."""
        width = self._panels[number]
        for vectors in operand.data.view(np.int32):
            out = buffers.get(
                f"panels {number}", (len(operand.steps) // width, vectors.shape[1], width), np.int32
            )
            self._kernels.pack(vectors, out)
            yield out.view(np.int16).reshape(len(out), -1, width)

    def sifted(
        self, left: Operand, right: Operand, floors: Mapping[Side, Floors], buffers: Buffers
    ) -> dict[Side, Reached] | None:
        """Compared while they are in registers, where each pair has one product; by the sieve first, while it pays."""
        if left.coarse is None or right.coarse is None:
            return None
        most = min(floor.most for floor in floors.values())
        found = tuple(buffers.get(name, (2, most), kind) for name, kind in _FOUND.items())
        errors, least = self._least(left, right, floors)
        counts = -1, -1
        if self._patience > 0:
            counts = self._sieve.sieve(
                (left.coarse.data[0], right.coarse.data[0]),
                (left.coarse.steps, right.coarse.steps),
                self._least(left.coarse, right.coarse, floors)[1],
                (left.data[0], right.data[0]),
                (left.steps, right.steps),
                least,
                found,
            )[:2]
            self._patience = min(_PATIENCE, self._patience + (1 if counts[0] >= 0 else -1))
        if counts[0] < 0:
            panels = tuple(
                next(self._packed(side, number, buffers)) for number, side in enumerate((left, right))
            )
            shape = len(left), len(right)
            counts = self._kernels.sift(panels, (left.steps, right.steps), least, shape, found)
        if counts[0] < 0:
            return None
        reached: dict[Side, Reached] = {}
        sides: tuple[Side, Side] = ("left", "right")
        for number, side in enumerate(sides):
            rows, columns, near = (numbers[number, : counts[number]] for numbers in found)
            reached[side] = self.with_highest(Reached(rows, columns, np.empty(0)), near, errors[number], side)
        return reached

    def _least(
        self, left: Operand, right: Operand, floors: Mapping[Side, Floors]
    ) -> tuple[list[Doubles], tuple[Floats, ...]]:
        """The errors of rows and of columns, and their least near similarities; infinite for who has no floor."""
        sides: list[tuple[Side, Operand, Operand]] = [("left", left, right), ("right", right, left)]
        errors = [self.errors(own, partner) for _, own, partner in sides]
        least = tuple(np.full(len(own.steps), np.inf, np.float32) for _, own, _ in sides)
        for number, (side, own, _) in enumerate(sides):
            if side in floors:
                least[number][: len(own)] = self.least_near(floors[side], errors[number])
        return errors, least
