"""A sieve before the product by 16-bit integers: 8-bit ones at nearly twice its rate. Imported late.

The instruction ``vpmaddubsw`` multiplies 32 pairs of 8-bit numbers, of which the one of each pair has no sign, and adds
neighbours in 16 bits. So the left is shifted by ``SHIFT``, and what that adds is taken off each sum from the start:
additions in 16 bits may leave their range and come back, since only the whole sum of a segment has to lie in it. By the
inequality of Cauchy and Schwarz it does where the parts of the vectors that it sums are no longer than ``LONGEST``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from mitl.retrieval.int16_kernels import COLUMNS, LANES, ROWS, load_at, lowest, marks_of, near_sums, spread

QUAD, QUADS = 4, 8
"""Numbers of a vector that one instruction takes, and how many times it does in a segment."""
SEGMENT = QUAD * QUADS
PARTS = (QUADS, ROWS, QUAD), (1 + QUADS, COLUMNS, QUAD)
"""A segment of a panel of the left, uint8, and of one of the right, int8, whose first line takes the shift off."""
SHIFT = 64
MOST = (63, 127)
"""The largest number of the left and of the right: two products of these, shifted, do not leave 16 bits."""
LONGEST = (126.0, 260.0)
"""The longest part of a vector that one sum of 16 bits takes in; the product of the two lies within 16 bits."""
_LEFT_BYTES = 1 << 17
"""Rows that stay in a core's second cache while all columns go by."""

_WORD, _SIZE = ir.IntType(32), ir.IntType(64)
_WORDS, _HALVES = ir.VectorType(_WORD, LANES), ir.VectorType(ir.IntType(16), 2 * LANES)
_BYTES = ir.VectorType(ir.IntType(8), 4 * LANES)


def _typed_block(typing: Any, where: Any) -> Any:
    """The near similarities of ROWS x COLUMNS vectors, and whether any of them reaches the least of its row or column.

    Args:
        where: addresses: a panel of the left and one of the right as ``to_panels`` makes them, how many segments they
            have, and the rest as in ``int16_kernels``, rows of the similarities without a gap.
    """
    return types.boolean(types.UniTuple(types.intp, 8)), _write_block


_block: Any = intrinsic(_typed_block)


def _write_block(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
    left, right, segments, steps, scales, row_least, column_least, out = cgutils.unpack_tuple(
        builder, arguments[0]
    )
    vectors = COLUMNS // LANES
    multiply_bytes, multiply_add = (
        cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(kind, [other, other]), f"llvm.x86.avx2.{name}"
        )
        for kind, other, name in ((_HALVES, _BYTES, "pmadd.ub.sw"), (_WORDS, _HALVES, "pmadd.wd"))
    )
    ones = ir.Constant(_HALVES, [1] * (2 * LANES))

    def place(row: int, v: int) -> Any:
        address = builder.add(out, ir.Constant(_SIZE, 4 * (row * COLUMNS + v * LANES)))
        return builder.inttoptr(address, _WORDS.as_pointer())

    # The 16 registers hold the sums of 16 bits; those of 32 bits wait in memory, where the similarities will be.
    for row in range(ROWS):
        for v in range(vectors):
            builder.store(ir.Constant(_WORDS, [0] * LANES), place(row, v)).align = 4
    loop, inner, done, end = (
        builder.append_basic_block(name) for name in ("segments", "quads", "done", "sums")
    )
    entry = builder.branch(loop).parent
    builder.position_at_end(loop)
    segment = builder.phi(_SIZE)
    here, there = (
        builder.add(panel, builder.mul(segment, ir.Constant(_SIZE, QUAD * width)))
        for panel, width in ((left, QUADS * ROWS), (right, (1 + QUADS) * COLUMNS))
    )
    shifts = [builder.bitcast(load_at(builder, there, LANES * v, _WORDS), _HALVES) for v in range(vectors)]
    # LLVM is not to know the number: it would unroll the loop, load ahead and run out of registers.
    quads = builder.asm(ir.FunctionType(_SIZE, [_SIZE]), "", "=r,0", [ir.Constant(_SIZE, QUADS)], False)
    builder.branch(inner)
    builder.position_at_end(inner)
    quad = builder.phi(_SIZE)
    sums = [[builder.phi(_HALVES) for _ in range(vectors)] for _ in range(ROWS)]
    row_at = builder.add(here, builder.mul(quad, ir.Constant(_SIZE, QUAD * ROWS)))
    column_at = builder.add(there, builder.mul(quad, ir.Constant(_SIZE, QUAD * COLUMNS)))
    columns = [
        builder.bitcast(load_at(builder, column_at, COLUMNS + LANES * v, _WORDS), _BYTES)
        for v in range(vectors)
    ]
    added = []
    for row in range(ROWS):
        four = builder.bitcast(spread(builder, load_at(builder, row_at, row, _WORD), _WORDS), _BYTES)
        added.append(
            [
                builder.add(sums[row][v], builder.call(multiply_bytes, [four, columns[v]]))
                for v in range(vectors)
            ]
        )
    next_quad = builder.add(quad, ir.Constant(_SIZE, 1))
    quad.add_incoming(ir.Constant(_SIZE, 0), loop)
    quad.add_incoming(next_quad, inner)
    for row in range(ROWS):
        for v in range(vectors):
            sums[row][v].add_incoming(shifts[v], loop)
            sums[row][v].add_incoming(added[row][v], inner)
    builder.cbranch(builder.icmp_signed("<", next_quad, quads), inner, done)
    builder.position_at_end(done)
    for row in range(ROWS):
        for v in range(vectors):
            before = builder.load(place(row, v))
            before.align = 4
            after = builder.add(before, builder.call(multiply_add, [added[row][v], ones]))
            builder.store(after, place(row, v)).align = 4
    following = builder.add(segment, ir.Constant(_SIZE, 1))
    segment.add_incoming(ir.Constant(_SIZE, 0), entry)
    segment.add_incoming(following, done)
    builder.cbranch(builder.icmp_signed("<", following, segments), loop, end)
    builder.position_at_end(end)
    total = [
        [load_at(builder, out, row * COLUMNS + v * LANES, _WORDS) for v in range(vectors)]
        for row in range(ROWS)
    ]
    line = ir.Constant(_SIZE, 4 * COLUMNS)
    return near_sums(builder, total, (steps, scales), (row_least, column_least), (out, line))


def _typed_dot(typing: Any, where: Any) -> Any:
    """The inner product of two vectors of int16.

    Args:
        where: their addresses, and how many times 32 numbers they have.
    """
    return types.int32(types.UniTuple(types.intp, 3)), _write_dot


_dot: Any = intrinsic(_typed_dot)


def _write_dot(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
    one, other, count = cgutils.unpack_tuple(builder, arguments[0])
    multiply_add = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_WORDS, [_HALVES, _HALVES]), "llvm.x86.avx2.pmadd.wd"
    )
    entry, loop, end = builder.block, builder.append_basic_block("parts"), builder.append_basic_block("sum")
    builder.branch(loop)
    builder.position_at_end(loop)
    part, halves = builder.phi(_SIZE), [builder.phi(_WORDS) for _ in range(2)]
    offset = builder.mul(part, ir.Constant(_SIZE, 8 * LANES))
    for number, half in enumerate(halves):
        pair = [
            builder.bitcast(load_at(builder, builder.add(side, offset), LANES * number, _WORDS), _HALVES)
            for side in (one, other)
        ]
        half.add_incoming(ir.Constant(_WORDS, [0] * LANES), entry)
        half.add_incoming(builder.add(half, builder.call(multiply_add, pair)), loop)
    following = builder.add(part, ir.Constant(_SIZE, 1))
    part.add_incoming(ir.Constant(_SIZE, 0), entry)
    part.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, end)
    builder.position_at_end(end)
    sums = builder.add(*(half.incomings[1][0] for half in halves))
    total = builder.extract_element(sums, ir.Constant(_WORD, 0))
    for lane in range(1, LANES):
        total = builder.add(total, builder.extract_element(sums, ir.Constant(_WORD, lane)))
    return total


@njit(nogil=True, cache=True)
def sieve(panels: Any, scales: Any, coarse_least: Any, fine: Any, steps: Any, least: Any, found: Any) -> Any:
    """Pairs that reach the least of their row, and of their column, by 16-bit sums where 8-bit ones do not rule it out.

    Args:
        panels: (n / ROWS, bytes of a panel) and (m / COLUMNS, bytes), as ``to_panels`` makes them.
        scales, coarse_least: (n,) and (m,) float32: what their integer 1 stands for, and the least of each row and
            column for their near similarities.
        fine: the rows (n, D) and columns (m, D) in int16, D a multiple of SEGMENT, without those that fill panels.
        steps, least: (n,) and (m,) float32: the same of these.
        found: (2, most) rows and columns, int32, and near similarities, float32: those that reach the rows' and those
            that reach the columns', in no order.

    Returns:
        How many there are of either, and how many sums of 16 bits were made; -1 where there is no room, or where more
        sums than ``most`` are wanted.
    """
    (left, right), (rows, columns, near) = panels, found
    (queries, items), most = fine, found[0].shape[1]
    high = max(1, _LEFT_BYTES // (ROWS * queries.shape[1]))
    first_count, second_count, tried = 0, 0, 0
    block = np.empty((ROWS, COLUMNS), np.float32)
    segments = queries.shape[1] // SEGMENT
    for start in range(0, len(left), high):
        for panel in range(len(right)):
            for group in range(start, min(start + high, len(left))):
                row, column = group * ROWS, panel * COLUMNS
                if not _block(
                    (
                        left.ctypes.data + group * left.shape[1],
                        right.ctypes.data + panel * right.shape[1],
                        segments,
                        scales[0].ctypes.data + 4 * row,
                        scales[1].ctypes.data + 4 * column,
                        coarse_least[0].ctypes.data + 4 * row,
                        coarse_least[1].ctypes.data + 4 * column,
                        block.ctypes.data,
                    )
                ):
                    continue
                if tried + ROWS * COLUMNS > most:
                    return -1, -1, tried
                for i in range(row, min(row + ROWS, len(queries))):
                    values = block.ctypes.data + 4 * COLUMNS * (i - row)
                    floors = coarse_least[0].ctypes.data + 4 * i, coarse_least[1].ctypes.data + 4 * column
                    marks = marks_of((values, floors[0], floors[1]))
                    while marks:
                        j = column + lowest(marks)
                        marks &= marks - 1
                        if j >= len(items):
                            continue
                        tried += 1
                        total = _dot(
                            (
                                queries.ctypes.data + 2 * i * queries.shape[1],
                                items.ctypes.data + 2 * j * items.shape[1],
                                segments,
                            )
                        )
                        sharp = np.float32(np.float32(total) * steps[1][j]) * steps[0][i]
                        if sharp >= least[0][i]:
                            rows[0, first_count], columns[0, first_count], near[0, first_count] = i, j, sharp
                            first_count += 1
                        if sharp >= least[1][j]:
                            rows[1, second_count], columns[1, second_count], near[1, second_count] = (
                                i,
                                j,
                                sharp,
                            )
                            second_count += 1
    return first_count, second_count, tried


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def to_panels(block: Any, side: int, out: Any, first: int, found: tuple[Any, Any]) -> None:
    """Whole steps nearest to vectors, in steps of each item's own, put into panels.

    Args:
        block: (n, D) float32.
        side: 0 for the left, 1 for the right.
        out: (panels, segments, *PARTS[side]), zeros.
        first: which item of ``out`` the first one is.
        found: (n,) each: takes the steps, float32, and the squared lengths of what is lost, in steps, float64.
    """
    steps, lost = found
    columns = out.shape[3]
    shifts = np.zeros(2, np.int16)
    pairs = shifts.view(np.int8)
    most, longest = np.float32(MOST[side]), LONGEST[side]
    padded = np.zeros((out.shape[1], QUADS, QUAD), np.float32)
    flat = padded.reshape(-1)
    for item in range(block.shape[0]):
        vector = block[item]
        flat[: len(vector)] = vector
        reach, part = np.float32(0), 0.0
        for d in range(len(vector)):
            size = abs(vector[d])
            reach = size if size > reach else reach
        for segment in range(out.shape[1]):
            for half in range(2):
                square = 0.0
                for quad in range(QUADS):
                    for d in range(2):
                        number = np.float64(padded[segment, quad, 2 * half + d])
                        square += number * number
                part = max(part, square)
        # Rounding lengthens a part of 16 numbers by 2 at most; a little more for the rounding here.
        wanted = max(np.float64(reach) / most, np.sqrt(part) / (longest - 2)) * (1 + 2.0**-20)
        steps[item] = np.float32(max(wanted, 1e-30))
        inverse, total = np.float32(1) / steps[item], 0.0
        panel, column = divmod(first + item, columns)
        for segment in range(out.shape[1]):
            shifts[:] = 0
            for quad in range(QUADS):
                for d in range(QUAD):
                    scaled = padded[segment, quad, d] * inverse
                    nearest = np.rint(scaled)
                    away = np.float64(scaled - nearest)
                    total += away * away
                    whole = np.int16(np.int32(nearest))
                    if side == 0:
                        out[panel, segment, quad, column, d] = whole + SHIFT
                    else:
                        out[panel, segment, 1 + quad, column, d] = whole
                        shifts[d // 2] -= SHIFT * whole
            if side == 1:
                for d in range(QUAD):
                    out[panel, segment, 0, column, d] = pairs[d]
        lost[item] = total
