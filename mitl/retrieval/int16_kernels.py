"""Products of 16-bit integers in registers, for processors of the x86 family with AVX2. Imported late.

The instruction ``vpmaddwd`` multiplies 16 pairs of 16-bit numbers and adds neighbours: twice the pairs of one in
float32. numba's loops do not compile to it, so the innermost loop is written for LLVM. Panels that stay in a core's
caches surround a block of sums in registers, after Goto and van de Geijn, Anatomy of High-Performance Matrix
Multiplication (ACM TOMS 34, 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mitl.retrieval.kernels import compiled, has, lowest

WIDE = has("avx512f", "avx512bw", "avx512vnni")
"""Whether one instruction multiplies 32 pairs and adds them to 16 sums, instead of two for half as many."""
LANES = 16 if WIDE else 8
ROWS, COLUMNS = (12, 32) if WIDE else (6, 16)
"""Sums that are kept in registers, LANES to one of them."""
Sums = list[list[Any]]
"""Rows of vectors in registers."""
_LEFT_BYTES = 1 << 18
"""Rows that stay in a core's second cache while all columns go by."""

_WORD, _SIZE, _REAL = ir.IntType(32), ir.IntType(64), ir.FloatType()
_WORDS, _REALS = ir.VectorType(_WORD, LANES), ir.VectorType(_REAL, LANES)
_HALVES = ir.VectorType(ir.IntType(16), 2 * LANES)


def runs_here() -> bool:
    """Whether the processor that numba compiles for has the instruction."""
    return has("avx2")


def _typed_block(typing: Any, where: Any) -> Any:
    """The highest similarities of ROWS x COLUMNS vectors, and whether any reaches the floor of its row or column.

    Args:
        where: addresses, and strides in bytes: a panel (pairs, ROWS, 2) of int16 of the left, one (pairs, COLUMNS, 2)
            of the right, their pairs; of the rows and of the columns their factors with their stride, and their floors;
            rows of float32, which take the similarities, with their stride, and the rows' words, which take the marks
            (see ``highest_sums``).
    """
    return types.boolean(types.UniTuple(types.intp, 12)), _write_block


_block: Any = intrinsic(_typed_block)


def _write_block(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
    left, right, pairs, *limits, out, line, marks = cgutils.unpack_tuple(builder, arguments[0])
    vectors = COLUMNS // LANES

    def add(pair: Any, sums: Sums) -> Sums:
        here, there = (
            builder.add(panel, builder.mul(pair, ir.Constant(_SIZE, 4 * width)))
            for panel, width in ((left, ROWS), (right, COLUMNS))
        )
        columns = [load_at(builder, there, LANES * v, _WORDS) for v in range(vectors)]
        added = []
        for row, of_row in enumerate(sums):
            both = spread(builder, load_at(builder, here, row, _WORD), _WORDS)
            pairs_of_row = zip(of_row, columns, strict=True)
            added.append([add_products(builder, total, both, column) for total, column in pairs_of_row])
        return added

    zeros = [[ir.Constant(_WORDS, [0] * LANES)] * vectors] * ROWS
    added = loop_of_sums(builder, pairs, zeros, add)
    return highest_sums(builder, added, limits, marks, (out, line))


def add_products(builder: Any, total: Any, *pair: Any) -> Any:
    """Add products of two vectors of 16-bit numbers, two by two, to sums, of which each takes 32 bits."""
    kinds, name = ([_WORDS] * 3, "avx512.vpdpwssd.512") if WIDE else ([_HALVES] * 2, "avx2.pmadd.wd")
    multiply = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_WORDS, kinds), f"llvm.x86.{name}"
    )
    if WIDE:
        return builder.call(multiply, [total, *pair])
    return builder.add(total, builder.call(multiply, [builder.bitcast(one, _HALVES) for one in pair]))


def loop_of_sums(builder: Any, steps: Any, starts: Sums, add: Callable[[Any, Sums], Sums]) -> Sums:
    """Sums that stay in registers through a loop; what is built next comes after it.

    Args:
        steps: how many times it runs, at least once.
        starts: the sums before it, rows of vectors.
        add: builds one step, of its number from 0 and the sums before it; returns the sums after it.
    """
    entry, loop = builder.block, builder.append_basic_block("loop")
    builder.branch(loop)
    builder.position_at_end(loop)
    step, sums = builder.phi(_SIZE), [[builder.phi(start.type) for start in row] for row in starts]
    added = add(step, sums)
    following, last = builder.add(step, ir.Constant(_SIZE, 1)), builder.block
    phis = step, *chain(*sums)
    firsts = ir.Constant(_SIZE, 0), *chain(*starts)
    nexts = following, *chain(*added)
    for phi, before, after in zip(phis, firsts, nexts, strict=True):
        phi.add_incoming(before, entry)
        phi.add_incoming(after, last)
    end = builder.append_basic_block("end")
    builder.cbranch(builder.icmp_signed("<", following, steps), loop, end)
    builder.position_at_end(end)
    return added


def load_at(builder: Any, address: Any, number: int, kind: Any) -> Any:
    """What lies so many numbers of 4 bytes after an address."""
    place = builder.add(address, ir.Constant(_SIZE, 4 * number))
    loaded = builder.load(builder.inttoptr(place, kind.as_pointer()))
    loaded.align = 4
    return loaded


def spread(builder: Any, value: Any, kind: Any) -> Any:
    """A vector of one number."""
    empty = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(empty, value, ir.Constant(_WORD, 0))
    return builder.shuffle_vector(
        first, empty, ir.Constant(ir.VectorType(_WORD, kind.count), [0] * kind.count)
    )


def highest_sums(builder: Any, sums: Any, limits: Any, marks: Any, out: Any = None) -> Any:
    """Mark which pairs' highest similarities reach the floor of their row or column, and give whether any does.

    Args:
        sums: for each row its vectors of sums, of columns side by side.
        limits: of the rows and then of the columns the addresses of their factors (3, n) float32 (see
            ``mitl.retrieval.vectors.error_factors``), their stride, and the address of their floors.
        marks: the address of a word for each row, which takes a bit for each column, the first lowest.
        out: the address of rows of float32, which take the highest similarities, and how far they are apart.
    """
    vectors, lanes = len(sums[0]), sums[0][0].type.count
    reals, word = ir.VectorType(_REAL, lanes), ir.IntType(vectors * lanes)
    some = ir.Constant(word, 0)
    multiply_add = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(reals, [reals] * 3), f"llvm.fmuladd.v{lanes}f32"
    )
    numbers = [
        [builder.add(factors, builder.mul(stride, ir.Constant(_SIZE, n))) for n in range(3)] + [floors]
        for factors, stride, floors in (limits[:3], limits[3:])
    ]
    columns = [[load_at(builder, line, lanes * v, reals) for line in numbers[1]] for v in range(vectors)]
    for row, of_row in enumerate(sums):
        step, length, loss, own = (
            spread(builder, load_at(builder, line, row, _REAL), reals) for line in numbers[0]
        )
        reach = None
        for v, (vector, (scale, other_loss, other_length, floor)) in enumerate(
            zip(of_row, columns, strict=True)
        ):
            near = builder.fmul(builder.fmul(builder.sitofp(vector, reals), scale), step)
            highest = builder.call(multiply_add, [length, other_loss, near])
            highest = builder.call(multiply_add, [loss, other_length, highest])
            if out is not None:
                place = builder.add(out[0], builder.mul(out[1], ir.Constant(_SIZE, row)))
                place = builder.add(place, ir.Constant(_SIZE, 4 * lanes * v))
                builder.store(highest, builder.inttoptr(place, reals.as_pointer())).align = 4
            limit = builder.select(builder.fcmp_ordered("<", own, floor), own, floor)
            here = builder.fcmp_ordered(">=", highest, limit)
            both = ir.Constant(ir.VectorType(_WORD, (v + 1) * lanes), list(range((v + 1) * lanes)))
            reach = here if reach is None else builder.shuffle_vector(reach, here, both)
        bits = builder.bitcast(reach, word)
        some = builder.or_(some, bits)
        place = builder.inttoptr(builder.add(marks, ir.Constant(_SIZE, 4 * row)), _WORD.as_pointer())
        builder.store(bits if word.width == _WORD.width else builder.zext(bits, _WORD), place).align = 4
    return builder.icmp_unsigned("!=", some, ir.Constant(word, 0))


@compiled()
def pack(pairs: Any, out: Any) -> None:
    """Vectors (n, D / 2), two numbers of int16 in one of int32, into panels (n / width, D / 2, width) of int32."""
    width = out.shape[2]
    for item in range(len(out) * width):
        for pair in range(out.shape[1]):
            out[item // width, pair, item % width] = pairs[item, pair] if item < len(pairs) else 0


@compiled()
def multiply(left: Any, steps: Any, right: Any, scales: Any, out: Any) -> None:
    """The products of all rows with all columns in float32, each the exact sum of integers, rounded, times its steps.

    Args:
        left: (n / ROWS, D, ROWS) int16: two numbers of each of a panel's vectors, then the next two. No vector is
            longer than 2^15.5.
        right: (m / COLUMNS, D, COLUMNS) int16, in the same way.
        steps, scales: (n,) and (m,) float32, what the integer 1 stands for.
        out: (n, m) float32.
    """
    never, marks = np.full(COLUMNS, np.inf, np.float32), np.zeros(ROWS, np.uint32)
    # Without their other factors, the highest similarities are the near ones.
    rows, columns = np.zeros((3, len(steps)), np.float32), np.zeros((3, len(scales)), np.float32)
    rows[0], columns[0] = steps, scales
    for first, last in _groups(left):
        for panel in range(len(right)):
            for row in range(first, last):
                place = out.ctypes.data + 4 * (row * ROWS * out.shape[1] + panel * COLUMNS)
                _block(
                    (
                        left.ctypes.data + row * 2 * ROWS * left.shape[1],
                        right.ctypes.data + panel * 2 * COLUMNS * left.shape[1],
                        left.shape[1] // 2,
                        rows.ctypes.data + 4 * row * ROWS,
                        rows.strides[0],
                        never.ctypes.data,
                        columns.ctypes.data + 4 * panel * COLUMNS,
                        columns.strides[0],
                        never.ctypes.data,
                        place,
                        4 * out.shape[1],
                        marks.ctypes.data,
                    )
                )


@compiled()
def _groups(left: Any) -> Any:
    """The first panel of rows that stay in a cache together, and the one after them."""
    high = max(1, _LEFT_BYTES // (2 * ROWS * left.shape[1]))
    return [(first, min(first + high, len(left))) for first in range(0, len(left), high)]


@compiled()
def sift(sides: Any, factors: Any, floors: Any, shape: tuple[int, int], found: Any) -> tuple[int, int]:
    """Pairs whose highest similarity reaches the floor of their row, and of their column; no other is written down.

    Args:
        sides: left and right of ``multiply``.
        factors: (3, n) and (3, m) float32 (see ``mitl.retrieval.vectors.error_factors``).
        floors: (n,) and (m,) float32.
        shape: how many rows and columns there are without those that fill the last panels.
        found: (2, most) rows and columns, int32, and highest similarities, float32: those that reach the rows' and
            those that reach the columns', in no order.

    Returns:
        How many there are of either; -1 where there is no room for them.
    """
    (left, right), (rows, columns, highest) = sides, found
    most, counts = rows.shape[1], np.zeros(2, np.int64)
    block, marks = np.empty((ROWS, COLUMNS), np.float32), np.zeros(ROWS, np.uint32)
    for first, last in _groups(left):
        for panel in range(len(right)):
            for group in range(first, last):
                row, column = group * ROWS, panel * COLUMNS
                if not _block(
                    (
                        left.ctypes.data + row * 2 * left.shape[1],
                        right.ctypes.data + column * 2 * left.shape[1],
                        left.shape[1] // 2,
                        factors[0].ctypes.data + 4 * row,
                        factors[0].strides[0],
                        floors[0].ctypes.data + 4 * row,
                        factors[1].ctypes.data + 4 * column,
                        factors[1].strides[0],
                        floors[1].ctypes.data + 4 * column,
                        block.ctypes.data,
                        4 * COLUMNS,
                        marks.ctypes.data,
                    )
                ):
                    continue
                if counts.max() + ROWS * COLUMNS > most:
                    return -1, -1
                for i in range(row, min(row + ROWS, shape[0])):
                    left_over = np.int64(marks[i - row])
                    while left_over:
                        j = column + lowest(left_over)
                        left_over &= left_over - 1
                        value = block[i - row, j - column]
                        for side in range(2 if j < shape[1] else 0):
                            if value >= (floors[0][i] if side == 0 else floors[1][j]):
                                place = counts[side]
                                rows[side, place], columns[side, place], highest[side, place] = i, j, value
                                counts[side] += 1
    return counts[0], counts[1]


@compiled(fastmath={"reassoc", "contract"})
def to_steps(
    block: Any, bits: Any, most: tuple[float, float, float], out: Any, found: tuple[Any, Any, Any]
) -> None:
    """Whole steps nearest to vectors, in steps of each item's own.

    Args:
        block, bits: (n, K, D) float32, and the same memory as int32.
        most: the length that a vector may have in steps, the largest number, and the least step.
        out: (K, n, D or more) int16, takes the numbers.
        found: (n,) each: takes the steps, float32, and the squared lengths of the longest vectors and, in steps, of the
            most that is lost, float64.
    """
    steps, squares, lost = found
    largest = np.zeros(1, np.int32)
    reach = largest.view(np.float32)
    for item in range(block.shape[0]):
        longest, largest[0] = 0.0, 0
        for k in range(block.shape[1]):
            vector, square = block[item, k], 0.0
            for d in range(len(vector)):
                square += np.float64(vector[d]) * np.float64(vector[d])
            longest = longest if square <= longest else square  # a NaN must not lose the comparison
            largest[0] = max(largest[0], largest_bits(bits[item, k]))
        # A little more, so that no rounding here makes a vector too long.
        wanted = max(np.sqrt(longest) / most[0], np.float64(reach[0]) / most[1]) * (1 + 2.0**-20)
        steps[item] = np.float32(max(wanted, most[2]))
        inverse, farthest_lost = np.float32(1) / steps[item], np.float32(0)
        for k in range(block.shape[1]):
            vector, whole, total = block[item, k], out[k, item], np.float32(0)
            for d in range(len(vector)):
                scaled = vector[d] * inverse
                nearest = np.rint(scaled)
                whole[d] = np.int16(np.int32(nearest))
                away = scaled - nearest
                total += away * away
            farthest_lost = max(farthest_lost, total)
        squares[item], lost[item] = longest, farthest_lost


@compiled()
def largest_bits(bits: Any) -> Any:
    """The bits of the largest number without its sign: those of floats have their order, and registers compare them."""
    most = np.int32(0)
    for d in range(len(bits)):
        most = max(most, np.int32(bits[d] & np.int32(0x7FFFFFFF)))
    return most
