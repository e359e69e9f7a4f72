"""Exact search among vectors by tiles: multiply, let through whoever may belong to the best, rescore those."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.progress import Advance
from mitl.retrieval.processor import exactly, loaded_torch, one_thread_of_blas
from mitl.retrieval.products import MOST_SHARE, Buffers, Floors, Operand, Product, Reached, Side, Tile
from mitl.retrieval.rescoring import CHUNK_BYTES, Rescorer
from mitl.retrieval.survivors import Survivors
from mitl.retrieval.vectors import Floats, Vectors

Submit = Callable[..., "Future[Any]"]

_FIRST_SHARPENING, _SHARPENING = 1024, 2
"""Items after which bounds are sharpened first, and how many times more until the next time."""
_SHARP = 2.0
"""Survivors per row, in units of k, up to which sharpening gains nothing."""
_MOST = 4096
"""Newcomers that are taken in at once from a small tile."""
RESCORING = 40
"""What one number of a rescored pair costs, in multiply-adds of the float32 product (measured 30 to 60)."""


_ROUND = 128
"""Columns come in multiples of it where there are enough: products look at chunks."""
_KEY_BYTES = 20
"""Memory for each place of a survivor: its key, and the key once more while rows are sorted."""
_LEAST_TILE = 1 << 16
"""Pairs of a tile below which one more thread gains nothing."""
_LEAST_ROWS = 256
"""Queries of a tile below which loading the gallery costs more than multiplying it."""
_LOADS = 2
"""Spans in memory: one is searched while the next is loaded."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What things take in memory, in bytes."""

    cell: int
    """A pair of a tile."""
    query: int
    """A query that is loaded, with its survivors."""
    item: int
    """An item of the gallery that is loaded."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Tiles of ``rows`` x ``columns`` by so many threads, for ``group`` queries and ``span`` items at a time."""

    threads: int
    rows: int
    columns: int
    group: int
    span: int
    chunk_bytes: int
    """For rescoring, by each thread."""


def survivor_bytes(places: int) -> int:
    """Memory for the survivors of a query with so many places."""
    return places * _KEY_BYTES


def most_places(block_bytes: int) -> int:
    """Places for survivors that leave room for tiles of a sensible height."""
    return block_bytes // (3 * _LEAST_ROWS * _KEY_BYTES)


def plan(
    queries: int, items: int, tile: tuple[int, int], cost: Cost, *, threads: int, block_bytes: int
) -> Plan:
    """A plan within about ``block_bytes``; at least one query, one item and one thread.

    A third of the memory each is for tiles, for the queries of a group with their survivors, and for loaded items.
    """
    share = max(1, block_bytes // 3)
    most_queries, most_items = share // max(1, cost.query), share // max(1, cost.item * _LOADS)
    rows = max(1, min(tile[0], queries, most_queries))
    columns = max(1, min(tile[1], items, most_items))
    threads = max(1, min(threads, share // max(1, min(rows * columns, _LEAST_TILE) * cost.cell)))
    while rows * columns * cost.cell * threads > share and rows * columns > 1:
        if columns >= rows:
            columns = (columns + 1) // 2
        else:
            rows = (rows + 1) // 2
    group, span = max(rows, min(queries, most_queries)), max(columns, min(items, most_items))
    chunk = max(1, min(CHUNK_BYTES, share // (4 * threads)))
    return Plan(threads, rows, columns, group, span, chunk)


def cut(start: int, stop: int, most: int, multiple: int = 1) -> Iterator[slice]:
    """Parts of nearly equal size, none above ``most``, all but the last multiples of ``multiple`` where that fits."""
    count = -(-(stop - start) // most)
    if not count:
        return
    size = -(-(stop - start) // count)
    if multiple > 1 and -(-size // multiple) * multiple <= most:
        size = -(-size // multiple) * multiple
    for first in range(start, stop, size):
        yield slice(first, min(first + size, stop))


def column_blocks(span: slice, most: int) -> list[slice]:
    """The tiles' columns of a span."""
    return list(cut(span.start, span.stop, most, _ROUND))


@dataclass(slots=True, eq=False)
class Block:
    """Some items of one side: loaded for a product, with the survivors of their own search where there is one."""

    part: slice
    operand: Operand
    survivors: Survivors | None
    seen: int = 0
    sharpen_at: int = _FIRST_SHARPENING


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The best items of each query: gallery positions (Q, k) int64 and canonical similarities (Q, k)."""

    positions: NDArray[np.int64]
    similarities: Floats

    @classmethod
    def empty(cls, queries: int, k: int) -> Found:
        """Room for so many."""
        return cls(np.empty((queries, k), np.int64), np.empty((queries, k), np.float32))


@dataclass(slots=True, eq=False)
class Search:
    """One pass over all tiles of ``left`` x ``right``.

    Args:
        ladder: products to use, the cheapest first; the next one takes over where too many survive.
        places: survivors that an item of each side can hold.
    """

    left: Vectors
    right: Vectors
    ladder: Sequence[Product]
    places: tuple[int, int]
    plan: Plan
    advance: Advance
    _local: threading.local = field(default_factory=threading.local)
    _rescored: int = 0

    def one_way(self, k: int) -> Found:
        """The best k of the right side for each item of the left."""
        found = Found.empty(len(self.left), k)
        with self._pool() as submit:
            for group in cut(0, len(self.left), self.plan.group):
                self._pass(submit, group, found, None)
        return found

    def both_ways(self, k_left: int, k_right: int) -> tuple[Found, Found]:
        """The best of each side for each item of the other, from one pass of products."""
        found = Found.empty(len(self.left), k_left), Found.empty(len(self.right), k_right)
        with self._pool() as submit:
            self._pass(submit, slice(0, len(self.left)), *found)
        return found

    @contextmanager
    def _pool(self) -> Iterator[Submit]:
        with ExitStack() as settings:
            settings.enter_context(one_thread_of_blas())
            if loaded_torch() is not None:
                settings.enter_context(exactly())  # once, instead of for each product
            pool = settings.enter_context(ThreadPoolExecutor(self.plan.threads))
            try:
                yield pool.submit
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _pass(self, submit: Submit, group: slice, found: Found, other: Found | None) -> None:
        """All items of the right go by a group of the left."""
        step, product = 0, self.ladder[0]
        rescorer = Rescorer(self.left, self.right, self.plan.chunk_bytes)
        lefts = self._loads(
            submit, product, cut(group.start, group.stop, self.plan.rows), "left", found, rescorer
        )
        back = Rescorer(self.right, self.left, self.plan.chunk_bytes)
        spans = list(cut(0, len(self.right), self.plan.span, self.plan.columns))

        def ahead(number: int) -> list[Future[Block]]:
            if number >= len(spans):
                return []
            parts = column_blocks(spans[number], self.plan.columns)
            return self._loads(submit, product, parts, "right", other, back)

        rights, rows, ends = ahead(0), [one.result() for one in lefts], []
        for number in range(len(spans)):
            columns = [one.result() for one in rights]
            work = [submit(self._tile, product, row, column) for column in columns for row in rows]
            rights = ahead(number + 1)
            for one in work:
                self.advance(one.result())
            if other is not None:
                ends += [submit(_finish, column, other) for column in columns]
            if step + 1 < len(self.ladder) and self._crowded(rows, spans[number].stop):
                step += 1
                product = self.ladder[step]
                for one in rights:
                    one.cancel()
                rights = ahead(number + 1)
                for row, again in [(row, submit(product.load, self.left, row.part, "left")) for row in rows]:
                    row.operand = again.result()
        ends += [submit(_finish, row, found) for row in rows]
        for one in ends:
            one.result()

    def _loads(
        self,
        submit: Submit,
        product: Product,
        parts: Any,
        side: Side,
        found: Found | None,
        rescorer: Rescorer,
    ) -> list[Future[Block]]:
        return [submit(self._load, product, part, side, found, rescorer) for part in parts]

    def _load(
        self, product: Product, part: slice, side: Side, found: Found | None, rescorer: Rescorer
    ) -> Block:
        operand = product.load(self.left if side == "left" else self.right, part, side)
        if found is None:
            return Block(part, operand, None)

        places = self.places[0] if side == "left" else self.places[1]
        survivors = Survivors(len(operand), found.positions.shape[1], places, rescorer.for_block(part.start))
        return Block(part, operand, survivors)

    def _tile(self, product: Product, row: Block, column: Block) -> int:
        """Multiply one tile and offer it to the survivors of its rows, its columns or both; how many pairs it has."""
        if not hasattr(self._local, "buffers"):
            self._local.buffers = Buffers()
        tile = product.multiply(row.operand, column.operand, self._local.buffers)
        self._offer(product, tile, row, column, "left")
        self._offer(product, tile, row, column, "right")
        return len(row.operand) * len(column.operand)

    def _offer(self, product: Product, tile: Tile, row: Block, column: Block, side: Side) -> None:
        """Give the survivors of one side of a tile whoever may reach their floors."""
        block, partner = (row, column) if side == "left" else (column, row)
        survivors = block.survivors
        if survivors is None:
            return
        if not block.seen and (known := product.seeds(tile, survivors.k, side)) is not None:
            survivors.reach(known)
        errors = block.operand.by_item(product.errors(block.operand, partner.operand))
        shape = len(tile.left), len(tile.right)
        most = max(*shape, _MOST, shape[0] * shape[1] // MOST_SHARE)
        parts = [slice(0, shape[1])]
        while parts:
            part = parts.pop()
            found = product.reached(tile, Floors(survivors.floors(), side, part, most))
            if found is None:
                # Their places would need more memory than the tile: take halves, between which floors rise.
                parts += halves(part)
                continue
            rows, items, highest = found if side == "left" else _by_columns(found)
            survivors.add(rows, items + partner.part.start, highest, errors, product.rounding)
        block.seen += len(partner.operand)
        if block.seen >= block.sharpen_at:
            block.sharpen_at = _SHARPENING * block.seen
            survivors.sharpen(_SHARP)

    def _crowded(self, rows: list[Block], seen: int) -> bool:
        """Whether rescoring costs so much that a more precise product would be cheaper."""
        rescored = sum(row.survivors.rescored for row in rows if row.survivors is not None)
        return 2 * RESCORING * rescored > seen * sum(len(row.operand) for row in rows)


def halves(part: slice) -> list[slice]:
    """Both halves of some columns, the first one last."""
    middle = (part.start + part.stop) // 2
    return [slice(middle, part.stop), slice(part.start, middle)]


def _by_columns(found: Reached) -> Reached:
    """The same pairs seen from the columns, in their order."""
    order = np.argsort(found.columns.astype(np.uint32), kind="stable")
    return Reached(found.columns[order], found.rows[order], found.highest[order])


def _finish(block: Block, found: Found) -> None:
    assert block.survivors is not None
    found.positions[block.part], found.similarities[block.part] = block.survivors.finish()
    block.survivors = None
