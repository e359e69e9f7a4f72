"""A sieve before the product by 16-bit integers: 8-bit ones at twice to sixteen times its rate. Imported late.

The instruction ``vpmaddubsw`` multiplies 32 pairs of 8-bit numbers, of which the one of each pair has no sign, and adds
neighbours in 16 bits. So the left is shifted by ``SHIFT``, and what that adds is taken off each sum from the start:
additions in 16 bits may leave their range and come back, since only the whole sum of a segment has to lie in it. By the
inequality of Cauchy and Schwarz it does where the parts of the vectors that it sums are no longer than ``LONGEST``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mitl.retrieval import amx_kernels, int16_kernels, vnni_kernels
from mitl.retrieval.int16_kernels import Sums, highest_sums, largest_bits, load_at, loop_of_sums, spread
from mitl.retrieval.kernels import LINE, compiled, lowest, prefetch

ROWS, COLUMNS, LANES = 6, 16, 8
"""Sums that are kept in registers, LANES to one of them."""
QUAD, QUADS = 4, 8
"""Numbers of a vector that one instruction takes, and how many times it does in a segment."""
PART = DEPTH = QUAD * QUADS
"""Numbers of a segment, of which vectors have whole ones."""
SHIFT = 64
WORTH = 30
"""Pairs to one that passes the sieve, below which 16-bit sums of all of them are cheaper."""
MOST = (63, 127)
"""The largest number of the left and of the right: two products of these, shifted, do not leave 16 bits."""
LONGEST = (126.0, 260.0)
"""The longest part of a vector that one sum of 16 bits takes in; the product of the two lies within 16 bits."""
LEFT_BYTES = 1 << 17
"""Rows that stay in a core's second cache while all columns go by."""

_NONE = np.uintp(0)
"""Of numbers without a sign, which as places are not looked at first: those below zero would count from the end."""
_WORD, _SIZE = ir.IntType(32), ir.IntType(64)
_WORDS, _HALVES = ir.VectorType(_WORD, LANES), ir.VectorType(ir.IntType(16), 2 * LANES)
_BYTES = ir.VectorType(ir.IntType(8), 4 * LANES)


def _typed_block(typing: Any, where: Any, panels: Any) -> Any:
    """Mark which of a panel's rows x columns may reach the floor of their row or column.

    Args:
        where: addresses: a panel of the left and one of the right as ``to_panels`` makes them, how many times DEPTH
            numbers their vectors have, the limits and the marks (see ``highest_sums``), and room for the sums, int32.
        panels: those of the left, whose type tells who made them: bytes for AVX2, words for VNNI, signed bytes for AMX.
    """
    made = {types.uint32: vnni_kernels.write_block, types.int8: amx_kernels.write_block}
    return types.boolean(types.UniTuple(types.intp, 11), panels), made.get(panels.dtype, _write_block)


_block: Any = intrinsic(_typed_block)


def _typed_tiles(typing: Any, panels: Any, keep: Any) -> Any:
    """Take the tiles of AMX where these panels, of the left, are for them, or give them back."""

    def write(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        if panels.dtype == types.int8:
            amx_kernels.write_shapes(builder, keep.literal_value)
        return context.get_dummy_value()

    return types.void(panels, keep), write


_tiles: Any = intrinsic(prefer_literal=True)(_typed_tiles)


def _write_block(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
    left, right, segments, *limits, marks, out = cgutils.unpack_tuple(builder, arguments[0])
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

    def add_segment(segment: Any, _: Sums) -> Sums:
        here, there = (
            builder.add(panel, builder.mul(segment, ir.Constant(_SIZE, QUAD * width)))
            for panel, width in ((left, QUADS * ROWS), (right, (1 + QUADS) * COLUMNS))
        )
        shifts = [
            builder.bitcast(load_at(builder, there, LANES * v, _WORDS), _HALVES) for v in range(vectors)
        ]

        def add_quad(quad: Any, sums: Sums) -> Sums:
            row_at = builder.add(here, builder.mul(quad, ir.Constant(_SIZE, QUAD * ROWS)))
            column_at = builder.add(there, builder.mul(quad, ir.Constant(_SIZE, QUAD * COLUMNS)))
            columns = [
                builder.bitcast(load_at(builder, column_at, COLUMNS + LANES * v, _WORDS), _BYTES)
                for v in range(vectors)
            ]
            added = []
            for row, of_row in enumerate(sums):
                four = builder.bitcast(spread(builder, load_at(builder, row_at, row, _WORD), _WORDS), _BYTES)
                products = (builder.call(multiply_bytes, [four, column]) for column in columns)
                added.append([builder.add(*pair) for pair in zip(of_row, products, strict=True)])
            return added

        # LLVM is not to know the number: it would unroll the loop, load ahead and run out of registers.
        quads = builder.asm(ir.FunctionType(_SIZE, [_SIZE]), "", "=r,0", [ir.Constant(_SIZE, QUADS)], False)
        for row, of_row in enumerate(loop_of_sums(builder, quads, [shifts] * ROWS, add_quad)):
            for v, segment_sum in enumerate(of_row):
                before = builder.load(place(row, v))
                before.align = 4
                after = builder.add(before, builder.call(multiply_add, [segment_sum, ones]))
                builder.store(after, place(row, v)).align = 4
        return []

    loop_of_sums(builder, segments, [], add_segment)
    total = [
        [load_at(builder, out, row * COLUMNS + v * LANES, _WORDS) for v in range(vectors)]
        for row in range(ROWS)
    ]
    return highest_sums(builder, total, limits, marks)


def _typed_dot(typing: Any, where: Any) -> Any:
    """The inner product of two vectors of int16, by their addresses and how many times PART numbers they have."""
    lanes = int16_kernels.LANES

    def write(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        one, other, count = cgutils.unpack_tuple(builder, arguments[0])
        words = ir.VectorType(_WORD, lanes)

        def add(part: Any, sums: Sums) -> Sums:
            offset = builder.mul(part, ir.Constant(_SIZE, 2 * PART))
            added = []
            for number, partial in enumerate(sums[0]):
                pair = [
                    load_at(builder, builder.add(side, offset), lanes * number, words)
                    for side in (one, other)
                ]
                added.append(int16_kernels.add_products(builder, partial, *pair))
            return [added]

        zeros = [ir.Constant(words, [0] * lanes)] * (PART // (2 * lanes))
        [last] = loop_of_sums(builder, count, [zeros], add)
        total = last[0] if len(last) == 1 else builder.add(*last)
        half = lanes
        while half > 1:
            half //= 2
            upper = ir.Constant(ir.VectorType(_WORD, lanes), [(half + lane) % lanes for lane in range(lanes)])
            total = builder.add(total, builder.shuffle_vector(total, total, upper))
        return builder.extract_element(total, ir.Constant(_WORD, 0))

    return types.int32(types.UniTuple(types.intp, 3)), write


_dot: Any = intrinsic(_typed_dot)


@compiled()
def _mark(
    panels: Any, factors: Any, floors: Any, items: Any, span: tuple[int, int, int, int], room: tuple[Any, Any]
) -> None:
    """Mark which pairs of some panels of the left and of one of the right may reach a floor, by 8-bit sums.

    Args:
        panels, factors, floors: as in ``sieve``, the factors those of the panels.
        items: the columns in int16, of which the panel's come into the caches meanwhile.
        span: the first panel of the left, the one after the last, that of the right; numbers of a step of their sums.
        room: for the marks, uint32 by row, and the sums of one block, (ROWS, COLUMNS) int32.
    """
    (left, right), (start, stop, panel, depth), (marks, scratch) = panels, span, room
    height, width = scratch.shape
    column, line, lines = panel * width, 0, items.strides[0] // LINE  # of a column's numbers
    here, each = items.ctypes.data + column * items.strides[0], -(-lines * width // (stop - start))
    _tiles(left, True)
    for group in range(start, stop):
        _block(
            (
                left.ctypes.data + group * left.strides[0],
                right.ctypes.data + panel * right.strides[0],
                -(-items.shape[1] // depth),
                factors[0].ctypes.data + 4 * group * height,
                factors[0].strides[0],
                floors[0].ctypes.data + 4 * group * height,
                factors[1].ctypes.data + 4 * column,
                factors[1].strides[0],
                floors[1].ctypes.data + 4 * column,
                marks.ctypes.data + 4 * (group - start) * height,
                scratch.ctypes.data,
            ),
            left,
        )
        for _ in range(each):
            prefetch(here + LINE * line)
            line += 1
    _tiles(left, False)


@compiled()
def _list_marked(marks: Any, within: int, corner: tuple[int, int], room: tuple[Any, Any, Any]) -> Any:
    """List the marked pairs of a panel; return how many there are.

    Looking at them later than at once does not hold up the products; rows with a mark are listed first, so that no
    guess at who is marked holds up the sums.

    Args:
        marks: of each row, an even number of them, a bit for each column.
        within: the bits that stand for a column.
        corner: the first row and the first column.
        room: for the marks of two rows, the first of the two, and the pairs, (2, most) rows and columns.
    """
    (first, column), (words, rows, pairs), some, count = corner, room, _NONE, _NONE
    twos, both = marks.view(np.uint64), np.uint64(within) * np.uint64(0x100000001)
    for number in range(len(twos)):
        word = twos[number] & both
        words[some], rows[some] = word, first + 2 * number
        some += np.uintp(word != 0)
    for number in range(some):
        left_over, row = np.int64(words[number]), rows[number]
        while left_over:
            bit = lowest(left_over)
            pairs[0, count], pairs[1, count] = row + (bit >> 5), column + (bit & 31)
            left_over &= left_over - 1
            count += np.uintp(1)
    return np.int64(count)


@compiled()
def sieve(
    panels: Any, coarse_factors: Any, fine: Any, factors: Any, floors: Any, found: Any, form: Any
) -> Any:
    """Pairs that may reach the floor of their row, and of their column, by 16-bit sums if 8-bit ones do not say no.

    Args:
        panels: of the rows (n) and of the columns (m), as ``to_panels`` makes them.
        coarse_factors: (3, n) and (3, m) float32 of these (see ``mitl.retrieval.vectors.error_factors``).
        fine: the rows (n, D) and columns (m, D) in int16, D a multiple of PART, without those that fill panels.
        factors: of these.
        floors: (n,) and (m,) float32, of the rows and of the columns.
        found: (2, most) rows and columns, int32, and highest similarities, float32: those that reach the rows' and
            those that reach the columns', in no order.
        form: ROWS, COLUMNS, DEPTH, LEFT_BYTES and WORTH of who made the panels.

    Returns:
        How many there are of either, and how many sums of 16 bits were made; -1 where there is no room, or where too
        many are wanted for the sieve to pay.
    """
    (left, right), (rows, columns, highest) = panels, found
    (queries, items), most = fine, found[0].shape[1]
    height, width, depth, left_bytes, worth = form
    high = min(len(left), max(1, left_bytes // (height * queries.shape[1])))
    first_count, second_count, tried = 0, 0, 0
    seen = len(left) * len(right) // 16  # some are let through before that is judged
    marks, scratch = np.zeros(high * height, np.uint32), np.empty((height, width), np.int32)
    words, marked_rows = np.empty(high * height // 2, np.uint64), np.empty(high * height // 2, np.int32)
    marked = np.empty((2, high * height * width), np.int32)
    products, lines = queries.shape[1] // PART, queries.strides[0] // LINE
    for start in range(0, len(left), high):
        stop, first = min(start + high, len(left)), start * height
        for panel in range(len(right)):
            _mark(panels, coarse_factors, floors, items, (start, stop, panel, depth), (marks, scratch))
            seen += stop - start
            marks[max(0, len(queries) - first) :] = 0  # rows that fill a panel
            within = ((1 << width) - 1) >> max(0, (panel + 1) * width - len(items))
            own, corner = marks[: (stop - start) * height], (first, panel * width)
            count = _list_marked(own, within, corner, (words, marked_rows, marked))
            tried += count
            if max(first_count, second_count) + count >= most or tried * worth > seen * height * width:
                return -1, -1, tried
            for pair in range(count):
                query, item = np.int64(marked[0, pair]), np.int64(marked[1, pair])
                following = np.int64(marked[0, min(pair + 1, count - 1)])
                for line in range(lines):
                    prefetch(queries.ctypes.data + following * queries.strides[0] + LINE * line)
                total = _dot(
                    (
                        queries.ctypes.data + query * queries.strides[0],
                        items.ctypes.data + item * items.strides[0],
                        products,
                    )
                )
                sharp = np.float32(total) * factors[1][0, item] * factors[0][0, query]
                sharp += (
                    factors[0][1, query] * factors[1][1, item] + factors[0][2, query] * factors[1][2, item]
                )
                # Written in any case, and counted where it is wanted.
                rows[0, first_count], columns[0, first_count], highest[0, first_count] = query, item, sharp
                first_count += int(sharp >= floors[0][query])
                rows[1, second_count], columns[1, second_count], highest[1, second_count] = query, item, sharp
                second_count += int(sharp >= floors[1][item])
    return first_count, second_count, tried


def empty_panels(count: int, width: int, side: int) -> Any:
    """(Panels, segments, lines, ROWS or COLUMNS, QUAD) for so many vectors of the left, uint8, or right, int8.

    The first line of each segment of the right takes the shift off.
    """
    columns = (ROWS, COLUMNS)[side]
    return np.empty((-(-count // columns), width // PART, side + QUADS, columns, QUAD), ("u1", "i1")[side])


@compiled(fastmath={"reassoc", "contract"})
def to_panels(block: Any, bits: Any, side: int, out: Any, first: int, found: tuple[Any, Any]) -> None:
    """Whole steps nearest to vectors, in steps of each item's own, put into panels.

    Args:
        block, bits: (n, D) float32, and the same memory as int32.
        side: 0 for the left, 1 for the right.
        out: as ``empty_panels`` gives it.
        first: which item of ``out`` the first one is.
        found: (n,) each: takes the steps, float32, and the squared lengths of what is lost, in steps, float64.
    """
    steps, lost = found
    columns = out.shape[3]
    shifts = np.zeros(2, np.int16)
    pairs = shifts.view(np.int8)
    largest = np.zeros(1, np.int32)
    reach = largest.view(np.float32)
    most, longest = np.float32(MOST[side]), LONGEST[side]
    padded = np.zeros((out.shape[1], QUADS, QUAD), np.float32)
    flat = padded.reshape(-1)
    for item in range(block.shape[0]):
        vector = block[item]
        flat[: len(vector)] = vector
        largest[0], part = largest_bits(bits[item]), 0.0
        for segment in range(out.shape[1]):
            for half in range(2):
                square = 0.0
                for quad in range(QUADS):
                    for d in range(2):
                        number = np.float64(padded[segment, quad, 2 * half + d])
                        square += number * number
                part = max(part, square)
        # Rounding lengthens a part of 16 numbers by 2 at most; a little more for the rounding here.
        wanted = max(np.float64(reach[0]) / most, np.sqrt(part) / (longest - 2)) * (1 + 2.0**-20)
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
