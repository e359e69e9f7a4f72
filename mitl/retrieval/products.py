"""Products of two blocks of vectors, one class per unit of the processor, each with its own error bound.

A product only has to be *near*: what it lets through is rescored (``mitl.retrieval.rescoring``), so a new one needs
an honest account of what it rounds, and no ranking changes by a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mitl.retrieval.processor import can_limit_blas, compiled_loops
from mitl.retrieval.vectors import UNIT, Doubles, Floats, Vectors, product_errors

Backend = Literal["auto", "numpy", "torch", "bf16", "int16", "int8", "cuda", "faiss"]
"""``mitl.settings.BACKENDS`` lists them."""

Side = Literal["left", "right"]

MANY_THREADS = 1 << 16
MOST_SHARE = 12
"""``Product.reached`` is asked for one of so many cells of a large tile at most."""
_SEEDS = 2048
"""Items from which a first floor is estimated."""


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A block of items as a product wants it, (K, n, D), and what making it so took away."""

    data: Any
    lengths: Doubles
    """(n,) upper bounds of the length of an item's longest vector."""
    losses: Doubles
    """(n,) upper bounds of the length of what rounding took from any of an item's vectors."""
    steps: Doubles = field(default_factory=lambda: np.ones(0))
    """(n,) what the integer 1 of an item stands for, where it is in integers."""
    places: Any = field(default_factory=lambda: slice(None))
    """Which item of the block each row is; all these arrays are in the order of the rows."""
    coarse: Operand | None = None
    """The same items with less precision, of a product that looks at these first."""
    factors: Any = None
    """(3, n) float32, of a product that adds its error bound in registers: ``steps`` and ``error_factors``."""

    def __len__(self) -> int:
        return len(self.lengths)

    def by_item(self, values: Doubles) -> Doubles:
        """Numbers of the rows (n,) in the order of the items."""
        out = np.empty_like(values)
        out[self.places] = values
        return out


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """The products of two blocks, in the form that their maker understands."""

    cells: Any
    left: Operand
    right: Operand

    def seen_from(self, side: Side) -> tuple[Operand, Operand]:
        """The block that asks, and its partner."""
        return (self.left, self.right) if side == "left" else (self.right, self.left)


@dataclass(frozen=True, slots=True, eq=False)
class Floors:
    """Which pairs of a tile are wanted: those whose canonical similarity may reach the floor of their row or column."""

    values: Doubles
    """(rows,) or (columns,) canonical similarities."""
    side: Side
    """Whose floors: the rows' (``left``) or the columns' (``right``)."""
    part: slice
    """A share of the columns; shares that together hold all columns find every pair once."""
    most: int
    """Where more pairs than so many reach, None is given instead."""


class Reached(NamedTuple):
    """Pairs of a tile that may reach a floor, in order of rows, with the highest that their similarity can be."""

    rows: NDArray[Any]
    columns: NDArray[Any]
    highest: NDArray[Any]


class Buffers:
    """Memory for tiles, kept by one thread from one tile to the next."""

    def __init__(self) -> None:
        self._flat: dict[str, NDArray[Any]] = {}
        self._made: dict[str, tuple[object, Any]] = {}

    def get(self, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """A contiguous array of this shape; its content is whatever was there."""
        needed = int(np.prod(shape))
        flat = self._flat.get(name)
        if flat is None or len(flat) < needed or flat.dtype != dtype:
            flat = self._flat[name] = np.empty(needed, dtype)
        return flat[:needed].reshape(shape)

    def kept(self, name: str, of: object, make: Callable[[], Any]) -> Any:
        """What ``make`` gave when this name was last asked for, if that was of the same."""
        entry = self._made.get(name)
        if entry is None or entry[0] != of:
            entry = self._made[name] = of, make()
        return entry[1]


class Product:
    """Inner products of all items of two blocks, the largest of K x L for each pair.

    A unit of the processor overrides ``load``, ``multiply``, ``near`` and ``reached``.
    """

    name = ""
    roundoff = UNIT
    """Unit roundoff of the sums."""
    rounding = 0.0
    """How far a value may be off relative to itself, beside what ``errors`` says."""
    cell_bytes = 0
    """Memory for each pair of a tile and each of its K x L products."""
    number_bytes = 0
    """Memory for each number of a loaded block."""
    loses = True
    """Whether loading takes so much away that more items survive than are asked for."""
    threads = MANY_THREADS
    """The most threads that gain anything."""
    tile = (1024, 2048)
    """The rows and columns from which on larger tiles gain nothing."""

    def load(self, vectors: Vectors, rows: slice, side: Side) -> Operand:
        """Some items as this product wants them; RetrievalError where one is not finite."""
        raise NotImplementedError

    def multiply(self, left: Operand, right: Operand, buffers: Buffers) -> Tile:
        """The tile of products; valid until the next call with these buffers."""
        raise NotImplementedError

    def near(self, tile: Tile, rows: slice, columns: slice) -> Floats:
        """The near similarities of a part of a tile, in the order of the operands' rows."""
        raise NotImplementedError

    def reached(self, tile: Tile, floors: Floors) -> Reached | None:
        """The pairs whose canonical similarity may reach their floor; None where they are more than ``floors.most``."""
        raise NotImplementedError

    def sifted(
        self, left: Operand, right: Operand, floors: Mapping[Side, Floors], buffers: Buffers
    ) -> dict[Side, Reached] | None:
        """What ``reached`` gives for the sides that have floors, of all columns and in any order, without a tile.

        None where this product makes tiles, or where more pairs than ``most`` reach.
        """
        return None

    def kth(self, tile: Tile, k: int, side: Side, seen: slice) -> Floats | None:
        """For each row (or column) a near similarity that at least k of its cells with the ``seen`` partners reach.

        None where there are fewer than 2 k cells.
        """
        if side == "left":
            return kth_of_chunks(self.near(tile, slice(None), seen), k)
        return kth_of_chunks(self.near(tile, seen, slice(None)).T, k)

    def seeds(self, tile: Tile, k: int, side: Side) -> Doubles | None:
        """For each row (or column) of a tile a number that the canonical similarities of at least k of its items reach.

        From the k-th best of the best of 4 k disjoint chunks; None where there are fewer than 2 k items.
        """
        seen = slice(0, max(_SEEDS, 4 * k))
        kth = self.kth(tile, k, side, seen)
        if kth is None:
            return None
        asking, partner = tile.seen_from(side)
        lowest = np.asarray(kth, np.float64)
        lowest = lowest - self.errors(asking, partner, seen) - self.rounding * np.abs(lowest)
        return asking.by_item(lowest)

    def errors(self, asking: Operand, partner: Operand, seen: slice = slice(None)) -> Doubles:
        """The bound of ``product_errors`` for each item of one block against all ``seen`` ones of the other, (n,)."""
        length, loss = partner.lengths[seen].max(keepdims=True), partner.losses[seen].max(keepdims=True)
        width = asking.data.shape[2]
        return product_errors(asking.lengths, asking.losses, length, loss, width, self.roundoff)[:, 0]

    def least_near(self, floors: Floors, errors: Doubles) -> Floats:
        """Near values, float32, below which nothing can reach the floors: rounding keeps the order of sums."""
        lowest = floors.values - errors
        return at_most(lowest * (1 - np.sign(lowest) * self.rounding))

    def reached_among(self, cells: Floats, tile: Tile, floors: Floors) -> Reached | None:
        """``reached`` for near similarities of float32 whose errors are alike for all pairs of a row or column."""
        errors = self.errors(*tile.seen_from(floors.side))
        pairs = compared(cells, self.least_near(floors, errors), floors)
        return pairs and self.with_highest(pairs, cells[pairs.rows, pairs.columns], errors, floors.side)

    def with_highest(self, found: Reached, values: NDArray[Any], errors: Doubles, side: Side) -> Reached:
        """The same pairs with the highest that similarities of these near values can be."""
        wide = values.astype(np.float64)
        pair_errors = errors[found.rows if side == "left" else found.columns]
        return found._replace(highest=wide + self.rounding * np.abs(wide) + pair_errors)


class FloatProduct(Product):
    """Tiles (rows, columns) of float32 in memory."""

    cell_bytes = 5
    number_bytes = 4
    loses = False

    def multiply(self, left: Operand, right: Operand, buffers: Buffers) -> Tile:
        """(rows, columns) float32."""
        best: Floats | None = None
        for query in left.data:
            for item in right.data:
                name = "best" if best is None else "other"
                out = buffers.get(name, (len(left), len(right)), np.float32)
                self._multiply(query, item, out)
                best = out if best is None else np.maximum(best, out, out=best)
        return Tile(best, left, right)

    def _multiply(self, query: Any, item: Any, out: Floats) -> None:
        raise NotImplementedError

    def near(self, tile: Tile, rows: slice, columns: slice) -> Floats:
        """The tile itself."""
        return np.asarray(tile.cells[rows, columns])

    def reached(self, tile: Tile, floors: Floors) -> Reached | None:
        """By one comparison of everything."""
        return self.reached_among(tile.cells, tile, floors)


class NumpyProduct(FloatProduct):
    """The float32 product of numpy's BLAS."""

    name = "numpy"

    def __init__(self) -> None:
        # Where BLAS cannot be held to one thread, it brings its own instead of ours.
        self.threads = MANY_THREADS if can_limit_blas() else 1

    def load(self, vectors: Vectors, rows: slice, side: Side) -> Operand:
        """The items as float32, not copied where they are float32 already."""
        block = vectors.block(rows)
        lengths = vectors.lengths(block, rows.start)
        return Operand(block.transpose(1, 0, 2), lengths, np.zeros(len(lengths)))

    def _multiply(self, query: Any, item: Any, out: Floats) -> None:
        np.matmul(query, item.T, out=out)


def kth_of_chunks(cells: NDArray[Any], k: int) -> NDArray[Any] | None:
    """A value that at least k entries of each row reach, (n,); None where a row has fewer than 2 k entries."""
    chunks = min(cells.shape[1], 4 * k)
    if chunks < 2 * k:
        return None
    best = cells[:, :chunks].copy(order="K")  # of columns, too, neighbours in memory stay neighbours
    for start in range(chunks, cells.shape[1] - chunks + 1, chunks):
        np.maximum(best, cells[:, start : start + chunks], out=best)
    best = np.ascontiguousarray(best)
    best.partition(chunks - k, axis=1)
    return np.asarray(best[:, chunks - k])


def at_most(values: Doubles) -> Floats:
    """The largest float32 that are below these numbers."""
    with np.errstate(over="ignore"):
        return np.asarray(np.nextafter(values.astype(np.float32), np.float32(-np.inf)))


def compared(cells: NDArray[Any], thresholds: NDArray[Any], floors: Floors) -> Reached | None:
    """Places of (n, m) cells that reach thresholds of their own type, (n,) or (m,) in place of the floors."""
    seen, of_rows = cells[:, floors.part], floors.side == "left"
    least = thresholds if of_rows else thresholds[floors.part]
    if (loops := compiled_loops()) is not None:
        rows, columns = np.empty(floors.most, np.int64), np.empty(floors.most, np.int64)
        line, step = (stride // cells.itemsize for stride in seen.strides)
        assert step == 1 or seen.shape[1] == 1, "neighbours in a row are neighbours in memory"
        flat = np.lib.stride_tricks.as_strided(
            seen, ((len(seen) - 1) * line + seen.shape[1],), (cells.itemsize,)
        )
        count = loops.reaching(flat, line, seen.shape, least, of_rows, (rows, columns))
        if count < 0:
            return None
        return Reached(rows[:count].copy(), columns[:count] + floors.part.start, np.empty(0))
    least = least[:, None] if of_rows else least
    at = places(seen >= least, floors.most)
    if at is None:
        return None
    rows, columns = np.divmod(at, seen.shape[1])
    return Reached(rows, columns + floors.part.start, np.empty(0))


def places(reach: NDArray[np.bool_], most: int) -> NDArray[np.int64] | None:
    """As ``np.flatnonzero``; None where there are more than ``most``.

    Eight places at a time are looked at, which is faster where few are set.
    """
    flat = np.ascontiguousarray(reach).reshape(-1)
    if len(flat) % 8:
        at = np.flatnonzero(flat)
        return at if len(at) <= most else None
    eights = flat.view(np.uint64)
    some = np.flatnonzero(eights != 0)
    if len(some) > most:
        return None
    at = np.flatnonzero(eights[some].view(np.bool_))
    return (some[at >> 3] << 3) | (at & 7) if len(at) <= most else None
