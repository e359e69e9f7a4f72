"""The inner loops of a search, compiled by numba. Imported late, see ``mitl.retrieval.processor``.

The first use on a machine compiles for a second and keeps the result on disk beside this file.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic, overload

_CHUNK = 32
"""Cells that are compared at once."""
_INFINITE = 0x7F800000
"""The bits of infinity."""
LINE = 64
"""Bytes that come into a processor's caches at once."""
EIGHT = 8
"""Numbers of float16 that are widened at once."""


SOURCES = hashlib.sha256(
    b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*kernels.py")))
).hexdigest()
"""Of all kernels."""


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """numba's `njit` without Python's lock, kept on disk until any of the kernels' sources changes.

    numba itself looks at the file of the function alone, but others build the instructions that it is made of.
    """

    def compile_function(function: Callable[..., Any]) -> Any:
        dispatcher = njit(nogil=True, cache=True, **options)(function)
        if hasattr(dispatcher, "_cache"):  # which a process without compilation lacks
            dispatcher._cache._cache_file._source_stamp = SOURCES
        return dispatcher

    return compile_function


# The order of the sum is left to the compiler, which so fills whole registers; the caller's bound covers any order.
@compiled(fastmath={"reassoc", "contract"})
def _product(query: Any, item: Any) -> Any:
    total = 0.0
    for d in range(len(query)):
        total += np.float64(query[d]) * np.float64(item[d])
    return total


def _typed_widen(typing: Any, where: Any) -> Any:
    """Eight numbers of float16 at an address as float32 at another: numba knows no float16 on processors."""

    def write(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        kinds = ir.VectorType(ir.HalfType(), 8), ir.VectorType(ir.FloatType(), 8)
        read, taken = (
            builder.inttoptr(address, kind.as_pointer())
            for address, kind in zip(cgutils.unpack_tuple(builder, arguments[0]), kinds, strict=True)
        )
        halves = builder.load(read)
        halves.align = 2
        builder.store(builder.fpext(halves, kinds[1]), taken).align = 4
        return context.get_dummy_value()

    return types.void(types.UniTuple(types.intp, 2)), write


_widen_eight: Any = intrinsic(_typed_widen)


def has(*features: str) -> bool:
    """Whether the processor that numba compiles for has all of these, by LLVM's names."""
    return {f"+{name}" for name in features} <= {
        *cpu_target.target_context.codegen().magic_tuple()[2].split(",")
    }


def widens_halves() -> bool:
    """Whether the processor that numba compiles for turns float16 into float32 itself."""
    return has("f16c") or platform.machine() in ("aarch64", "arm64")


def _vector(array: Any, item: int, k: int, scratch: Any, known: bool) -> Any:
    """A vector of an item in float32; where ``array`` holds bits of float16, in ``scratch``, if not known already."""


@overload(_vector)
def _typed_vector(array: Any, item: int, k: int, scratch: Any, known: bool) -> Any:
    def single(array: Any, item: int, k: int, scratch: Any, known: bool) -> Any:
        return array[item, k]

    def half(array: Any, item: int, k: int, scratch: Any, known: bool) -> Any:
        if not known:
            bits, last = array[item, k], len(scratch) - 8
            for start in range(0, last, 8):
                _widen_eight((bits.ctypes.data + 2 * start, scratch.ctypes.data + 4 * start))
            _widen_eight((bits.ctypes.data + 2 * last, scratch.ctypes.data + 4 * last))
        return scratch

    return half if array.dtype == types.uint16 else single


def _typed_lowest(typing: Any, marks: Any) -> Any:
    """The place of the lowest bit that is set."""

    def write(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), write


lowest: Any = intrinsic(_typed_lowest)


def _typed_prefetch(typing: Any, address: Any) -> Any:
    """Have what lies there in the caches soon."""

    def write(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        called = builder.module.declare_intrinsic(
            "llvm.prefetch", (byte,), ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        )
        flags = [ir.Constant(flag, number) for number in (0, 3, 1)]  # to read numbers, again and again
        builder.call(called, [builder.inttoptr(arguments[0], byte), *flags])
        return context.get_dummy_value()

    return types.void(types.intp), write


prefetch: Any = intrinsic(_typed_prefetch)


def _typed_reaching(typing: Any, where: Any, cells: Any) -> Any:
    """A bit for each of _CHUNK cells, the first lowest: does it reach its floor? By addresses, and the cells' array."""

    def write(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        kind = ir.VectorType(context.get_value_type(cells.dtype), _CHUNK)
        here, floors = (
            builder.load(builder.inttoptr(address, kind.as_pointer()), align=4)
            for address in cgutils.unpack_tuple(builder, arguments[0])
        )
        compare = builder.fcmp_ordered if isinstance(cells.dtype, types.Float) else builder.icmp_signed
        bits = builder.bitcast(compare(">=", here, floors), ir.IntType(_CHUNK))
        return builder.zext(bits, ir.IntType(64))

    return types.int64(types.UniTuple(types.intp, 2), cells), write


_reaching: Any = intrinsic(_typed_reaching)


@compiled()
def similarities(
    rows: Any, positions: Any, queries: Any, gallery: Any, error: float, out: Any, unsure: Any
) -> int:
    """The largest of the K x L inner products of each pair, rounded to float32 where that is certain.

    Args:
        rows, positions: (n,) int64 places in queries (Q, K, D) and gallery (G, L, D), float32 or, from
            8 numbers on, the bits of float16.
        error: how far a sum may be off.
        out: (n,) float32.
        unsure: (n,) int64, takes the places of pairs whose sums within the error round to different numbers.

    Returns:
        How many are unsure.
    """
    count = 0
    some, other = np.empty(queries.shape[1:], np.float32), np.empty(queries.shape[2], np.float32)
    for pair in range(len(rows)):
        best, known = -np.inf, pair > 0 and rows[pair] == rows[pair - 1]
        for k in range(queries.shape[1]):
            query = _vector(queries, rows[pair], k, some[k], known)
            for m in range(gallery.shape[1]):
                best = max(best, _product(query, _vector(gallery, positions[pair], m, other, False)))
        low, high = np.float32(best - error), np.float32(best + error)
        out[pair] = low
        if low != high:
            unsure[count] = pair
            count += 1
    return count


@compiled(fastmath={"reassoc", "contract"})
def to_bfloat16(block: Any, bits: Any, squares: Any, lost: Any) -> None:
    """Round numbers to the nearest bfloat16, and tell what that takes away.

    Args:
        block: (n, K, D) float32.
        bits: (K, n, D) int16, takes the bits.
        squares, lost: (n,) float64, take the squared length of an item's longest vector and of the longest difference.
    """
    for item in range(block.shape[0]):
        longest, farthest = 0.0, 0.0
        for k in range(block.shape[1]):
            vector, out = block[item, k], bits[k, item]
            square, difference = 0.0, 0.0
            for d in range(len(vector)):
                number = np.float32(vector[d])
                pattern = number.view(np.uint32)
                # Half of the last place that is kept, less one where the tie goes to the even number below.
                rounded = np.uint32(pattern + np.uint32(0x7FFF) + ((pattern >> np.uint32(16)) & np.uint32(1)))
                kept = np.uint32(rounded & np.uint32(0xFFFF0000))
                out[d] = np.int16(np.uint16(kept >> np.uint32(16)))
                away = np.float64(number) - np.float64(kept.view(np.float32))
                square += np.float64(number) * np.float64(number)
                difference += away * away
            # A NaN must not lose the comparison.
            longest = longest if square <= longest else square
            farthest = farthest if difference <= farthest else difference
        squares[item], lost[item] = longest, farthest


@compiled(fastmath={"reassoc", "contract"})
def to_steps(vectors: Any, inverses: Any, whole: Any, lost: Any) -> None:
    """Whole steps, at most 127 of them, nearest to vectors (n, D) float32.

    Args:
        inverses: (n,) float32, steps per 1.
        whole: (n, D) int8, takes the steps.
        lost: (n,) float64, takes the squared length, in steps, of what is lost.
    """
    for item in range(vectors.shape[0]):
        total = 0.0
        for d in range(vectors.shape[1]):
            scaled = vectors[item, d] * inverses[item]
            nearest = min(max(np.rint(scaled), np.float32(-127)), np.float32(127))
            whole[item, d] = np.int8(nearest)
            away = scaled - nearest
            total += np.float64(away) * np.float64(away)
        lost[item] = total


@compiled()
def reaching(
    cells: Any, line: int, shape: tuple[int, int], least: Any, of_rows: bool, places: tuple[Any, Any]
) -> int:
    """The places, in order of rows, of cells that reach the least of their row or of their column.

    Args:
        cells: (n, m), the ``shape``, in one dimension, with rows ``line`` apart: so loops know their neighbours.
        least: (n,) where it is the rows' (``of_rows``), else (m,), of the type of the cells.
        places: int64, take the rows and the columns.

    Returns:
        How many there are; -1 where they are more than there is room for.
    """
    count, (rows, columns) = 0, places
    floors = np.empty(_CHUNK, cells.dtype)
    for row in range(shape[0]):
        if of_rows:
            floors[:] = least[row]
        for start in range(0, shape[1], _CHUNK):
            here, own = cells.ctypes.data + (row * line + start) * cells.itemsize, floors.ctypes.data
            if start + _CHUNK <= shape[1]:
                if not of_rows:
                    own = least.ctypes.data + start * least.itemsize
                left_over = _reaching((here, own), cells)
            else:
                left_over = np.int64(0)
                for place in range(shape[1] - start):
                    floor = least[row] if of_rows else least[start + place]
                    left_over |= np.int64(cells[row * line + start + place] >= floor) << place
            while left_over:
                if count == len(rows):
                    return -1
                rows[count], columns[count] = row, start + lowest(left_over)
                left_over &= left_over - 1
                count += 1
    return count


@compiled()
def store(
    rows: Any, positions: Any, values: Any, up: int, bounds: Any, table: Any, fill: Any, rest: Any
) -> int:
    """Put keys (see ``mitl.retrieval.survivors``) that are not beyond the bounds of their rows on free places.

    Args:
        rows, positions: (n,) integers, in any order.
        values: (n,) floats without NaN.
        up: 1 where the next float32 above takes the place of a value, else 0.
        bounds, fill: (rows,) the worst keys that are wanted, and how many places are taken, which grows.
        table: (rows, places) uint64, takes the keys.
        rest: (n,) int64, takes the numbers of the keys that found no room.

    Returns:
        How many found none.
    """
    count = 0
    for number in range(len(rows)):
        value = np.float32(np.float32(values[number]) + np.float32(0))
        row, bits = rows[number], np.int64(value.view(np.int32))
        rising: Any = min((bits ^ ((bits >> 63) & 0x7FFFFFFF)) + up, _INFINITE)
        rising += int(rising == -1)  # which is -0.0
        key = (np.uint64(0x7FFFFFFF - rising) << np.uint64(32)) | np.uint64(positions[number])
        if key > bounds[row]:
            continue
        if fill[row] < table.shape[1]:
            table[row, fill[row]] = key
            fill[row] += 1
        else:
            rest[count] = number
            count += 1
    return count


@compiled()
def trim(keys: Any, bounds: Any, kept: Any) -> None:
    """Put the worst key in the places of sorted rows (n, m) that are beyond the bounds (n,); ``kept`` (n,) others."""
    for row in range(len(keys)):
        low, high = 0, keys.shape[1]
        while low < high:
            middle = (low + high) // 2
            if keys[row, middle] > bounds[row]:
                high = middle
            else:
                low = middle + 1
        keys[row, low:] = np.uint64(0xFFFFFFFFFFFFFFFF)
        kept[row] = low
