"""Exact search cut into tiles of queries x gallery, and the tiles' rankings put together again.

The top k of everything is the top k of the tiles' top k. Similarities are canonical, so that neither the cut nor the
order in which tiles arrive changes a byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from annotators.base import Encoded, Ranking
from mitl.records import AnnotatorKind

VECTOR_KINDS = (AnnotatorKind.INNER_PRODUCT, AnnotatorKind.MULTI_VECTOR)
"""Kinds whose similarities follow from the vectors alone."""

TILE_QUERIES, TILE_ITEMS = 8192, 65536
"""About half a second of two cores at 512 numbers an item."""
_JOINT_SHRINK = 4
"""Both sides are so much shorter where an annotator compares pairs itself; still multiples of ``scoring.BLOCK``."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Some rows of the queries and some of the gallery."""

    number: int
    queries: slice
    gallery: slice

    @property
    def pairs(self) -> int:
        """How many comparisons it takes."""
        return int((self.queries.stop - self.queries.start) * (self.gallery.stop - self.gallery.start))

    @property
    def turned(self) -> Tile:
        """The same tile seen from the other side."""
        return Tile(self.number, self.gallery, self.queries)


def tile_shape(kind: AnnotatorKind) -> tuple[int, int]:
    """Queries and items of one tile."""
    if kind in VECTOR_KINDS:
        return TILE_QUERIES, TILE_ITEMS
    return TILE_QUERIES // _JOINT_SHRINK, TILE_ITEMS // _JOINT_SHRINK


def tiles(queries: int, items: int, shape: tuple[int, int]) -> Iterator[Tile]:
    """All of queries x gallery, one gallery block after the other, so that its vectors travel once."""
    number = 0
    for first in range(0, items, shape[1]):
        for start in range(0, queries, shape[0]):
            yield Tile(
                number,
                slice(start, min(start + shape[0], queries)),
                slice(first, min(first + shape[1], items)),
            )
            number += 1


class Merger:
    """The best k of each query over the tiles seen so far, (Q, k)."""

    def __init__(self, queries: Encoded, k: int) -> None:
        self._ids = np.asarray(queries.ids, np.int64)
        self._k = k
        self._best: dict[int, Ranking] = {}

    def add(self, tile: Tile, found: Ranking) -> None:
        """Take in one tile's ranking."""
        known = self._best.get(tile.queries.start)
        self._best[tile.queries.start] = found if known is None else merged(known, found, self._k)

    def ranking(self) -> Ranking:
        """Every query's k best, once all tiles are in."""
        parts = [self._best[start] for start in sorted(self._best)]
        if not parts:
            empty = np.empty((0, self._k))
            return Ranking(self._ids, empty.astype(np.int64), empty.astype(np.float32))
        items = np.concatenate([part.item_ids for part in parts])
        return Ranking(self._ids, items, np.concatenate([part.similarities for part in parts]))


def merged(one: Ranking, other: Ranking, k: int) -> Ranking:
    """The k best of two rankings of the same queries over different items, in canonical order."""
    items = np.concatenate([one.item_ids, other.item_ids], axis=1)
    similarities = np.concatenate([one.similarities, other.similarities], axis=1)
    order = np.lexsort((items, -similarities), axis=1)[:, :k]
    return Ranking(
        one.query_ids,
        np.take_along_axis(items, order, axis=1),
        np.take_along_axis(similarities, order, axis=1),
    )
