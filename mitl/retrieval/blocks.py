"""How a search is cut into blocks so that it stays within its memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mitl.retrieval.rescoring import CHUNK_BYTES

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
