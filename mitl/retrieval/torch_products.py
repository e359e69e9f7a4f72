"""Products by torch on the CPU, in float32 and bfloat16."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import RetrievalError
from mitl.retrieval.processor import compiled_loops, exactly
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
    kth_of_chunks,
)
from mitl.retrieval.vectors import Doubles, Floats, Vectors, bounded, writeable

PIECE = 512
"""Items that are converted at once; they stay in a core's cache."""
FEW = 4
"""Chunks are looked at one by one where at most one of so many holds something."""
_LOOKED_AT, _IN_VAIN = 16, 2
"""Rows that are looked at first; cells per chunk, in units of that share, with which more would be in vain."""


def import_torch(backend: str) -> Any:
    """The module; RetrievalError where it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise RetrievalError(
            f"backend {backend!r} needs torch, which is not installed; use 'numpy' or install mitl[torch]"
        ) from error
    return torch


class TorchProduct(FloatProduct):
    """The float32 product of torch, by ``mm`` or, with ``linear``, by its other library."""

    name = "torch"

    def __init__(self, *, linear: bool = False) -> None:
        self._torch = import_torch("torch")
        self._linear = linear

    def load(self, vectors: Vectors, rows: slice, side: Side) -> Operand:
        """The items as float32 tensors."""
        block = vectors.block(rows)
        lengths = vectors.lengths(block, rows.start)
        data = self._torch.from_numpy(writeable(block)).transpose(0, 1)
        return Operand(data, lengths, np.zeros(len(lengths)))

    def _multiply(self, query: Any, item: Any, out: Floats) -> None:
        with exactly():
            if self._linear:
                np.copyto(out, self._torch.nn.functional.linear(query, item).numpy())
            else:
                self._torch.mm(query, item.T, out=self._torch.from_numpy(out))


class Bfloat16Product(Product):
    """Numbers of 8 significant bits, accumulated in float32 and rounded to bfloat16 once more.

    Tiles are (K L, rows, columns) of the bits, int16: numpy has no bfloat16, and positive ones have the order of
    their bits.
    """

    name = "bf16"
    rounding = 2.0**-8 * (1 + 2.0**-8)
    cell_bytes = 4
    number_bytes = 2
    tile = (1024, 2560)
    chunk = 128

    def __init__(self) -> None:
        self._torch = import_torch("bf16")

    def load(self, vectors: Vectors, rows: slice, side: Side) -> Operand:
        """The items rounded to bfloat16; what that takes away is measured."""
        torch, count = self._torch, rows.stop - rows.start
        lengths, losses = np.empty(count), np.zeros(count)
        if (loops := compiled_loops()) is not None:
            bits = np.empty((vectors.per_item, count, vectors.width), np.int16)
            for piece, block in pieces(vectors, rows):
                loops.to_bfloat16(writeable(block), bits[:, piece], lengths[piece], losses[piece])
            lengths, losses = (
                np.where(squares == 0, 0, bounded(squares, vectors.width)) for squares in (lengths, losses)
            )
            vectors.checked(lengths, rows.start)
            return Operand(torch.from_numpy(bits).view(torch.bfloat16), lengths, losses)
        data = torch.empty((vectors.per_item, count, vectors.width), dtype=torch.bfloat16)
        exact = np.empty((min(PIECE, count), vectors.width), np.float32)
        back = torch.empty(exact.shape)
        for piece, block in pieces(vectors, rows):
            lengths[piece] = vectors.lengths(block, rows.start + piece.start)
            one, other = exact[: len(block)], back[: len(block)]
            for k in range(vectors.per_item):
                np.copyto(one, block[:, k])
                data[k, piece].copy_(torch.from_numpy(one))
                other.copy_(data[k, piece])
                np.subtract(one, other.numpy(), out=one)
                np.maximum(losses[piece], lengths_of(one), out=losses[piece])
        losses[lengths == 0] = 0
        return Operand(data, lengths, losses)

    def multiply(self, left: Operand, right: Operand, buffers: Buffers) -> Tile:
        """(K L, rows, columns) bits."""
        torch = self._torch
        shape = (len(left.data) * len(right.data), len(left), len(right))
        cells = buffers.get("tile", shape, np.int16)
        outs = iter(torch.from_numpy(cells).view(torch.bfloat16))
        with exactly():
            for query in left.data:
                for item in right.data:
                    torch.mm(query, item.T, out=next(outs))
        return Tile(cells, left, right)

    def near(self, tile: Tile, rows: slice, columns: slice) -> Floats:
        """The numbers of the bits."""
        return largest(self._floats(tile.cells[:, rows, columns]))

    def kth(self, tile: Tile, k: int, side: Side, seen: slice) -> Floats | None:
        """By the bits, whose order is that of the numbers where the k-th are positive."""
        if len(tile.cells) == 1:
            bits = kth_of_chunks(tile.cells[0, :, seen] if side == "left" else tile.cells[0, seen].T, k)
            if bits is None or bits.min() > 0:
                return None if bits is None else self._floats(bits)
        return super().kth(tile, k, side, seen)

    def reached(self, tile: Tile, floors: Floors) -> Reached | None:
        """By the bits where all floors are positive; rounding keeps the order, so that truncated floors do."""
        products: NDArray[np.int16] = tile.cells
        errors = self.errors(*tile.seen_from(floors.side))
        thresholds = at_most(floors.values - errors)
        if not thresholds.min() > 0:
            return self.reached_among(largest(self._floats(products)), tile, floors)
        bits = (thresholds.view(np.int32) >> 16).astype(np.int16)
        hits, columns = None, products.shape[2]
        if floors.side == "left" and floors.part == slice(0, columns) and columns % self.chunk == 0:
            hits = chunk_hits(self._torch, products, bits[:, None], self.chunk)
        if hits is None:
            cells = largest(products)
            pairs = compared(cells, bits, floors)
            values = cells[pairs.rows, pairs.columns] if pairs else cells[:0]
        else:
            pairs, values = cells_of(products, hits, bits[:, None], self.chunk)
        if pairs is None or len(pairs.rows) > floors.most:
            return None
        return self.with_highest(pairs, self._floats(values), errors, floors.side)

    def _floats(self, bits: NDArray[np.int16]) -> Floats:
        """The float32 of bfloat16 bits."""
        numbers: Floats = self._torch.from_numpy(bits).view(self._torch.bfloat16).float().numpy()
        return numbers


def pieces(vectors: Vectors, rows: slice) -> Iterator[tuple[slice, Floats]]:
    """Some items at a time, by their places within ``rows``."""
    for start in range(rows.start, rows.stop, PIECE):
        stop = min(start + PIECE, rows.stop)
        yield slice(start - rows.start, stop - rows.start), vectors.block(slice(start, stop))


def lengths_of(vectors: Floats) -> Doubles:
    """Upper bounds of the lengths of (n, D)."""
    with np.errstate(over="ignore", under="ignore"):
        return bounded(np.vecdot(vectors, vectors), vectors.shape[1])


def largest(tile: NDArray[Any]) -> NDArray[Any]:
    """The largest of the K x L products of each pair, (n, m), for (K L, n, m)."""
    return tile[0] if len(tile) == 1 else np.asarray(tile.max(axis=0))


def chunk_hits(
    torch: Any, tile: NDArray[Any], thresholds: NDArray[Any], chunk: int
) -> NDArray[np.int64] | None:
    """The chunks (flat, of rows x chunks) whose best reaches (rows, chunks or 1); None where they are not few."""
    count, rows, columns = tile.shape
    chunks = columns // chunk
    # Some rows tell beforehand where the look at the chunks would be in vain.
    some = slice(None, None, max(1, rows // _LOOKED_AT))
    few = tile[:, some].reshape(count, -1, chunks, chunk) >= thresholds[some, :, None]
    if np.count_nonzero(few) * FEW > _IN_VAIN * few.shape[1] * chunks:
        return None
    best = torch.from_numpy(tile).view(count, rows, columns // chunk, chunk).amax(3).numpy()
    hits = np.flatnonzero(largest(best) >= thresholds)
    return hits if len(hits) * FEW <= rows * (columns // chunk) else None


def cells_of(
    tile: NDArray[Any], hits: NDArray[np.int64], thresholds: NDArray[Any], chunk: int
) -> tuple[Reached, NDArray[Any]]:
    """The cells of these chunks that reach the thresholds of (rows, chunks or 1), and their values."""
    count, _, columns = tile.shape
    cells = largest(tile.reshape(count, -1, chunk)[:, hits])
    row, place = np.divmod(hits, columns // chunk)
    least = thresholds[row, np.minimum(place, thresholds.shape[1] - 1)]
    at = np.flatnonzero(cells >= least[:, None])
    hit, within = np.divmod(at, chunk)
    return Reached(row[hit], place[hit] * chunk + within, np.empty(0)), cells.reshape(-1)[at]
