"""Products of 16-bit integers in registers, for processors of the x86 family with AVX2. Imported late.

The instruction ``vpmaddwd`` multiplies 16 pairs of 16-bit numbers and adds neighbours: twice the pairs of one in
float32. numba's loops do not compile to it, so the innermost loop is written for LLVM. Panels that stay in a core's
caches surround a block of sums in registers, after Goto and van de Geijn, Anatomy of High-Performance Matrix
Multiplication (ACM TOMS 34, 2008).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

ROWS, COLUMNS = 6, 16
"""Sums that are kept in registers, eight to one of them."""
_LANES = 8
_LEFT_BYTES = 1 << 18
"""Rows that stay in a core's second cache while all columns go by."""

_WORD, _SIZE, _REAL = ir.IntType(32), ir.IntType(64), ir.FloatType()
_WORDS, _REALS = ir.VectorType(_WORD, _LANES), ir.VectorType(_REAL, _LANES)
_HALVES = ir.VectorType(ir.IntType(16), 2 * _LANES)


def runs_here() -> bool:
    """Whether the processor that numba compiles for has the instruction."""
    return "+avx2" in cpu_target.target_context.codegen().magic_tuple()[2].split(",")


def _typed_block(typing: Any, where: Any) -> Any:
    """The near similarities of ROWS x COLUMNS vectors.

    Args:
        where: addresses, and strides in bytes: rows of int16 and how far apart they are, a panel (pairs, COLUMNS, 2) of
            int16 and its pairs, what the integer 1 stands for in each row and in each column, float32, and rows of
            float32, which take the similarities, with how far apart they are.
    """
    return types.void(types.UniTuple(types.intp, 8)), _write_block


_block: Any = intrinsic(_typed_block)


def _write_block(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
    left, stride, right, pairs, steps, scales, out, line = cgutils.unpack_tuple(builder, arguments[0])
    vectors = COLUMNS // _LANES
    multiply_add = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_WORDS, [_HALVES, _HALVES]), "llvm.x86.avx2.pmadd.wd"
    )

    def number(value: int) -> Any:
        return ir.Constant(_SIZE, value)

    def load(address: Any, kind: Any, align: int) -> Any:
        loaded = builder.load(builder.inttoptr(address, kind.as_pointer()))
        loaded.align = align
        return loaded

    def spread(value: Any, kind: Any) -> Any:
        empty = ir.Constant(kind, ir.Undefined)
        first = builder.insert_element(empty, value, ir.Constant(_WORD, 0))
        return builder.shuffle_vector(first, empty, ir.Constant(_WORDS, [0] * _LANES))

    entry, loop, end = builder.block, builder.append_basic_block("pairs"), builder.append_basic_block("sums")
    rows = [builder.add(left, builder.mul(stride, number(row))) for row in range(ROWS)]
    builder.branch(loop)
    builder.position_at_end(loop)
    pair = builder.phi(_SIZE)
    sums = [[builder.phi(_WORDS) for _ in range(vectors)] for _ in range(ROWS)]
    at = builder.add(right, builder.mul(pair, number(4 * COLUMNS)))
    panel = [
        builder.bitcast(load(builder.add(at, number(4 * _LANES * v)), _WORDS, 4), _HALVES)
        for v in range(vectors)
    ]
    offset = builder.mul(pair, number(4))
    added = []
    for row in range(ROWS):
        both = builder.bitcast(spread(load(builder.add(rows[row], offset), _WORD, 4), _WORDS), _HALVES)
        added.append(
            [builder.add(sums[row][v], builder.call(multiply_add, [both, panel[v]])) for v in range(vectors)]
        )
    following = builder.add(pair, number(1))
    pair.add_incoming(number(0), entry)
    pair.add_incoming(following, loop)
    for row in range(ROWS):
        for v in range(vectors):
            sums[row][v].add_incoming(ir.Constant(_WORDS, [0] * _LANES), entry)
            sums[row][v].add_incoming(added[row][v], loop)
    builder.cbranch(builder.icmp_signed("<", following, pairs), loop, end)
    builder.position_at_end(end)
    for v in range(vectors):
        scale = load(builder.add(scales, number(4 * _LANES * v)), _REALS, 4)
        for row in range(ROWS):
            step = spread(load(builder.add(steps, number(4 * row)), _REAL, 4), _REALS)
            near = builder.fmul(builder.fmul(builder.sitofp(added[row][v], _REALS), scale), step)
            place = builder.add(builder.add(out, builder.mul(line, number(row))), number(4 * _LANES * v))
            builder.store(near, builder.inttoptr(place, _REALS.as_pointer())).align = 4
    return context.get_dummy_value()


@njit(nogil=True, cache=True)
def multiply(left: Any, steps: Any, right: Any, scales: Any, out: Any) -> None:
    """The products of all rows with all columns in float32, each the exact sum of integers, rounded, times its steps.

    Args:
        left: (n, D) int16, n a multiple of ROWS, D even. No vector is longer than 2^15.5.
        right: (m / COLUMNS, D, COLUMNS) int16: two numbers of each of a panel's vectors, then the next two.
        steps, scales: (n,) and (m,) float32, what the integer 1 stands for.
        out: (n, m) float32.
    """
    rows, width = left.shape
    high = max(ROWS, _LEFT_BYTES // (2 * width) // ROWS * ROWS)
    for first in range(0, rows, high):
        for panel in range(right.shape[0]):
            for row in range(first, min(first + high, rows), ROWS):
                _block(
                    (
                        left.ctypes.data + row * 2 * width,
                        2 * width,
                        right.ctypes.data + panel * 2 * width * COLUMNS,
                        width // 2,
                        steps.ctypes.data + 4 * row,
                        scales.ctypes.data + 4 * panel * COLUMNS,
                        out.ctypes.data + 4 * (row * out.shape[1] + panel * COLUMNS),
                        4 * out.shape[1],
                    )
                )


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def to_steps(
    block: Any, most: tuple[float, float, float], out: Any, first: int, found: tuple[Any, Any, Any]
) -> None:
    """Whole steps nearest to vectors, in steps of each item's own, put into panels.

    Args:
        block: (n, K, D) float32.
        most: the length that a vector may have in steps, the largest number, and the least step.
        out: (K, panels, pairs, columns) int32, takes two numbers in one.
        first: which item of ``out`` the first one is.
        found: (n,) each: takes the steps, float32, and the squared lengths of the longest vectors and, in steps, of the
            most that is lost, float64.
    """
    steps, squares, lost = found
    columns = out.shape[3]
    whole = np.zeros(2 * out.shape[2], np.int16)
    both = whole.view(np.int32)
    for item in range(block.shape[0]):
        longest, reach = 0.0, np.float32(0)
        for k in range(block.shape[1]):
            vector, square, farthest = block[item, k], 0.0, np.float32(0)
            for d in range(len(vector)):
                square += np.float64(vector[d]) * np.float64(vector[d])
                size = abs(vector[d])
                farthest = size if size > farthest else farthest
            longest = longest if square <= longest else square  # a NaN must not lose the comparison
            reach = max(reach, farthest)
        # A little more, so that no rounding here makes a vector too long.
        wanted = max(np.sqrt(longest) / most[0], np.float64(reach) / most[1]) * (1 + 2.0**-20)
        steps[item] = np.float32(max(wanted, most[2]))
        inverse, farthest_lost = np.float32(1) / steps[item], 0.0
        panel, column = divmod(first + item, columns)
        for k in range(block.shape[1]):
            vector, total = block[item, k], 0.0
            for d in range(len(vector)):
                scaled = vector[d] * inverse
                nearest = np.rint(scaled)
                whole[d] = np.int16(np.int32(nearest))
                away = np.float64(scaled - nearest)
                total += away * away
            farthest_lost = max(farthest_lost, total)
            for pair in range(len(both)):
                out[k, panel, pair, column] = both[pair]
        squares[item], lost[item] = longest, farthest_lost
