"""Products of two blocks of vectors, one class per unit of the processor, each with its own error bound.

A product only has to be *near*: what it lets through is rescored (``mitl.retrieval.rescoring``), so a new one needs
an honest account of what it rounds, and no ranking changes by a bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mitl.retrieval.bounds import UNIT, Doubles, product_errors
from mitl.retrieval.threads import can_limit_blas
from mitl.retrieval.vectors import Floats, Vectors

Backend = Literal["auto", "numpy", "torch", "bf16", "int8", "cuda", "faiss"]
BACKENDS: tuple[Backend, ...] = ("auto", "numpy", "torch", "bf16", "int8", "cuda", "faiss")

Side = Literal["left", "right"]

MANY_THREADS = 1 << 16
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

    def __len__(self) -> int:
        return len(self.lengths)

    def by_item(self, values: Doubles) -> Doubles:
        """Numbers of the rows (n,) in the order of the items."""
        out = np.empty_like(values)
        out[self.places] = values
        return out


class Reached(NamedTuple):
    """Pairs of a tile that may reach a floor, in order of rows, with the highest that their similarity can be."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    highest: Doubles


class Buffers:
    """Memory for tiles, kept by one thread from one tile to the next."""

    def __init__(self) -> None:
        self._flat: dict[str, NDArray[Any]] = {}
        self._made: dict[str, tuple[tuple[int, ...], Any]] = {}

    def get(self, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """A contiguous array of this shape; its content is whatever was there."""
        needed = int(np.prod(shape))
        flat = self._flat.get(name)
        if flat is None or len(flat) < needed or flat.dtype != dtype:
            flat = self._flat[name] = np.empty(needed, dtype)
        return flat[:needed].reshape(shape)

    def kept(self, name: str, shape: tuple[int, ...], make: Callable[[], Any]) -> Any:
        """What ``make`` gave when this shape was last asked for under this name."""
        shape_and_made = self._made.get(name)
        if shape_and_made is None or shape_and_made[0] != shape:
            shape_and_made = self._made[name] = shape, make()
        return shape_and_made[1]


class Product(Protocol):
    """Inner products of all items of two blocks, the largest of K x L for each pair."""

    name: str
    roundoff: float
    """Unit roundoff of the sums."""
    rounding: float
    """How far a value may be off relative to itself, beside what ``tile_errors`` says."""
    cell_bytes: int
    """Memory for each pair of a tile and each of its K x L products."""
    number_bytes: int
    """Memory for each number of a loaded block."""
    threads: int
    """The most threads that gain anything."""
    tile: tuple[int, int]
    """The rows and columns from which on larger tiles gain nothing."""

    def load(self, vectors: Vectors, rows: slice, side: Side) -> Any:
        """The ``Operand`` of some items; RetrievalError where one is not finite."""
        ...

    def multiply(self, left: Any, right: Any, buffers: Buffers) -> Any:
        """The tile of products; valid until the next call with these buffers."""
        ...

    def near(self, tile: Any, left: Any, right: Any, rows: slice, columns: slice) -> Floats:
        """The near similarities of a part of a tile, in the order of the operands' rows."""
        ...

    def kth(
        self, tile: Any, left: Any, right: Any, rows: slice, columns: slice, k: int, side: Side
    ) -> Floats | None:
        """For each row (or column) of a part of a tile a near similarity that at least k of its cells reach.

        None where there are fewer than 2 k cells.
        """
        ...

    def reached(
        self, tile: Any, left: Any, right: Any, floors: Doubles, side: Side, part: slice, most: int
    ) -> Reached | None:
        """The pairs whose canonical similarity may reach the floor of their row (``left``) or column (``right``).

        Args:
            floors: (rows,) or (columns,) canonical similarities.
            part: a share of the columns; shares that together hold all columns find every pair once.
            most: give None instead where there are more pairs than so many.
        """
        ...


def tile_errors(product: Product, one: Operand, other: Operand, seen: slice | None = None) -> Doubles:
    """The bound of ``product_errors`` for each item of one block against all (or ``seen``) of the other, (n,)."""
    seen = seen or slice(None)
    length, loss = other.lengths[seen].max(keepdims=True), other.losses[seen].max(keepdims=True)
    return product_errors(one.lengths, one.losses, length, loss, one.data.shape[2], product.roundoff)[:, 0]


def float_reached(
    product: Product,
    cells: Floats,
    left: Operand,
    right: Operand,
    floors: Doubles,
    side: Side,
    part: slice,
    most: int,
) -> Reached | None:
    """``Product.reached`` for a tile of float32 whose errors are much the same for all pairs of a row or column."""
    pair = (left, right) if side == "left" else (right, left)
    errors = tile_errors(product, *pair)
    thresholds = at_most(floors - errors)
    found = compared(cells, thresholds, side, part, most)
    return found and with_errors(found, cells[found.rows, found.columns], errors, product.rounding, side)


def at_most(values: Doubles) -> Floats:
    """The largest float32 that are below these numbers."""
    with np.errstate(over="ignore"):
        return np.asarray(np.nextafter(values.astype(np.float32), np.float32(-np.inf)))


def compared(
    cells: NDArray[Any], thresholds: NDArray[Any], side: Side, part: slice, most: int
) -> Reached | None:
    """Places of (n, m) cells that reach thresholds of their own type; None where there are more than ``most``.

    Args:
        thresholds: (n,) for ``left``, (m,) for ``right``.
    """
    seen = cells[:, part]
    found = places(seen >= (thresholds[:, None] if side == "left" else thresholds[part]), most)
    if found is None:
        return None
    rows, columns = np.divmod(found, seen.shape[1])
    return Reached(rows, columns + part.start, np.empty(0))


def with_errors(
    found: Reached, values: NDArray[Any], errors: Doubles, rounding: float, side: Side
) -> Reached:
    """The same pairs with the highest that similarities of these near values can be."""
    wide = values.astype(np.float64)
    highest = wide + rounding * np.abs(wide) + errors[found.rows if side == "left" else found.columns]
    return found._replace(highest=highest)


def places(reach: NDArray[np.bool_], most: int) -> NDArray[np.int64] | None:
    """As ``np.flatnonzero``; None where there are more than ``most``.

    Eight places at a time are looked at, which is faster where few are set.
    """
    flat = np.ascontiguousarray(reach).reshape(-1)
    if len(flat) % 8:
        found = np.flatnonzero(flat)
        return found if len(found) <= most else None
    eights = flat.view(np.uint64)
    some = np.flatnonzero(eights != 0)
    if len(some) > most:
        return None
    found = np.flatnonzero(eights[some].view(np.bool_))
    return (some[found >> 3] << 3) | (found & 7) if len(found) <= most else None


def seeds(product: Product, tile: Any, left: Operand, right: Operand, k: int, side: Side) -> Doubles | None:
    """For each row (or column) of a tile a number that the canonical similarities of at least k of its items reach.

    From the k-th best of the best of 4 k disjoint chunks; None where there are fewer than 2 k items.
    """
    seen, whole = slice(0, max(_SEEDS, 4 * k)), slice(None)
    one, other, part = (left, right, (whole, seen)) if side == "left" else (right, left, (seen, whole))
    kth = product.kth(tile, left, right, part[0], part[1], k, side)
    if kth is None:
        return None
    errors = tile_errors(product, one, other, seen)
    lowest = np.asarray(kth, np.float64)
    lowest = lowest - errors - product.rounding * np.abs(lowest)
    return one.by_item(lowest)


def near_kth(
    product: Product,
    tile: Any,
    left: Operand,
    right: Operand,
    rows: slice,
    columns: slice,
    k: int,
    side: Side,
) -> Floats | None:
    """``Product.kth`` of the near similarities."""
    near = product.near(tile, left, right, rows, columns)
    return kth_of_chunks(near if side == "left" else near.T, k)


def kth_of_chunks(cells: NDArray[Any], k: int) -> NDArray[Any] | None:
    """A value that at least k entries of each row reach, (n,); None where a row has fewer than 2 k entries."""
    chunks = min(cells.shape[1], 4 * k)
    if chunks < 2 * k:
        return None
    best = cells[:, :chunks].copy()
    for start in range(chunks, cells.shape[1] - chunks + 1, chunks):
        np.maximum(best, cells[:, start : start + chunks], out=best)
    best.partition(chunks - k, axis=1)
    return np.asarray(best[:, chunks - k])


class FloatProduct:
    """Tiles (rows, columns) of float32."""

    name = ""
    roundoff = UNIT
    rounding = 0.0
    cell_bytes = 5
    number_bytes = 4
    threads = MANY_THREADS
    tile = (1024, 2048)

    def multiply(self, left: Operand, right: Operand, buffers: Buffers) -> Floats:
        """(rows, columns) float32."""
        best: Floats | None = None
        for query in left.data:
            for item in right.data:
                name = "best" if best is None else "other"
                out = buffers.get(name, (len(left), len(right)), np.float32)
                self._multiply(query, item, out)
                best = out if best is None else np.maximum(best, out, out=best)
        assert best is not None
        return best

    def load(self, vectors: Vectors, rows: slice, side: Side) -> Operand:
        """See ``Product``."""
        raise NotImplementedError

    def _multiply(self, query: Any, item: Any, out: Floats) -> None:
        raise NotImplementedError

    def near(self, tile: Floats, left: Operand, right: Operand, rows: slice, columns: slice) -> Floats:
        """The tile itself."""
        return tile[rows, columns]

    kth = near_kth

    def reached(
        self, tile: Floats, left: Operand, right: Operand, floors: Doubles, side: Side, part: slice, most: int
    ) -> Reached | None:
        """By one comparison of everything."""
        return float_reached(self, tile, left, right, floors, side, part, most)


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
