"""The ranks of chosen items among all, from embeddings or similarities tile by tile; no ranking is made.

Exact, and the same for every tile: the ranks are those of the canonical similarity (``mitl.retrieval``) with ties to
the smaller position. A float32 product with a proven error bound decides nearly all comparisons, the others are
rescored; where those are many, the tile is multiplied again in float64.

A tile is (n, m) similarities with the queries along one axis and items of the gallery along the other. An item comes
before another one when it is more similar, or as similar and of the smaller position: ranks are made of such counts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError, RetrievalError
from mitl.metrics.positives import Ids
from mitl.retrieval.processor import count, one_thread_of_blas
from mitl.retrieval.products import Buffers, NumpyProduct, Operand, at_most
from mitl.retrieval.rescoring import Rescorer
from mitl.retrieval.vectors import Vectors, gamma

Axis = Literal[0, 1]
"""Where the queries of a tile are."""
Rescore = Callable[[Ids, Ids], NDArray[Any]]
"""The true similarities of n pairs of a query and a gallery position, in order of queries, none twice."""

TILE = 510, 2040
"""Queries and items of a tile: a few MB (measured best), and as many flags as can be added up at once."""
_CELLS = 1 << 20
_WORD, _MOST_WORDS = 8, 255
"""Flags are added eight at a time, as bytes of one integer, which overflow after so many."""
_CROWDED = 16
"""Pairs of a tile per doubtful one, below which multiplying all of it again is cheaper."""
_ANY = np.iinfo(np.int64).max


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
class SimilarityTile:
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
class RankCounts:
    """Of each chosen item, (p,): items that surely come before it, and further ones that may."""

    sure: Ids
    doubtful: Ids


def count_before(tile: SimilarityTile, chosen: Chosen, scratch: Scratch) -> RankCounts:
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
    return RankCounts(sure, doubtful)


def settle(tile: SimilarityTile, chosen: Chosen, counts: RankCounts, rescore: Rescore | None) -> Ids:
    """Of each chosen item the items of the tile that come before it, (p,), the doubtful ones looked at one by one.

    Args:
        rescore: None where the tile holds true similarities, so that only equal ones are in doubt.
    """
    before = counts.sure.copy()
    columns = np.arange(tile.span.start, tile.span.stop)
    for some in _some(np.flatnonzero(counts.doubtful > 0), len(columns)):
        near, own = tile.by_query(chosen.queries[some]), chosen.positions[some]
        close = (near >= chosen.low[some, None]) & (near <= chosen.up[some, None])
        if rescore is None:
            before[some] += (close & (columns < own[:, None])).sum(axis=1)
            continue
        number, column = np.nonzero(close)
        other = columns[column] != own[number]
        number, position = number[other], columns[column[other]]
        keys = (chosen.queries[some[number]] + tile.part.start) * tile.span.stop + position
        pairs, back = np.unique(keys, return_inverse=True)
        true = rescore(*np.divmod(pairs, tile.span.stop))[back]
        similarity = chosen.similarities[some[number]]
        first = (true > similarity) | ((true == similarity) & (position < own[number]))
        before[some] += np.bincount(number[first], minlength=len(some))
    return before


def _layers(tile: SimilarityTile, chosen: Chosen) -> Iterator[tuple[Ids, NDArray[Any], Axis, Any]]:
    """The first chosen item of all queries, then the second of those that have two, and so on.

    Gives the entries of ``chosen``, one for each query of the cells; the cells; where their queries are; and which of
    these entries to listen to.
    """
    if not len(chosen.queries):
        return
    counts = np.bincount(chosen.queries, minlength=tile.cells.shape[tile.axis])
    starts = np.cumsum(counts) - counts
    some = np.flatnonzero(counts)
    if 2 * len(some) >= len(counts):
        # A query without chosen items borrows an entry and is not listened to: copying the others costs more.
        yield np.minimum(starts, len(chosen.queries) - 1), tile.cells, tile.axis, some
    else:
        yield starts[some], tile.by_query(some), 0, slice(None)
    several = np.flatnonzero(counts > 1)
    several = several[np.argsort(-counts[several], kind="stable")]
    cells = tile.by_query(several)
    for layer in range(1, int(counts.max())):
        count = int(np.count_nonzero(counts[several] > layer))
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


@dataclass(frozen=True, slots=True, eq=False)
class WantedRanks:
    """The gallery positions whose ranks are wanted, query ``i``'s from ``offsets[i]`` to ``offsets[i + 1]``."""

    offsets: Ids
    """(Q + 1,)"""
    rows: Ids
    """(P,) the query of each."""
    positions: Ids
    """(P,)"""
    similarities: NDArray[Any]
    """(P,) the true ones."""
    caps: Ids
    """(P,) ranks beyond these need not be exact: what is given there is some rank beyond."""

    @classmethod
    def of(
        cls,
        rows: Ids,
        positions: Ids,
        queries: int,
        similarities: NDArray[Any] | None = None,
        caps: Ids | None = None,
    ) -> WantedRanks:
        """Of pairs in order of rows, none twice; without caps all ranks are exact."""
        offsets = np.searchsorted(rows, np.arange(queries + 1)).astype(np.int64)
        of_pairs = np.zeros(len(rows), np.float32) if similarities is None else similarities
        return cls(offsets, rows, positions, of_pairs, np.full(len(rows), _ANY) if caps is None else caps)

    def inside(self, part: slice) -> slice:
        """Where those of some queries are."""
        return slice(int(self.offsets[part.start]), int(self.offsets[part.stop]))


def ranks_of_vectors(
    left: Vectors,
    right: Vectors,
    there: WantedRanks | None,
    back: WantedRanks | None,
    *,
    tile: tuple[int, int] = TILE,
) -> tuple[Ids, Ids]:
    """Ranks of items of the right among all for queries of the left, and the other way, from one pass of products.

    Args:
        there: positions in ``right`` for each item of ``left``; None where that direction is not wanted.
        back: positions in ``left`` for each item of ``right``.

    Returns:
        (P,) ranks from 1 for each direction, in the order of ``positions``.

    Raises:
        MetricError: an embedding is not finite; the message names the item.
    """
    try:
        return _Ranking(left, right).run(there, back, tile)
    except RetrievalError as error:
        raise MetricError(str(error)) from error


def ranks_of_blocks(blocks: Iterable[NDArray[Any]], wanted: WantedRanks, gallery: int) -> Ids:
    """Ranks of items by similarities as they are given, ties to the smaller position.

    Args:
        blocks: (n, G) similarities of the queries in their order, some at a time; ``wanted`` need not know them.

    Raises:
        MetricError: a block is of another width, there are more or fewer rows than queries, or a similarity is NaN.
    """
    queries, start, scratch = len(wanted.offsets) - 1, 0, Scratch()
    ranks = np.ones(len(wanted.positions), np.int64)
    for block in blocks:
        block = np.asarray(block)
        part = slice(start, start + len(block))
        if block.ndim != 2 or block.shape[1] != gallery or part.stop > queries:
            raise MetricError(
                f"similarities are {block.shape} from row {start} on, but {queries} query ids and {gallery} "
                "gallery ids were given"
            )
        if block.dtype.kind not in "fiu":
            raise MetricError(f"similarities are of type {block.dtype}; give numbers")
        for rows in _spans(len(block), TILE[0]):
            _rank_rows(block[rows], slice(start + rows.start, start + rows.stop), wanted, ranks, scratch)
        start = part.stop
    if start != queries:
        raise MetricError(f"{start} rows of similarities were given for {queries} query ids")
    return ranks


def _rank_rows(block: NDArray[Any], part: slice, wanted: WantedRanks, ranks: Ids, scratch: Scratch) -> None:
    inside = wanted.inside(part)
    rows, positions = wanted.rows[inside] - part.start, wanted.positions[inside]
    similarities = block[rows, positions]
    chosen = Chosen(rows, positions, similarities, similarities, similarities)
    for span in _spans(block.shape[1], TILE[1]):
        cells = np.ascontiguousarray(block[:, span])
        _refuse_nan(cells, part.start, span.start)
        tile = SimilarityTile(cells, 0, part, span)
        ranks[inside] += settle(tile, chosen, count_before(tile, chosen, scratch), None)


def _refuse_nan(cells: NDArray[Any], row: int, column: int) -> None:
    # A sum is NaN where a number is, or where infinities of both signs are; only then is it worth a closer look.
    with np.errstate(over="ignore", invalid="ignore"):
        if cells.dtype.kind != "f" or not np.isnan(cells.sum()):
            return
    nans = np.argwhere(np.isnan(cells))
    if len(nans):
        raise MetricError(
            f"the similarity in row {row + nans[0][0]} and column {column + nans[0][1]} (from 0) is NaN; "
            "compute it again, or give -inf where a pair has none"
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """One direction: what is wanted of its queries, and what was counted so far."""

    wanted: WantedRanks
    before: Ids
    rescore: Rescore
    axis: Axis


_Block = tuple[slice, Operand]


class _Ranking:
    """One pass over all tiles of ``left`` x ``right``."""

    def __init__(self, left: Vectors, right: Vectors) -> None:
        self._left, self._right, self._product = left, right, NumpyProduct()
        self._lock, self._local = threading.Lock(), threading.local()

    def run(
        self, there: WantedRanks | None, back: WantedRanks | None, tile: tuple[int, int]
    ) -> tuple[Ids, Ids]:
        """Ranks of what is wanted in both directions."""
        sides = self._side(there, 0), self._side(back, 1)
        asked = [side for side in sides if len(side.before)]
        with one_thread_of_blas(), ThreadPoolExecutor(min(count(), self._product.threads)) as pool:
            lefts = list(pool.map(partial(self._load, self._left, "left"), _spans(len(self._left), tile[0])))
            spans = _spans(len(self._right), tile[1])
            rights = list(pool.map(partial(self._load, self._right, "right"), spans))
            work = [(row, column, asked) for column in rights for row in lefts] if asked else []
            for _ in pool.map(self._count, work):
                pass
        return sides[0].before + 1, sides[1].before + 1

    def _side(self, wanted: WantedRanks | None, axis: Axis) -> _Side:
        pair = (self._left, self._right) if axis == 0 else (self._right, self._left)
        nothing = np.zeros(0, np.int64)
        wanted = wanted or WantedRanks.of(nothing, nothing, len(pair[0]))
        return _Side(wanted, np.zeros(len(wanted.rows), np.int64), Rescorer(*pair).similarities, axis)

    def _load(self, vectors: Vectors, side: Literal["left", "right"], part: slice) -> _Block:
        return part, self._product.load(vectors, part, side)

    def _count(self, work: tuple[_Block, _Block, list[_Side]]) -> None:
        row, column, sides = work
        if not hasattr(self._local, "buffers"):
            self._local.buffers, self._local.scratch = Buffers(), Scratch()
        near = self._product.multiply(row[1], column[1], self._local.buffers).cells
        for side in sides:
            part = (row, column)[side.axis][0]
            inside = side.wanted.inside(part)
            # What is beyond its cap already need not be counted any further.
            open_ = np.flatnonzero(side.before[inside] < side.wanted.caps[inside]) + inside.start
            before = self._before(near, side, open_, row, column)
            with self._lock:
                side.before[open_] += before

    def _before(self, near: NDArray[Any], side: _Side, entries: Ids, row: _Block, column: _Block) -> Ids:
        (part, query), (span, item) = (row, column) if side.axis == 0 else (column, row)
        tile, wanted, scratch = SimilarityTile(near, side.axis, part, span), side.wanted, self._local.scratch
        rows, similarities = wanted.rows[entries] - part.start, wanted.similarities[entries]
        # Between these near values the true one may be above ``similarities`` or below.
        errors = self._product.errors(query, item)[rows]
        doubt = at_most(similarities - errors), -at_most(-(similarities + errors))
        chosen = Chosen(rows, wanted.positions[entries], similarities, *doubt)
        counts = count_before(tile, chosen, scratch)
        if counts.doubtful.sum() * _CROWDED <= near.size:
            return settle(tile, chosen, counts, side.rescore)
        tile = SimilarityTile(self._true(row, column), side.axis, part, span)
        chosen = Chosen(rows, chosen.positions, similarities, similarities, similarities)
        return settle(tile, chosen, count_before(tile, chosen, scratch), None)

    def _true(self, row: _Block, column: _Block) -> NDArray[np.float32]:
        """Canonical similarities of a whole tile."""
        best = np.full((len(row[1]), len(column[1])), -np.inf)
        for query in row[1].data:
            wide = query.astype(np.float64)
            for item in column[1].data:
                np.maximum(best, wide @ item.T.astype(np.float64), out=best)
        # Both the sum of BLAS and that of the definition err by so much at most.
        error = 2.01 * gamma(self._left.width, 2.0**-53) * self._left.longest * self._right.longest
        low, high = (best - error).astype(np.float32), (best + error).astype(np.float32)
        rows, columns = np.nonzero(low != high)
        if len(rows):
            rescore = Rescorer(self._left, self._right).similarities
            low[rows, columns] = rescore(rows + row[0].start, columns + column[0].start)
        return low


def _spans(count: int, step: int) -> Iterator[slice]:
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))
