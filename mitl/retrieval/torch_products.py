"""Products by torch: on the CPU in float32 and bfloat16; on a GPU, where tiles are multiplied and sifted too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import RetrievalError
from mitl.retrieval.processor import compiled_loops, exactly
from mitl.retrieval.products import (
    MOST_SHARE,
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

_CPU_MEMORY = 1 << 28
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
            found = compared(cells, bits, floors)
            values = cells[found.rows, found.columns] if found else cells[:0]
        else:
            found, values = cells_of(products, hits, bits[:, None], self.chunk)
        if found is None or len(found.rows) > floors.most:
            return None
        return self.with_highest(found, self._floats(values), errors, floors.side)

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
    found = np.flatnonzero(cells >= least[:, None])
    hit, within = np.divmod(found, chunk)
    return Reached(row[hit], place[hit] * chunk + within, np.empty(0)), cells.reshape(-1)[found]


class DeviceProduct(Product):
    """bfloat16 on a device of torch's, accumulated in float32; tiles (K L, rows, columns) stay there.

    Args:
        device: a torch device; ``cpu`` runs the same code without a GPU.
        products: K L, of each pair.

    Raises:
        RetrievalError: torch is not installed or sees no such device.
    """

    name = "cuda"
    # Matrix units align and truncate what they add: some bits less than float32 in each step.
    roundoff = 2.0**-22
    rounding = Bfloat16Product.rounding
    threads = 4
    chunk = 128

    def __init__(self, device: str = "cuda", products: int = 1) -> None:
        self._torch = import_torch("cuda")
        on_gpu = device.startswith("cuda")
        if on_gpu and not self._torch.cuda.is_available():
            raise RetrievalError(
                "backend 'cuda' needs a GPU that torch can use, and there is none; use 'auto'"
            )
        self._device = self._torch.device(device)
        free = int(self._torch.cuda.mem_get_info(self._device)[0]) if on_gpu else _CPU_MEMORY
        self.tile = tile_for(free, self.threads, products)
        self._kept: dict[tuple[Vectors, int, int], Operand] = {}
        self._keep_bytes = free // 4
        self._lock = threading.Lock()

    def load(self, vectors: Vectors, rows: slice, side: Side) -> Operand:
        """The items rounded to bfloat16 there; blocks of the right are kept while a quarter of its memory holds."""
        key = (vectors, rows.start, rows.stop)
        with self._lock:
            if key in self._kept:
                return self._kept[key]
        torch = self._torch
        exact = torch.from_numpy(writeable(vectors.block(rows))).to(self._device)
        data = exact.to(torch.bfloat16)
        lengths = vectors.checked(bounded(_squares(exact), vectors.width), rows.start)
        # Vectors that are not zero have a length of at least what squares may lose.
        lengths[~exact.flatten(1).any(1).cpu().numpy()] = 0
        losses = bounded(_squares(exact - data.float()), vectors.width)
        losses[lengths == 0] = 0
        operand = Operand(data.transpose(0, 1).contiguous(), lengths, losses)
        if side == "right":
            with self._lock:
                if key not in self._kept and operand.data.nbytes <= self._keep_bytes:
                    self._keep_bytes -= operand.data.nbytes
                    self._kept[key] = operand
        return operand

    def multiply(self, left: Operand, right: Operand, buffers: Buffers) -> Tile:
        """(K L, rows, columns) bfloat16 on the device."""
        torch = self._torch
        shape = (len(left.data) * len(right.data), len(left), len(right))
        cells = buffers.kept(
            "device tile", shape, lambda: torch.empty(shape, dtype=torch.bfloat16, device=self._device)
        )
        pairs = ((query, item) for query in left.data for item in right.data)
        with exactly():
            for out, (query, item) in zip(cells, pairs, strict=True):
                torch.mm(query, item.T, out=out)
        return Tile(cells, left, right)

    def near(self, tile: Tile, rows: slice, columns: slice) -> Floats:
        """The numbers, brought here."""
        near: Floats = _largest(tile.cells[:, rows, columns]).float().cpu().numpy()
        return near

    def reached(self, tile: Tile, floors: Floors) -> Reached | None:
        """For rows the best of each chunk first; all on the device, from where only the survivors come."""
        errors = self.errors(*tile.seen_from(floors.side))
        least = self._torch.from_numpy(self.least_near(floors, errors)).to(self._device)
        found = self._found(tile.cells, least, floors)
        if found is None:
            return None
        rows, columns, values = (on_device.cpu().numpy() for on_device in found)
        return self.with_highest(Reached(rows, columns, np.empty(0)), values, errors, floors.side)

    def _found(self, tile: Any, least: Any, floors: Floors) -> tuple[Any, Any, Any] | None:
        """Rows, columns and values that reach ``least``, on the device; None where there are too many."""
        part, most = floors.part, floors.most
        _, rows, columns = tile.shape
        if floors.side == "left" and part == slice(0, columns) and columns % self.chunk == 0:
            chunks = columns // self.chunk
            peaks = _largest(tile.view(-1, rows, chunks, self.chunk).amax(3)).float()
            hits = (peaks >= least[:, None]).view(-1).nonzero()[:, 0]
            if len(hits) * self.chunk <= max(most, self.chunk) * 4:
                cells = _largest(tile.view(-1, rows * chunks, self.chunk)[:, hits]).float()
                reach = cells >= least[hits // chunks][:, None]
                hit, place = reach.nonzero(as_tuple=True)
                if len(hit) > most:
                    return None
                hit_chunk = hits[hit]
                return hit_chunk // chunks, hit_chunk % chunks * self.chunk + place, cells[hit, place]
        cells = _largest(tile[:, :, part]).float()
        reach = cells >= (least[:, None] if floors.side == "left" else least[part])
        if int(reach.sum()) > most:
            return None
        row, column = reach.nonzero(as_tuple=True)
        return row, column + part.start, cells[row, column]


def cell_bytes(products: int) -> int:
    """What a cell of a tile takes at most on the device, with all that ``reached`` makes of it.

    Its K L products of 2 bytes; the largest of them, 2 more where there are several; that as float32, 4; whether it
    reaches, 1; and of one cell in ``MOST_SHARE`` two places of 8 bytes, one of them twice, and a value of 4.
    """
    return 2 * products + (2 if products > 1 else 0) + 4 + 1 + -(-28 // MOST_SHARE)


def tile_for(memory: int, threads: int, products: int = 1) -> tuple[int, int]:
    """Rows and columns of a tile, of which each thread has one with what is made of it in a quarter of the memory."""
    rows, columns = 8192, 32768
    while rows * columns * cell_bytes(products) * threads > memory // 4 and columns > 1024:
        rows, columns = max(1024, rows // 2), columns // 2
    return rows, columns


def _largest(cells: Any) -> Any:
    """The largest of the K L products (K L, ...)."""
    return cells[0] if len(cells) == 1 else cells.amax(0)


def _squares(vectors: Any) -> Floats:
    """The squared length of each item's longest vector, (n,), for (n, K, D) on the device."""
    squares: Floats = vectors.square().sum(2).amax(1).cpu().numpy()
    return squares
