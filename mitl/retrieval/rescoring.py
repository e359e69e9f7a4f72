"""The canonical similarity of two vectors, the same bits on every machine, by a fast way with proof."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from copy import copy
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.retrieval.processor import compiled_loops, exactly, loaded_torch
from mitl.retrieval.vectors import (
    UNIT,
    Floats,
    Vectors,
    bits_of_halves,
    convert,
    gamma,
    largest_lengths,
    product_errors,
    singles,
    writeable,
)

Positions = NDArray[np.int64]

CHUNK_BYTES = 1 << 20
"""Vectors of one chunk in float64: they stay in a core's cache, and calls are few (measured best of 2^16 to 2^21)."""
_UNIT = 2.0**-53
"""Unit roundoff of float64."""


_BUNCH_BYTES = 1 << 21
"""Items that are converted to float64 at once."""
_SCATTERED = 8
"""Items per pair from which there is next to nothing to share between queries."""


class Rescorer:
    """Better similarities of chosen pairs: canonical ones, and in float32.

    Canonical: each product of two float32 is exact in float64, their sum runs in the fixed order of ``fixed_sum``, and
    the largest of an item's K x L sums is rounded once to float32. A library sums in an order of its own, but fast:
    where all numbers within the error of both sums round to the same float32, that is the canonical value.
    """

    def __init__(self, queries: Vectors, gallery: Vectors, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._queries, self._gallery = queries, gallery
        self._query_of: Positions | None = None
        self._pairs = max(1, chunk_bytes // (8 * gallery.width * gallery.per_item))
        sides = queries.array, gallery.array
        loops = compiled_loops()
        kinds: list[Any] = [np.float32]
        if loops is not None and gallery.width >= loops.EIGHT and loops.widens_halves():
            kinds.append(np.float16)
        plain = all(side.dtype in kinds and side.flags.c_contiguous for side in sides)
        self._sides = [bits_of_halves(writeable(side)) for side in sides] if plain else []
        self._compiled = loops and loops.similarities
        self._sampled = None if self._compiled else sampled_products(queries, gallery, 2 * chunk_bytes)
        self._scratch = threading.local()

    def for_rows(self, queries: Positions) -> Rescorer:
        """The same for rows that are these queries, ascending."""
        chosen = copy(self)
        chosen._query_of = queries
        return chosen

    @property
    def nearer_pays(self) -> bool:
        """Whether ``nearer`` is cheaper than ``similarities``."""
        return self._compiled is None

    def similarities(self, rows: Positions, positions: Positions) -> Floats:
        """Canonical ones of n pairs of a row and an item, in order of rows, none twice: (n,) float32."""
        rows = rows if self._query_of is None else self._query_of[rows]
        if self._compiled is not None:
            return self._by_compiled(self._compiled, rows, positions)
        if self._sampled is not None and len(rows):
            return self._rounded(self._sampled.float64(rows, positions), rows, positions)
        out = np.empty(len(rows), np.float32)
        for part in self._parts(rows):
            out[part] = self._rounded(self._best(rows[part], positions[part]), rows[part], positions[part])
        return out

    def nearer(self, rows: Positions, positions: Positions) -> tuple[Floats, NDArray[np.float64]]:
        """Of the same kind of pairs, cheaper ones: (n,) float32 values and (n,) how far they may be off."""
        if self._compiled is not None:
            return self.similarities(rows, positions), np.zeros(len(rows))
        rows = rows if self._query_of is None else self._query_of[rows]
        if self._sampled is not None and len(rows):
            values = self._sampled.float32(rows, positions)
        else:
            values = np.empty(len(rows), np.float32)
            for part in self._parts(rows):
                left = self._queries.array[rows[part], :, None].astype(np.float32)  # (n, K, 1, D)
                right = self._gallery.array[positions[part], None].astype(np.float32)  # (n, 1, L, D)
                values[part] = np.vecdot(left, right).max(axis=(1, 2))
        first = int(rows.min(initial=0))
        lengths = largest_lengths(self._queries.block(slice(first, int(rows.max(initial=0)) + 1)))
        longest, nothing = np.array([self._gallery.longest]), np.zeros(1)
        errors = product_errors(lengths, 0 * lengths, longest, nothing, self._gallery.width, UNIT)
        return values, errors[rows - first, 0]

    def _by_compiled(self, loop: Any, rows: Positions, positions: Positions) -> Floats:
        out, unsure = np.empty(len(rows), np.float32), np.empty(len(rows), np.int64)
        error = self._error() * self._queries.longest
        if self._sides:
            # In order of the items, whose vectors then come from memory one after the other, and once.
            order, in_order = _order(positions), np.empty_like(out)
            unsure = unsure[
                : loop(positions[order], rows[order], *self._sides[::-1], error, in_order, unsure)
            ]
            out[order] = in_order
            return self._settled(out, order[unsure], rows, positions)
        count = 0
        for part in self._parts(rows):  # in float32, which the loop reads
            here = rows[part]
            starts = np.flatnonzero(np.diff(here, prepend=-1))
            left = singles(self._queries.array[here[starts]])
            right = self._gathered(positions[part], np.float32)
            queries = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(here)))
            found = loop(queries, np.arange(len(here)), left, right, error, out[part], unsure[count:])
            unsure[count : count + found] += part.start
            count += found
        return self._settled(out, unsure[:count], rows, positions)

    def _parts(self, rows: Positions) -> Iterator[slice]:
        """Some pairs at a time; whole rows where all rows have equally many."""
        per_row = int(np.count_nonzero(rows == rows[0])) if len(rows) else 1
        whole = self._pairs // per_row * per_row or self._pairs
        for start in range(0, len(rows), whole):
            yield slice(start, start + whole)

    def _best(self, rows: Positions, positions: Positions) -> NDArray[np.float64]:
        """The largest of the K x L sums of each pair in float64, (n,)."""
        right = self._gathered(positions, np.float64)  # (n, L, D)
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        width, per_query = right.shape[2], len(rows) // len(starts)
        left = self._queries.array[rows[starts]].astype(np.float64)  # (r, K, D)
        if per_query * len(starts) == len(rows) and np.array_equal(
            starts, np.arange(0, len(rows), per_query)
        ):
            # (r, m L, D) x (r, D, K), m items for each query
            products = np.matmul(right.reshape(len(starts), -1, width), left.transpose(0, 2, 1))
            return np.asarray(products.reshape(len(rows), -1).max(axis=1))
        every = np.repeat(left, np.diff(starts, append=len(rows)), axis=0)
        return np.asarray(np.vecdot(every[:, :, None], right[:, None]).max(axis=(1, 2)))

    def _rounded(self, best: NDArray[np.float64], rows: Positions, positions: Positions) -> Floats:
        """The canonical similarities near float64 ones of any order of summation."""
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        squares = np.square(self._queries.array[rows[starts]], dtype=np.float64).sum(axis=2).max(axis=1)
        errors = np.repeat(self._error() * np.sqrt(squares), np.diff(starts, append=len(rows)))
        low, high = (best - errors).astype(np.float32), (best + errors).astype(np.float32)
        return self._settled(low, np.flatnonzero(low != high), rows, positions)

    def _error(self) -> float:
        """How far a float64 sum and the canonical one may lie apart, for a query of length 1."""
        # Both sums err by gamma_D |q| |x| at most: in float64 nothing underflows.
        return 2.01 * gamma(self._gallery.width, _UNIT) * self._gallery.longest

    def _settled(
        self, similarities: Floats, unsure: Positions, rows: Positions, positions: Positions
    ) -> Floats:
        """``similarities`` with the unsure ones by definition."""
        if len(unsure):
            left, right = self._queries.array[rows[unsure]], self._gallery.array[positions[unsure]]
            similarities[unsure] = canonical_similarities(left, right)
        # + 0.0 turns -0.0 into 0.0, so that equal similarities have equal bytes.
        return np.asarray(similarities + np.float32(0))

    def _gathered(self, positions: Positions, kind: type[np.floating[Any]]) -> NDArray[Any]:
        """Items of the gallery as numbers of this type (n, L, D), valid until this thread's next call."""
        array = self._gallery.array
        kept = self._scratch.__dict__
        if len(kept.get("wide", ())) < len(positions):
            # Large arrays that come and go cost more in page faults than in arithmetic.
            shape = (len(positions), *array.shape[1:])
            kept["as_read"], kept["wide"] = np.empty(shape, array.dtype), np.empty(shape, kind)
        as_read, wide = kept["as_read"][: len(positions)], kept["wide"][: len(positions)]
        np.take(array, positions, axis=0, out=as_read, mode="clip")
        convert(as_read, wide)
        return np.asarray(wide)


def canonical_similarities(queries: NDArray[Any], items: NDArray[Any]) -> Floats:
    """The best inner product of each of n pairs, (n,) float32, by definition; (n, K, D) and (n, L, D)."""
    best = np.full(len(queries), -np.inf)
    step = max(1, CHUNK_BYTES // (8 * queries.shape[2]))
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        for k in range(queries.shape[1]):
            for m in range(items.shape[1]):
                terms = queries[part, k].astype(np.float64) * items[part, m]
                np.maximum(best[part], fixed_sum(terms), out=best[part])
    return best.astype(np.float32) + np.float32(0)


def fixed_sum(terms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Row sums of (n, D): the second half is added to the first until one column is left; spoils terms.

    The order is ours and not that of a BLAS or of a numpy version. Of an odd width the middle column waits.
    """
    while (width := terms.shape[1]) > 1:
        half = (width + 1) // 2
        if width % 2:
            terms[:, : half - 1] += terms[:, half:]
            terms = terms[:, :half]
        else:
            terms = terms[:, :half] + terms[:, half:]
    return terms[:, 0]


class SampledProducts:
    """Inner products of rows of ``queries`` (N, D) and ``gallery`` (G, D), both contiguous float32."""

    def __init__(self, torch: Any, queries: Floats, gallery: Floats, bunch_bytes: int = _BUNCH_BYTES) -> None:
        self._torch = torch
        self._queries, self._gallery = (torch.from_numpy(writeable(side)) for side in (queries, gallery))
        self._vectors = gallery
        self._bunch = max(1, bunch_bytes // (8 * gallery.shape[1]))
        self._scratch = threading.local()

    def float32(self, rows: Positions, positions: Positions) -> Floats:
        """Of n pairs in order of rows: (n,), accumulated in float32."""
        first, queries = self._block(rows)
        rows = rows - first
        if len(rows) * _SCATTERED < len(self._gallery):
            return self._at(queries, self._gallery, rows, positions)
        out = np.empty(len(rows), np.float32)
        order = _order(positions)
        out[order] = self._at(self._gallery, queries, positions[order], rows[order])
        return out

    def float64(self, rows: Positions, positions: Positions) -> NDArray[np.float64]:
        """The same accumulated in float64."""
        first, queries = self._block(rows)
        out = np.empty(len(rows))
        order = _order(positions)
        rows, positions = rows[order] - first, positions[order]
        wide = queries.double()
        new = np.flatnonzero(np.diff(positions, prepend=-1))
        for start in range(0, len(new), self._bunch):
            begins = new[start : start + self._bunch]
            pairs = slice(
                begins[0], new[start + self._bunch] if start + self._bunch < len(new) else len(rows)
            )
            items = self._wide(positions[begins])
            place = np.repeat(np.arange(len(begins)), np.diff(begins, append=pairs.stop))
            out[order[pairs]] = self._at(items, wide, place, rows[pairs])
        return out

    def _block(self, rows: Positions) -> tuple[int, Any]:
        first = int(rows.min())
        return first, self._queries[first : int(rows.max()) + 1]

    def _at(self, one: Any, other: Any, rows: Positions, columns: Positions) -> NDArray[Any]:
        """(n,) products of rows of one with rows of the other, in order of the rows of the one."""
        torch = self._torch
        starts = np.zeros(len(one) + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=len(one)), out=starts[1:])
        pattern = torch.sparse_csr_tensor(
            torch.from_numpy(starts),
            torch.from_numpy(columns),
            torch.zeros(len(rows), dtype=one.dtype),
            size=(len(one), len(other)),
            check_invariants=False,
        )
        with exactly():
            products: NDArray[Any] = (
                torch.sparse.sampled_addmm(pattern, one, other.T, beta=0.0).values().numpy()
            )
        return products

    def _wide(self, positions: Positions) -> Any:
        """Items in float64, valid until this thread's next call."""
        kept = self._scratch.__dict__
        if not kept:
            shape = (self._bunch, self._vectors.shape[1])
            kept["narrow"], kept["wide"] = np.empty(shape, np.float32), np.empty(shape)
        narrow, wide = kept["narrow"][: len(positions)], kept["wide"][: len(positions)]
        np.take(self._vectors, positions, axis=0, out=narrow, mode="clip")
        np.copyto(wide, narrow)
        return self._torch.from_numpy(wide)


def sampled_products(
    queries: Vectors, gallery: Vectors, bunch_bytes: int = _BUNCH_BYTES
) -> SampledProducts | None:
    """For single vectors in float32, where torch is loaded and has the product; else None."""
    torch = loaded_torch()
    if torch is None or queries.per_item != 1 or gallery.per_item != 1 or not _works():
        return None
    sides = queries.array[:, 0], gallery.array[:, 0]
    if not all(len(side) and side.dtype == np.float32 and side.flags.c_contiguous for side in sides):
        return None
    return SampledProducts(torch, *sides, bunch_bytes)


@cache
def _works() -> bool:
    """Whether this torch multiplies so on the CPU; a first call also spends its warning of being new."""
    torch = loaded_torch()
    eye = np.eye(3, dtype=np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            products = SampledProducts(torch, eye, eye).float32(np.arange(3), np.arange(3))
        except (RuntimeError, AttributeError):
            return False
    return bool(np.array_equal(products, np.ones(3)))


def _order(positions: Positions) -> Positions:
    """What sorts positions below 2^32: they and their places in one integer, which sorts fastest."""
    keys = (positions.astype(np.uint64) << np.uint64(32)) | np.arange(len(positions), dtype=np.uint64)
    keys.sort()
    keys &= np.uint64(0xFFFFFFFF)
    return keys.view(np.int64)
