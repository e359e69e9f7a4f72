"""Products by integers, whose sums are exact.

By 8 bits, torch's: a quarter of the time of float32 where processors have such products. By 16 bits, numba's, behind a
sieve of 8-bit sums that stay in registers: faster than float32 on processors with AVX2, much faster with VNNI or AMX.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import RetrievalError
from mitl.retrieval.processor import compiled_loops
from mitl.retrieval.products import (
    Buffers,
    FloatProduct,
    Floors,
    Operand,
    Product,
    Reached,
    Side,
    Tile,
    at_most,
    compared,
    places,
)
from mitl.retrieval.torch_products import (
    PIECE,
    cells_of,
    chunk_hits,
    import_torch,
    largest,
    lengths_of,
    pieces,
)
from mitl.retrieval.vectors import (
    UNIT,
    Doubles,
    Floats,
    Vectors,
    bounded,
    error_factors,
    product_errors,
    writeable,
)

_MOST_8 = 127
_WIDTHS = 8
"""Widths are padded with zeros to multiples of it (torch 2.13 multiplies int8 vectors of width 1 wrongly)."""
_LEAST = 1e-30
"""A step below it would have no inverse in float32."""
_ROOM = 1.1
"""How much longer than the sample's longest number the common step reaches."""


class Int8Product(Product):
    """Integers of 8 bits, each item in steps of its own.

    The items of the right are sorted by their steps, so that a chunk of them has nearly one step and one error: a
    floor becomes an integer for each row and chunk. Columns of their own floors need rows of one step:

    Args:
        left_step: the step of all items of the left; None for steps of their own.

    Raises:
        RetrievalError: this machine does not add them exactly.
    """

    name = "int8"
    roundoff = 0.0
    cell_bytes = 6
    number_bytes = 1
    chunk = 64

    def __init__(self, left_step: float | None = None) -> None:
        self._torch = import_torch("int8")
        if not _sums_exactly():
            raise RetrievalError(
                "this processor or this torch does not add 8-bit products exactly; use backend 'bf16' or 'auto'"
            )
        self._left_step = left_step

    @classmethod
    def for_both_ways(cls, left: Vectors, sample: int = 512) -> Int8Product:
        """With one step for the left that suits a sample of it."""
        reach = float(np.abs(left.sample(sample)).max(initial=0)) * _ROOM
        return cls(reach / _MOST_8 if np.isfinite(reach) and reach > _LEAST else _LEAST / _MOST_8)

    def load(self, vectors: Vectors, rows: slice, side: Side) -> Operand:
        """The items in steps; what that takes away is measured."""
        count, numbers, width = rows.stop - rows.start, vectors.per_item, vectors.width
        padded = -(-count // self.chunk) * self.chunk if side == "right" else count
        data = np.zeros((numbers, padded, -(-width // _WIDTHS) * _WIDTHS), np.int8)
        lengths, losses, steps = np.empty(count), np.zeros(count), np.empty(count)
        for piece, block in pieces(vectors, rows):
            lengths[piece] = vectors.lengths(block, rows.start + piece.start)
            steps[piece] = self._steps(block, side)
        order = np.argsort(steps, kind="stable") if side == "right" else np.arange(count)
        rank = np.empty(count, np.int64)
        rank[order] = np.arange(count)
        scaled = np.empty((min(PIECE, count), width), np.float32)
        whole = np.empty_like(scaled)
        for piece, block in pieces(vectors, rows):
            one, other = scaled[: len(block)], whole[: len(block)]
            for k in range(numbers):
                lost = _to_steps(writeable(block)[:, k], steps[piece], one, other)
                np.maximum(losses[piece], lost, out=losses[piece])
                data[k, rank[piece], :width] = other
        # Scaling rounds each number twice before it is compared with its integer.
        losses += 2 * UNIT * lengths
        np.minimum(losses, lengths + 2 * _MOST_8 * steps * np.sqrt(width), out=losses)
        losses[lengths == 0] = 0
        tensor = self._torch.from_numpy(data)
        return Operand(tensor, lengths[order], losses[order], steps[order], order)

    def _steps(self, block: Floats, side: Side) -> Doubles:
        if side == "left" and self._left_step is not None:
            return np.full(len(block), self._left_step)
        reach = np.maximum(block.max(axis=(1, 2)), -block.min(axis=(1, 2))).astype(np.float64)
        return np.asarray(np.maximum(reach, _LEAST) / _MOST_8)

    def multiply(self, left: Operand, right: Operand, buffers: Buffers) -> Tile:
        """(K L, rows, padded columns) sums."""
        shape = (len(left.data) * len(right.data), left.data.shape[1], right.data.shape[1])
        cells = buffers.get("tile", shape, np.int32)
        outs = iter(self._torch.from_numpy(cells))
        for query in left.data:
            for item in right.data:
                self._torch._int_mm(query, item.T, out=next(outs))
        return Tile(cells, left, right)

    def near(self, tile: Tile, rows: slice, columns: slice) -> Floats:
        """The sums times their steps."""
        cells = largest(tile.cells[:, rows, : len(tile.right)])[:, columns]
        steps = tile.right.steps[columns].astype(np.float32)
        near: Floats = np.multiply(cells, steps, dtype=np.float32)
        near *= tile.left.steps[rows, None].astype(np.float32)
        return near

    def reached(self, tile: Tile, floors: Floors) -> Reached | None:
        """In integers: for rows the best of each chunk first, for columns everything."""
        reached = self._columns_reached if floors.side == "right" else self._rows_reached
        pairs = reached(tile, floors)
        return pairs and pairs._replace(columns=tile.right.places[pairs.columns])

    def _rows_reached(self, tile: Tile, floors: Floors) -> Reached | None:
        left, right, part, most = tile.left, tile.right, floors.part, floors.most
        errors, least = self._chunk_floors(left, right, floors.values)
        whole = part.stop - part.start == len(right)
        hits = chunk_hits(self._torch, tile.cells, least, self.chunk) if whole else None
        if hits is None:
            cells = largest(tile.cells)
            reach = cells.reshape(len(left), -1, self.chunk) >= least[:, :, None]
            flat = places(reach.reshape(cells.shape)[:, part], most)
            if flat is None:
                return None
            rows, columns = np.divmod(flat, part.stop - part.start)
            columns += part.start
            values = cells[rows, columns]
        else:
            (rows, columns, _), values = cells_of(tile.cells, hits, least, self.chunk)
            if len(rows) > most:
                return None
            real = np.flatnonzero(columns < len(right))
            rows, columns, values = rows[real], columns[real], values[real]
        highest = values * (left.steps[rows] * right.steps[columns])
        highest += errors.reshape(-1)[rows * errors.shape[1] + columns // self.chunk]
        reached = np.flatnonzero(highest >= floors.values[rows])
        return Reached(rows[reached], columns[reached], highest[reached])

    def _columns_reached(self, tile: Tile, floors: Floors) -> Reached | None:
        assert self._left_step is not None, "rows of different steps have no common floor"
        right, values = tile.right, floors.values[tile.right.places]
        errors = self.errors(right, tile.left)
        units: Doubles = self._left_step * right.steps
        cells = largest(tile.cells)[:, : len(right)]
        pairs = compared(cells, _least((values - errors) / units), floors)
        if pairs is None:
            return None
        highest = cells[pairs.rows, pairs.columns] * units[pairs.columns] + errors[pairs.columns]
        reached = np.flatnonzero(highest >= values[pairs.columns])
        return Reached(pairs.rows[reached], pairs.columns[reached], highest[reached])

    def _chunk_floors(
        self, left: Operand, right: Operand, floors: Doubles
    ) -> tuple[Doubles, NDArray[np.int32]]:
        """How far products of rows and chunks may be off, and the least sums that may reach the rows' floors."""
        starts = np.arange(0, len(right), self.chunk)
        losses = np.maximum.reduceat(right.losses, starts)
        lengths = np.maximum.reduceat(right.lengths, starts)
        errors = product_errors(left.lengths, left.losses, lengths, losses, left.data.shape[2], self.roundoff)
        lowest = (floors[:, None] - errors) / left.steps[:, None]
        most, fewest = np.maximum.reduceat(right.steps, starts), np.minimum.reduceat(right.steps, starts)
        return errors, _least(np.where(lowest > 0, lowest / most, lowest / fewest))


def _to_steps(vectors: NDArray[Any], steps: Doubles, scaled: Floats, whole: Floats) -> Doubles:
    """Put ``vectors`` (n, D) as whole steps into ``whole`` and give the lengths of what is lost, (n,)."""
    inverses = (1 / steps).astype(np.float32)
    if (loops := compiled_loops()) is not None:
        lost = np.empty(len(vectors))
        loops.to_steps(vectors, inverses, whole, lost)
        return bounded(lost, vectors.shape[1]) * steps
    with np.errstate(over="ignore"):
        np.multiply(vectors, inverses[:, None], out=scaled)
    np.rint(scaled, out=whole)
    np.clip(whole, -_MOST_8, _MOST_8, out=whole)
    np.subtract(scaled, whole, out=scaled)
    return lengths_of(scaled) * steps


def _least(numbers: Doubles) -> NDArray[np.int32]:
    """The largest int32 that no sum from these numbers on is below."""
    return (np.floor(np.clip(numbers, -(2.0**31) + 2, 2.0**31 - 2)) - 1).astype(np.int32)


@cache
def _sums_exactly() -> bool:
    """Whether products of the largest integers are added without saturation, as processors without VNNI do."""
    torch = import_torch("int8")
    if not hasattr(torch, "_int_mm"):
        return False
    signs = torch.where(torch.arange(64 * 256).view(64, 256) % 3 > 0, _MOST_8, -_MOST_8).to(torch.int8)
    try:
        sums = torch._int_mm(signs, signs.T)
    except RuntimeError:
        return False
    return bool(torch.equal(sums.long(), signs.long() @ signs.long().T))


_MOST_16 = 2.0**15 - 1
_LONGEST = 46_340
"""Sums of products of two vectors up to this length, the root of 2^31, are integers of 32 bits."""
_WIDEST = 1 << 16
"""Sums of products of so many numbers of 8 bits are integers of 32 bits."""
_PATIENCE = 16
"""Tiles that the sieve may fail to thin out, net of those where it does, until it is left."""
_LITTLE = 1 << 24
"""Numbers of the left that stay in 16 bits."""
_FOUND = {"rows": np.int32, "columns": np.int32, "highest": np.float32}


@dataclass(frozen=True, slots=True, eq=False)
class _Unmade:
    """Vectors (1, n, D) in 16 bits, made again for each tile.

    The left stays for all of a search: these would be two thirds of its memory, and making them is a 60th of a tile.
    """

    vectors: Vectors
    rows: slice
    shape: tuple[int, int, int]


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
    tile = (1024, 3072)
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
        made = self._sieve.amx_kernels, self._sieve.vnni_kernels
        self._coarse: Any = next((module for module in made if module.runs_here()), self._sieve)
        self._blocks = self._coarse.ROWS, self._coarse.COLUMNS
        self._patience = _PATIENCE

    def load(self, vectors: Vectors, rows: slice, side: Side) -> Operand:
        """The items in steps, and in panels for the sieve; what that takes away is measured."""
        count, numbers, width = rows.stop - rows.start, vectors.per_item, vectors.width
        number = 0 if side == "left" else 1
        panel, part = math.lcm(self._panels[number], self._blocks[number]), self._sieve.PART
        padded, sieved = -(-count // panel) * panel, numbers == 1 and width <= _WIDEST
        unmade = _Unmade(vectors, rows, (numbers, count, -(-width // part) * part))
        kept = not sieved or side == "right" or len(vectors) * unmade.shape[2] <= _LITTLE
        data = np.empty((numbers, count if kept else min(PIECE, count), unmade.shape[2]), np.int16)
        coarse = self._coarse.empty_panels(padded if sieved else 0, data.shape[2], number)
        squares, (lost, coarsely_lost) = np.empty(count), np.empty((2, count))
        steps, scales = np.zeros((2, padded), np.float32)
        for piece, block, bits in self._to_steps(unmade, data, (steps, squares, lost)):
            if sieved:
                of_sieve = scales[piece], coarsely_lost[piece]
                self._coarse.to_panels(block[:, 0], bits[:, 0], number, coarse, piece.start, of_sieve)
        lengths = vectors.checked(np.where(squares == 0, 0, bounded(squares, width)), rows.start)

        def operand(numbers: Any, lost: Doubles, steps: NDArray[Any], coarse: Operand | None) -> Operand:
            # Scaling rounds each number twice before it is compared with its integer; for the others see error_factors.
            losses = bounded(lost, width) * steps[:count]
            losses += (2 + 16) * UNIT * (lengths + losses)
            losses[lengths == 0] = 0
            factors = np.zeros((3, padded), np.float32)
            factors[0], factors[1:, :count] = steps, error_factors(lengths, losses, width, side)
            return Operand(numbers, lengths, losses, factors[0], coarse=coarse, factors=factors)

        first = None
        if sieved:
            first = operand(coarse.reshape(1, len(coarse), -1), coarsely_lost, scales, None)
        return operand(data if kept else unmade, lost, steps, first)

    def _to_steps(
        self, unmade: _Unmade, out: NDArray[np.int16], found: tuple[NDArray[Any], ...]
    ) -> Iterator[tuple[slice, Floats, NDArray[np.int32]]]:
        """Some vectors at a time, put into ``out`` as whole steps, in place of the last ones where it has no more room.

        ``found`` takes their steps, squared lengths and what is lost; given are the vectors and their bits.
        """
        width = unmade.vectors.width
        out[:, :, width:] = 0
        # Rounding to whole steps lengthens a vector by half of the root.
        most = _LONGEST - math.sqrt(width) - 1, _MOST_16, _LEAST
        for piece, block in pieces(unmade.vectors, unmade.rows):
            block = writeable(block)
            bits, here = block.view(np.int32), out[:, piece] if out.shape == unmade.shape else out
            self._kernels.to_steps(block, bits, most, here, tuple(numbers[piece] for numbers in found))
            yield piece, block, bits

    def _numbers(self, operand: Operand, buffers: Buffers) -> NDArray[np.int16]:
        """The vectors in 16 bits; what had to be made is valid until this thread asks for others."""
        unmade = operand.data
        if not isinstance(unmade, _Unmade):
            return np.asarray(unmade)

        def make() -> NDArray[np.int16]:
            out, again = buffers.get("numbers", unmade.shape, np.int16), np.empty((2, len(operand)))
            for _ in self._to_steps(unmade, out, (np.empty(len(operand), np.float32), *again)):
                pass
            return out

        return np.asarray(buffers.kept("numbers", unmade, make))

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
        for vectors in self._numbers(operand, buffers).view(np.int32):
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
        lists = tuple(buffers.get(name, (2, most), kind) for name, kind in _FOUND.items())
        sides: dict[Side, Operand] = {"left": left, "right": right}
        factors = left.factors, right.factors
        least = tuple(np.full(len(operand.steps), np.inf, np.float32) for operand in sides.values())
        for numbers, (side, operand) in zip(least, sides.items(), strict=True):
            if side in floors:
                numbers[: len(operand)] = at_most(floors[side].values)
        counts = -1, -1
        if self._patience > 0:
            counts = self._sieve.sieve(
                (left.coarse.data[0], right.coarse.data[0]),
                (left.coarse.factors, right.coarse.factors),
                tuple(self._numbers(operand, buffers)[0] for operand in sides.values()),
                factors,
                least,
                lists,
                (*self._blocks, self._coarse.DEPTH, self._coarse.LEFT_BYTES, self._coarse.WORTH),
            )[:2]
            self._patience = min(_PATIENCE, self._patience + (1 if counts[0] >= 0 else -1))
        if counts[0] < 0:
            panels = tuple(
                next(self._packed(operand, number, buffers)) for number, operand in enumerate(sides.values())
            )
            counts = self._kernels.sift(panels, factors, least, (len(left), len(right)), lists)
        if counts[0] < 0:
            return None
        return {
            side: Reached(*(numbers[number, : counts[number]] for numbers in lists))
            for number, side in enumerate(sides)
            if side in floors
        }
