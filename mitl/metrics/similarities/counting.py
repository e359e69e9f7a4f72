"""How many items of a tile of similarities come before chosen items: the counts that ranks are made of.

A tile is (n, m) similarities with the queries along one axis and items of the gallery along the other. An item comes
before another one when it is more similar, or as similar and of the smaller position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mitl.metrics.positives import Ids

Axis = Literal[0, 1]
"""Where the queries of a tile are."""
Rescore = Callable[[Ids, Ids], NDArray[Any]]
"""The true similarities of n pairs of a query and a gallery position, in order of queries, none twice."""

TILE = 510, 2040
"""Queries and items of a tile: a few MB (measured best), and as many flags as can be added up at once."""
_CELLS = 1 << 20
_WORD, _MOST_WORDS = 8, 255
"""Flags are added eight at a time, as bytes of one integer, which overflow after so many."""


class Scratch:
    """Memory for flags, kept by one thread: large arrays that come and go cost more than comparing."""

    def __init__(self) -> None:
        self._flags = np.empty(0, dtype=np.bool_)

    def flags(self, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        """A contiguous array; its content is whatever was there."""
        size = shape[0] * shape[1]
        if len(self._flags) < size:
            self._flags = np.empty(size, dtype=np.bool_)
        return self._flags[:size].reshape(shape)


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """Similarities of the queries ``part`` with the gallery positions ``span``."""

    cells: NDArray[Any]
    axis: Axis
    part: slice
    span: slice

    def by_query(self, queries: Ids) -> NDArray[Any]:
        """(n, items) of the queries at these places of the tile."""
        return self.cells[queries] if self.axis == 0 else np.ascontiguousarray(self.cells[:, queries].T)


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """Items of the gallery, each for a query of a tile, whose ranks are wanted: (p,) each, in order of queries."""

    queries: Ids
    """Places of the queries within the tile."""
    positions: Ids
    """In the gallery, within the tile or not."""
    similarities: NDArray[Any]
    """The true ones."""
    low: NDArray[Any]
    """Between ``low`` and ``up`` a number of the tile leaves open whether that item comes before."""
    up: NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Of each chosen item, (p,): items that surely come before it, and further ones that may."""

    sure: Ids
    doubtful: Ids


def count_before(tile: Tile, chosen: Chosen, scratch: Scratch) -> Counts:
    """Compare the chosen items with all items of the tile; an item itself is in neither count."""
    sure, doubtful = np.zeros((2, len(chosen.queries)), np.int64)
    for entries, cells, axis, among in _layers(tile, chosen):
        low, up = chosen.low[entries], chosen.up[entries]
        if axis == 0:
            low, up = low[:, None], up[:, None]
        flags = scratch.flags(cells.shape)
        above = _add_up(np.greater(cells, up, out=flags), axis)
        maybe = _add_up(np.greater_equal(cells, low, out=flags), axis)
        sure[entries[among]] = above[among]
        doubtful[entries[among]] = (maybe - above)[among]
    doubtful -= (chosen.positions >= tile.span.start) & (chosen.positions < tile.span.stop)
    return Counts(sure, doubtful)


def settle(tile: Tile, chosen: Chosen, counts: Counts, rescore: Rescore | None) -> Ids:
    """Of each chosen item the items of the tile that come before it, (p,), the doubtful ones looked at one by one.

    Args:
        rescore: None where the tile holds true similarities, so that only equal ones are in doubt.
    """
    before = counts.sure.copy()
    there = np.arange(tile.span.start, tile.span.stop)
    for some in _some(np.flatnonzero(counts.doubtful > 0), len(there)):
        near, own = tile.by_query(chosen.queries[some]), chosen.positions[some]
        close = (near >= chosen.low[some, None]) & (near <= chosen.up[some, None])
        if rescore is None:
            before[some] += (close & (there < own[:, None])).sum(axis=1)
            continue
        number, column = np.nonzero(close)
        other = there[column] != own[number]
        number, position = number[other], there[column[other]]
        keys = (chosen.queries[some[number]] + tile.part.start) * tile.span.stop + position
        pairs, back = np.unique(keys, return_inverse=True)
        true = rescore(*np.divmod(pairs, tile.span.stop))[back]
        similarity = chosen.similarities[some[number]]
        first = (true > similarity) | ((true == similarity) & (position < own[number]))
        before[some] += np.bincount(number[first], minlength=len(some))
    return before


def _layers(tile: Tile, chosen: Chosen) -> Iterator[tuple[Ids, NDArray[Any], Axis, Any]]:
    """The first chosen item of all queries, then the second of those that have two, and so on.

    Gives the entries of ``chosen``, one for each query of the cells; the cells; where their queries are; and which of
    these entries to listen to.
    """
    if not len(chosen.queries):
        return
    each = np.bincount(chosen.queries, minlength=tile.cells.shape[tile.axis])
    starts = np.cumsum(each) - each
    some = np.flatnonzero(each)
    if 2 * len(some) >= len(each):
        # A query without chosen items borrows an entry and is not listened to: copying the others costs more.
        yield np.minimum(starts, len(chosen.queries) - 1), tile.cells, tile.axis, some
    else:
        yield starts[some], tile.by_query(some), 0, slice(None)
    several = np.flatnonzero(each > 1)
    several = several[np.argsort(-each[several], kind="stable")]
    cells = tile.by_query(several)
    for layer in range(1, int(each.max())):
        count = int(np.count_nonzero(each[several] > layer))
        yield starts[several[:count]] + layer, cells[:count], 0, slice(None)


def _add_up(flags: NDArray[np.bool_], axis: Axis) -> Ids:
    """How many flags of each query are set, (queries,)."""
    if flags.shape[1] % _WORD:
        return np.asarray(np.count_nonzero(flags, axis=1 - axis))
    words, step = flags.view(np.uint64), _MOST_WORDS
    if axis == 0:
        sums = [np.add.reduce(words[:, at : at + step], axis=1) for at in range(0, words.shape[1], step)]
        return np.asarray(np.stack(sums, axis=1).view(np.uint8).sum(axis=1, dtype=np.int64))
    sums = [np.add.reduce(words[at : at + step], axis=0) for at in range(0, len(words), step)]
    return np.asarray(np.stack(sums).view(np.uint8).sum(axis=0, dtype=np.int64))


def _some(entries: Ids, width: int) -> Iterator[Ids]:
    step = max(1, _CELLS // max(1, width))
    for start in range(0, len(entries), step):
        yield entries[start : start + step]
