"""Exact search among vectors by tiles: multiply, let through whoever may belong to the best, rescore those."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.progress import Advance
from mitl.retrieval.guesses import Guesses
from mitl.retrieval.processor import exactly, loaded_torch, one_thread_of_blas
from mitl.retrieval.products import MOST_SHARE, Buffers, Floors, Operand, Product, Reached, Side, Tile
from mitl.retrieval.rescoring import CHUNK_BYTES, Rescorer
from mitl.retrieval.survivors import Survivors
from mitl.retrieval.vectors import Floats, Vectors

Submit = Callable[..., "Future[Any]"]

_FIRST_SHARPENING, _SHARPENING = 512, 2
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
_TILES = 64
"""Tiles of a span from which on more gain nothing: threads wait for each other at its end."""


@dataclass(frozen=True, slots=True)
class MemoryCost:
    """What things take in memory, in bytes."""

    cell: int
    """A pair of a tile."""
    query: int
    """A query that is loaded, with its survivors."""
    item: int
    """An item of the gallery that is loaded."""
    spans: int = 2
    """How many spans are in memory at a time: one is searched while the next is loaded."""


@dataclass(frozen=True, slots=True)
class TilePlan:
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
    queries: int, items: int, tile: tuple[int, int], cost: MemoryCost, *, threads: int, block_bytes: int
) -> TilePlan:
    """A plan within about ``block_bytes``; at least one query, one item and one thread.

    A third of the memory each is for tiles, for the queries of a group with their survivors, and for loaded items.
    """
    share = max(1, block_bytes // 3)
    most_queries, most_items = share // max(1, cost.query), share // max(1, cost.item * cost.spans)
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
    return TilePlan(threads, rows, columns, group, span, chunk)


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


@dataclass(frozen=True, slots=True, eq=False)
class Best:
    """The best items of each query: gallery positions (Q, k) int64 and canonical similarities (Q, k)."""

    positions: NDArray[np.int64]
    similarities: Floats

    @classmethod
    def empty(cls, queries: int, k: int) -> Best:
        """Room for so many."""
        return cls(np.empty((queries, k), np.int64), np.empty((queries, k), np.float32))


@dataclass(slots=True, eq=False)
class LoadedBlock:
    """Some items of one side: loaded for a product, with the survivors of their own search where there is one."""

    part: slice
    operand: Operand
    survivors: Survivors | None
    guesses: Guesses | None = None
    begun: int = 0
    """Items of the other side that its survivors may know already."""
    seen: int = 0
    sharpen_at: int = _FIRST_SHARPENING

    def finish(self, best: Best) -> None:
        """Put the best of each item where they belong, and let go of the survivors."""
        assert self.survivors is not None
        best.positions[self.part], best.similarities[self.part] = self.survivors.finish()
        if self.guesses is not None:
            self.guesses.check(len(self.operand), self.survivors.missed + self.part.start)
        self.survivors = None


@dataclass(frozen=True, slots=True, eq=False)
class Half:
    """One side of a search, whose items look for their best among the other's, or not."""

    vectors: Vectors
    side: Side
    best: Best | None
    places: int
    """Survivors that an item can hold."""
    rescorer: Rescorer
    guesses: Guesses | None = None

    def load(self, product: Product, part: slice) -> LoadedBlock:
        """Some items as the product wants them."""
        operand = product.load(self.vectors, part, self.side)
        if self.best is None:
            return LoadedBlock(part, operand, None)
        rescorer = self.rescorer.for_rows(np.arange(part.start, part.stop))
        k = self.best.positions.shape[1]
        return LoadedBlock(part, operand, Survivors(len(operand), k, self.places, rescorer), self.guesses)


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
    plan: TilePlan
    advance: Advance
    _local: threading.local = field(default_factory=threading.local)

    def run(self, k: int, k_back: int | None = None) -> tuple[Best, ...]:
        """The best ``k`` of the right for each item of the left and, with ``k_back``, the other way too.

        For one way the left is gone through by groups; for both ways its survivors stay to the end.
        """
        best = Best.empty(len(self.left), k)
        back = None if k_back is None else Best.empty(len(self.right), k_back)
        with ExitStack() as settings:
            settings.enter_context(one_thread_of_blas())
            if loaded_torch() is not None:
                settings.enter_context(exactly())  # once, instead of for each product
            pool = settings.enter_context(ThreadPoolExecutor(self.plan.threads))
            try:
                whole = slice(0, len(self.left))
                for group in cut(0, len(self.left), self.plan.group) if back is None else [whole]:
                    self._pass(pool.submit, group, best, back)
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return (best,) if back is None else (best, back)

    def _pass(self, submit: Submit, group: slice, best: Best, back: Best | None) -> None:
        """All items of the right go by a group of the left."""
        step, product, chunk = 0, self.ladder[0], self.plan.chunk_bytes
        left = Half(self.left, "left", best, self.places[0], Rescorer(self.left, self.right, chunk))
        guesses, back_to = Guesses(len(self.left)), Rescorer(self.right, self.left, chunk)
        right = Half(self.right, "right", back, self.places[1], back_to, guesses)
        lefts = [submit(left.load, product, part) for part in cut(group.start, group.stop, self.plan.rows)]
        most = min(self.plan.span, self.plan.columns * -(-_TILES // len(lefts)))
        spans = list(cut(0, len(self.right), most, self.plan.columns))

        def ahead(number: int) -> list[Future[LoadedBlock]]:
            parts = column_blocks(spans[number], self.plan.columns) if number < len(spans) else []
            return [submit(right.load, product, part) for part in parts]

        rights, rows, ends = ahead(0), [loading.result() for loading in lefts], []

        def begun(columns: list[LoadedBlock]) -> list[Future[int]]:
            # Threads meet neither in a row nor in a column, whose survivors take in one tile at a time.
            order = (
                (rows[(turn + n) % len(rows)], n) for turn in range(len(rows)) for n in range(len(columns))
            )
            return [submit(self._tile, product, row, columns[n]) for row, n in order]

        flowing: list[Future[int]] = []
        for number, span in enumerate(spans):
            columns = [loading.result() for loading in rights]
            if back is None:
                # The next span is loaded before this one's tiles, which nobody waits for: no thread is idle at its end.
                rights = ahead(number + 1)
                done, flowing, seen = flowing, begun(columns), span.start
                self._awaited(done)
            else:
                done, rights, seen = begun(columns), ahead(number + 1), span.stop
                self._awaited(done)
                ends += [submit(column.finish, back) for column in columns]
            if step + 1 < len(self.ladder) and seen and self._crowded(rows, seen):
                step += 1
                product = self.ladder[step]
                for loading in rights:
                    loading.cancel()
                self._awaited(flowing)
                flowing, rights = [], ahead(number + 1)
                for row, again in [(row, submit(product.load, self.left, row.part, "left")) for row in rows]:
                    row.operand = again.result()
        self._awaited(flowing)
        self._local = threading.local()  # tiles' memory is free for the rankings
        ends += [submit(row.finish, best) for row in rows]
        for end in ends:
            end.result()
        if back is not None:
            self._once_more(submit, product, rows, guesses.missed, back)

    def _once_more(
        self,
        submit: Submit,
        product: Product,
        rows: list[LoadedBlock],
        missed: NDArray[np.int64],
        back: Best,
    ) -> None:
        """The best of those items of the right whose floors were guessed too high."""
        for part in cut(0, len(missed), self.plan.columns):
            some = missed[part]
            vectors, found = self.right.only(some), Best.empty(len(some), back.positions.shape[1])
            rescorer = Rescorer(vectors, self.left, self.plan.chunk_bytes)
            column = Half(vectors, "right", found, self.places[1], rescorer).load(
                product, slice(0, len(some))
            )
            for tile in [submit(self._tile, product, replace(row, survivors=None), column) for row in rows]:
                tile.result()
            column.finish(found)
            back.positions[some], back.similarities[some] = found.positions, found.similarities

    def _awaited(self, tiles: Iterable[Future[int]]) -> None:
        for tile in tiles:
            self.advance(tile.result())

    def _tile(self, product: Product, row: LoadedBlock, column: LoadedBlock) -> int:
        """Multiply one tile and offer it to the survivors of its rows, its columns or both; how many pairs it has."""
        if not hasattr(self._local, "buffers"):
            self._local.buffers = Buffers()
        sides, pairs = _asking(row, column), len(row.operand) * len(column.operand)
        most = max(len(row.operand), len(column.operand), _MOST, pairs // MOST_SHARE)
        whole = slice(0, len(column.operand))
        sifted = None
        if all(asks.block.seen for asks in sides):
            floors = {asks.side: Floors(asks.survivors.floors(), asks.side, whole, most) for asks in sides}
            sifted = product.sifted(row.operand, column.operand, floors, self._local.buffers)
        if sifted is not None:
            for asks in sides:
                asks.take(product, [sifted[asks.side]])
            return pairs
        tile = product.multiply(row.operand, column.operand, self._local.buffers)
        for asks in sides:
            asks.take(product, asks.reached(product, tile, most))
        return pairs

    def _crowded(self, rows: list[LoadedBlock], seen: int) -> bool:
        """Whether rescoring costs so much that a more precise product would be cheaper."""
        rescored = sum(row.survivors.rescored for row in rows if row.survivors is not None)
        return 2 * RESCORING * rescored > seen * sum(len(row.operand) for row in rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Asking:
    """One side of a tile whose items look for their best in it."""

    side: Side
    block: LoadedBlock
    partner: LoadedBlock
    survivors: Survivors

    def reached(self, product: Product, tile: Tile, most: int) -> Iterator[Reached]:
        """Who of the tile may reach the floors."""
        if not self.block.seen and (seeds := product.seeds(tile, self.survivors.k, self.side)) is not None:
            self.survivors.reach(seeds)
        return reached_by_parts(
            len(tile.right),
            lambda part: product.reached(tile, Floors(self.survivors.floors(), self.side, part, most)),
        )

    def take(self, product: Product, found: Iterable[Reached]) -> None:
        """Give them to the survivors."""
        block, partner = self.block.operand, self.partner
        errors = block.by_item(product.errors(block, partner.operand))
        self.block.begun += len(partner.operand)
        for rows, columns, highest in found:
            items, others = (rows, columns) if self.side == "left" else (columns, rows)
            self.survivors.add(items, others + partner.part.start, highest, errors, product.rounding)
        self.block.seen += len(partner.operand)
        if self.block.seen >= self.block.sharpen_at:
            self.block.sharpen_at = _SHARPENING * self.block.seen
            guesses = self.block.guesses
            rank = guesses.rank(self.survivors.k, self.block.begun) if guesses is not None else 0
            self.survivors.sharpen(_SHARP, rank)


def _asking(row: LoadedBlock, column: LoadedBlock) -> list[_Asking]:
    sides: list[tuple[Side, LoadedBlock, LoadedBlock]] = [("left", row, column), ("right", column, row)]
    return [
        _Asking(side, block, partner, block.survivors)
        for side, block, partner in sides
        if block.survivors is not None
    ]


def reached_by_parts(columns: int, reached: Callable[[slice], Reached | None]) -> Iterator[Reached]:
    """What ``reached`` gives for some columns; where it gives None, since too many are, for their halves.

    Their places would need more memory than the tile, and floors rise from one half to the next.
    """
    parts = [slice(0, columns)]
    while parts:
        part = parts.pop()
        pairs = reached(part)
        if pairs is None:
            middle = (part.start + part.stop) // 2
            parts += [slice(middle, part.stop), slice(part.start, middle)]
        else:
            yield pairs
