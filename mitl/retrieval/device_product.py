"""The product on a GPU by torch: tiles are multiplied and sifted there, survivors are rescored here."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from mitl.errors import RetrievalError
from mitl.retrieval.processor import exactly
from mitl.retrieval.products import MOST_SHARE, Buffers, Floors, Operand, Product, Reached, Side, Tile
from mitl.retrieval.torch_products import Bfloat16Product, import_torch
from mitl.retrieval.vectors import Floats, Vectors, bounded, writeable

_CPU_MEMORY = 1 << 28


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
