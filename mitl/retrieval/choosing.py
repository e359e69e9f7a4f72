"""Which product a search starts with: measured rates of this machine, and survivors counted on a sample of the data."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

import numpy as np

from annotators.base import Encoded
from mitl.errors import RetrievalError
from mitl.retrieval.processor import compiled_loops, count, loaded_torch, one_thread_of_blas
from mitl.retrieval.products import Backend, Buffers, Floors, NumpyProduct, Product, Side
from mitl.retrieval.search import RESCORING
from mitl.retrieval.vectors import Floats, Vectors, product_errors

PROBE_WORK = 2e9
"""Multiply-adds from which a probe of some milliseconds pays (and is kept for later searches)."""
IMPORT_WORK = 1e12
"""Multiply-adds from which it pays to import torch for its products alone."""
INTEGER_WORK = 1e11
"""Multiply-adds from which 8-bit integers, whose lists of survivors are the longest, are worth a look."""
CARD_WORK = 1e11
"""Multiply-adds from which it pays to wake a GPU, which takes a second or two."""
_CLEARLY_FASTER = 1.1
_NEARER = 15
"""What a second look at a survivor costs for each number, in multiply-adds of the float32 product."""
_NEWCOMER = 5000.0
"""What taking an item in costs, in the same unit, and, measured, how many come while lists of ``survivors`` grow."""
_TILE_ITEMS, _SHARP = 2048, 1.6
CARD = "cuda"
"""The device of torch's that the backend ``cuda`` uses."""
_CARD_PROBE, _CARD_RANK = (8192, 32768), 16
"""Queries and items of its probe, some 300 microseconds of a large card; the rank whose similarities are its floors."""
_LOADING = {"numpy": 14.0, "bf16": 60.0, "int16": 45.0, "int8": 90.0, "cuda": 14.0}
"""What converting one number costs, in multiply-adds of the float32 product."""
_OF_TORCH = {"torch", "linear", "bf16", "int8"}
_SAMPLE_QUERIES, _SAMPLE_ITEMS, _SAMPLE_RANK = 16, 2048, 16
_FEWEST_ITEMS, _SAMPLE_SHARE = 256, 10


@dataclass(frozen=True, slots=True)
class SearchTask:
    """A search: the best ``k`` of the right for each of the left and, where ``k_back`` is given, the other way too."""

    left: Vectors
    right: Vectors
    k: int
    k_back: int | None = None

    @property
    def work(self) -> float:
        """Multiply-adds of its products."""
        vectors = [float(len(side)) * side.per_item for side in (self.left, self.right)]
        return vectors[0] * vectors[1] * self.left.width


@dataclass(frozen=True, slots=True)
class ProductChoice:
    """Products to use, the first one first, and how many survivors an item of each side should have room for."""

    ladder: tuple[Product, ...] = ()
    places: tuple[int, int] = (0, 0)
    device: str | None = None
    """Where it is not the processor that searches."""


def choose(backend: Backend, task: SearchTask) -> ProductChoice:
    """The products for a task.

    ``auto`` takes, of the units that this machine has, a GPU among them, the one whose product, loading and rescoring
    together cost least, with more precise ones behind it on the processor. A small search is not worth a look and takes
    numpy's.

    Raises:
        RetrievalError: the backend is not installed.
    """
    if backend == "auto":
        return _cheapest(task)
    if backend == "cuda":
        return ProductChoice(device=CARD)
    product = _makers(task)[backend]()
    return ProductChoice((product,), _places(task, survivors_of(product, task)))


def _makers(task: SearchTask) -> dict[str, Callable[[], Product]]:
    from mitl.retrieval.integer_products import Int8Product, Int16Product
    from mitl.retrieval.torch_products import Bfloat16Product, TorchProduct

    return {
        "numpy": NumpyProduct,
        "torch": TorchProduct,
        "linear": lambda: TorchProduct(linear=True),
        "bf16": Bfloat16Product,
        "int16": Int16Product,
        "int8": Int8Product if task.k_back is None else lambda: Int8Product.for_both_ways(task.left),
    }


def _cheapest(task: SearchTask) -> ProductChoice:
    plain = NumpyProduct()
    # A worker of a cluster that was lent a card is to use it; elsewhere waking one pays with the import alone.
    pays = CARD_WORK if os.environ.get("CUDA_VISIBLE_DEVICES") else IMPORT_WORK
    at_hand = loaded_torch() is not None or (task.work > pays and find_spec("torch") is not None)
    compiled = compiled_loops() is not None
    if task.work < PROBE_WORK or not (at_hand or compiled):
        return ProductChoice((plain,), _places(task, survivors_of(plain, task)))
    makers, rates = _makers(task), speeds(task.left.width, compiled, at_hand)
    exact = max(("numpy", "torch", "linear"), key=lambda name: rates.get(name, 0.0))
    if rates[exact] < _CLEARLY_FASTER:
        exact = "numpy"
    low = ("int8", "bf16", "int16") if task.work >= INTEGER_WORK else ("bf16", "int16")
    names = [name for name in low if rates.get(name, 0.0) > rates[exact]] + [exact]
    products = [makers[name]() for name in names]
    survivors = [survivors_of(product, task) for product in products]
    costs = [
        _cost(task, rates[name], _LOADING.get(name, _LOADING["numpy"]), counts)
        for name, counts in zip(names, survivors, strict=True)
    ]
    # What the coarser one saves has to be clear: the costs are estimates, and its surprises are dear.
    first = len(names) - 1
    for number in reversed(range(len(names))):
        if costs[number] * _CLEARLY_FASTER < costs[first]:
            first = number
    if task.work >= CARD_WORK and (rate := card_speed(task.left.width)):
        numbers = (
            len(task.left) * task.left.per_item + len(task.right) * task.right.per_item
        ) * task.left.width
        # All of our threads share the one card.
        cost = count() * task.work / rate + _LOADING["cuda"] * numbers
        if cost * _CLEARLY_FASTER < costs[first]:
            return ProductChoice(device=CARD)
    return ProductChoice(tuple(products[first:]), _places(task, survivors[first]))


def _cost(task: SearchTask, rate: float, loading: float, survivors: tuple[float, float]) -> float:
    """What a task costs, in multiply-adds of the float32 product.

    Args:
        rate: how many times faster the product is than that of float32.
        survivors: how many items each of the left, and of the right, has to look at again in the end.
    """
    left, right = len(task.left), len(task.right)
    vectors = left * task.left.per_item + right * task.right.per_item
    total = task.work / rate + loading * vectors * task.left.width
    number = task.left.width * task.left.per_item * task.right.per_item
    total += left * _sifting(task.k, right, survivors[0], number)
    if task.k_back is not None:
        total += right * _sifting(task.k_back, left, survivors[1], number)
    return total


def _sifting(k: int, items: int, survivors: float, number: int) -> float:
    """What one query costs beside its products: newcomers to its list, and a second look at some of them."""
    grown = math.log(max(1.0, items / _TILE_ITEMS))
    newcomers = survivors * (2.4 + 2 * grown)
    looked_at = survivors + (1.5 * k * (grown + 0.7) if survivors > _SHARP * k else 0)
    return _NEWCOMER * newcomers + number * (_NEARER * looked_at + RESCORING * k)


def survivors_of(product: Product, task: SearchTask) -> tuple[float, float]:
    """``expected_survivors`` of an item of the left and, where they are asked for, of the right."""
    if not product.loses:
        return float(task.k), float(task.k_back or 0)
    of_left = expected_survivors(product, task.left, task.right, task.k, ("left", "right"))
    if task.k_back is None:
        return of_left, 0.0
    return of_left, expected_survivors(product, task.right, task.left, task.k_back, ("right", "left"))


def expected_survivors(
    product: Product, queries: Vectors, gallery: Vectors, k: int, sides: tuple[Side, Side]
) -> float:
    """How many items of the gallery a query will have to look at again, from a sample of both.

    Counted is by how much the product's error lengthens a short list of the sample; further out, where the real list
    ends, scores thin out faster, for normal ones with the root of the logarithm of the share.
    """
    items = max(_FEWEST_ITEMS, min(_SAMPLE_ITEMS, len(gallery) * gallery.per_item // _SAMPLE_SHARE))
    few, many = queries.sample(_SAMPLE_QUERIES), gallery.sample(items)
    if not (len(few) and len(many)):
        return float(k)
    try:
        one, other = (
            product.load(_as_vectors(part), slice(0, len(part)), side)
            for part, side in zip((few, many), sides, strict=True)
        )
    except RetrievalError:  # an item that cannot be used: the search itself will name it
        return float(k)
    typical = np.array([other.lengths.mean()]), np.array([other.losses.mean()])
    losses = np.full(len(few), one.losses.mean())
    errors = product_errors(one.lengths, losses, *typical, queries.width, product.roundoff)[:, 0]
    with np.errstate(over="ignore", invalid="ignore"):
        similarities = few @ many.T
    share = min(1.0, k / len(gallery))
    rank = min(len(many), max(_SAMPLE_RANK, math.ceil(share * len(many))))
    least = np.partition(similarities, len(many) - rank, axis=1)[:, len(many) - rank].astype(np.float64)
    least -= errors + product.rounding * np.abs(least)
    growth = float(np.count_nonzero(similarities >= least[:, None])) / (rank * len(few))
    seen = rank / len(many)
    steeper = math.sqrt(math.log(share) / math.log(seen)) if share < seen < 1 else 1.0
    return float(min(len(gallery), k * max(1.0, growth) ** steeper))


def _places(task: SearchTask, survivors: tuple[float, float]) -> tuple[int, int]:
    """Room for an item's survivors and for as many newcomers between two clearings."""
    return _room(task.k, len(task.right), survivors[0]), _room(task.k_back or 1, len(task.left), survivors[1])


def _room(k: int, items: int, survivors: float) -> int:
    # Where hardly more than k survive, clearing often costs less than sorting places that are free.
    room = 2 * survivors + 16 if survivors < _SHARP * k else 3 * survivors + 64
    return min(max(k + 1, items), min(16 * k + 1024, int(room)))


@cache
def speeds(width: int, compiled: bool, with_torch: bool) -> dict[str, float]:
    """How many times faster than numpy's float32 product each unit is, with one thread; 0 where it is not to be used.

    Measured once in a process, in some 50 milliseconds. A unit that breaks its own error bound is not used.

    Args:
        compiled, with_torch: whether numba's and torch's units are asked; else they would have to start.
    """
    left, right = _probed(width, 256, 1024)
    makers = _makers(SearchTask(left, right, 1))
    started = {"numpy"} | ({"int16"} if compiled else set()) | (_OF_TORCH if with_torch else set())
    makers = {name: make for name, make in makers.items() if name in started}
    with one_thread_of_blas():
        times = {name: _probe_s(make, left, right, time.thread_time) for name, make in makers.items()}
    return {name: times["numpy"] / seconds for name, seconds in times.items()}


@cache
def card_speed(width: int) -> float:
    """How many times faster than one thread of numpy's float32 product a GPU is; 0 where none is to be used."""
    torch = loaded_torch()
    if torch is None or not torch.cuda.is_available():
        return 0.0
    from mitl.retrieval.card import seconds_of_probe

    with one_thread_of_blas():
        small = _probed(width, 256, 1024)
        plain = _probe_s(NumpyProduct, *small, time.thread_time) / (256 * 1024)
        card = seconds_of_probe(CARD, width, *_CARD_PROBE, _CARD_RANK)
    return plain * _CARD_PROBE[0] * _CARD_PROBE[1] / card


def _probed(width: int, queries: int, items: int) -> tuple[Vectors, Vectors]:
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((count, width), np.float32) for count in (queries, items))
    return _as_vectors(left), _as_vectors(right)


def _probe_s(make: Callable[[], Product], left: Vectors, right: Vectors, clock: Callable[[], float]) -> float:
    """The least time of a product; infinite where it fails or is further off than it says."""
    part = slice(0, 256), slice(0, 1024)
    buffers = Buffers()
    try:
        product = make()
        one = product.load(left, slice(0, len(left)), "left")
        other = product.load(right, slice(0, len(right)), "right")
        tile = product.multiply(one, other, buffers)
    except (RuntimeError, RetrievalError):
        return math.inf
    near = product.near(tile, *part)
    items = right.array[:, 0][other.places][part[1]]
    exact = left.array[part[0], 0].astype(np.float64) @ items.T.astype(np.float64)
    allowed = product.errors(one, other)[part[0], None] + product.rounding * np.abs(near)
    if not (np.abs(near - exact) <= allowed).all():
        return math.inf
    times, nothing = [], Floors(np.full(len(one), np.inf), "left", slice(0, len(other)), len(other))
    for _ in range(3):
        start = clock()
        if product.sifted(one, other, {"left": nothing}, buffers) is None:
            product.reached(product.multiply(one, other, buffers), nothing)
        times.append(clock() - start)
    return min(times)


def _as_vectors(array: Floats) -> Vectors:
    return Vectors(Encoded("image", np.arange(len(array)), {"embedding": array}))
