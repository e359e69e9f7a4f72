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

from mitl.retrieval.bounds import Doubles, product_errors
from mitl.retrieval.vectors import Floats, Vectors

Backend = Literal["auto", "numpy", "torch", "bf16", "int8", "cuda", "faiss"]
"""``mitl.settings.BACKENDS`` lists them."""

Side = Literal["left", "right"]

MANY_THREADS = 1 << 16
MOST_SHARE = 12
"""``Product.reached`` is asked for one of so many cells of a large tile at most."""


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
    # Rounding keeps the order: no exact sum of interest can be rounded to less.
    lowest = floors - errors
    thresholds = at_most(lowest * (1 - np.sign(lowest) * product.rounding))
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
