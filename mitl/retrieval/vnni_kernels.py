"""The sieve's 8-bit products for processors with AVX-512 and VNNI. Imported late.

The instruction ``vpdpbusd`` multiplies 64 pairs of 8-bit numbers, of which the one of each pair has no sign, and adds
four neighbours to a sum of 32 bits: four times the pairs of one in float32. So the left is shifted by ``SHIFT``, and
what that adds is taken off each sum from the start.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from mitl.retrieval.int16_kernels import WIDE, Sums, highest_sums, largest_bits, load_at, loop_of_sums, spread
from mitl.retrieval.kernels import compiled

DEPTH, LANES = 4, 16
"""Numbers of a vector, and vectors, that one instruction takes."""
ROWS, COLUMNS = 12, 32
"""Sums that are kept in registers."""
SHIFT, MOST = 128, 127
WORTH = 12
"""Pairs to one that passes the sieve, below which 16-bit sums of all of them are cheaper."""
LEFT_BYTES = 1 << 20
"""Rows that go by a panel of columns before its pairs are looked at (measured best of 2^16 to 2^20)."""

_WORD, _SIZE = ir.IntType(32), ir.IntType(64)
_WORDS = ir.VectorType(_WORD, LANES)


def runs_here() -> bool:
    """Whether the processor that numba compiles for has the instruction."""
    return WIDE


def write_block(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
    """As ``sieve_kernels`` has it for AVX2; panels are (quads, ROWS or COLUMNS) words, the right's after its shifts."""
    left, right, quads, *limits, marks, _scratch = cgutils.unpack_tuple(builder, arguments[0])
    vectors = COLUMNS // LANES
    multiply_add = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_WORDS, [_WORDS] * 3), "llvm.x86.avx512.vpdpbusd.512"
    )
    shifts = [load_at(builder, right, LANES * v, _WORDS) for v in range(vectors)]

    def add(quad: Any, sums: Sums) -> Sums:
        here, there = (
            builder.add(panel, builder.mul(quad, ir.Constant(_SIZE, DEPTH * width)))
            for panel, width in ((left, ROWS), (right, COLUMNS))
        )
        columns = [load_at(builder, there, COLUMNS + LANES * v, _WORDS) for v in range(vectors)]
        added = []
        for row, of_row in enumerate(sums):
            four = spread(builder, load_at(builder, here, row, _WORD), _WORDS)
            pairs = zip(of_row, columns, strict=True)
            added.append([builder.call(multiply_add, [total, four, column]) for total, column in pairs])
        return added

    added = loop_of_sums(builder, quads, [shifts] * ROWS, add)
    return highest_sums(builder, added, limits, marks)


def empty_panels(count: int, width: int, side: int) -> Any:
    """(Panels, lines, ROWS or COLUMNS) of words for so many vectors of the left or right."""
    columns, lines = (ROWS, COLUMNS)[side], width // DEPTH
    return np.empty((-(-count // columns), side + lines, columns), np.uint32)


@compiled()
def to_panels(block: Any, bits: Any, side: int, out: Any, first: int, found: tuple[Any, Any]) -> None:
    """As ``sieve_kernels.to_panels``, whose arguments these are; no part of a vector limits its steps here."""
    steps, lost = found
    columns = out.shape[2]
    whole = np.zeros(DEPTH * (out.shape[1] - side), np.uint8)
    words = whole.view(np.uint32)
    for item in range(block.shape[0]):
        steps[item], lost[item], summed = to_bytes(block[item], bits[item], SHIFT * (1 - side), whole)
        panel, column = divmod(first + item, columns)
        for quad in range(len(words)):
            out[panel, side + quad, column] = words[quad]
        if side == 1:
            out[panel, 0, column] = np.uint32(np.int32(-SHIFT * summed))


@compiled(fastmath={"reassoc", "contract"})
def to_bytes(vector: Any, bits: Any, shift: int, whole: Any) -> tuple[Any, Any, Any]:
    """Put a vector's whole steps into ``whole``, shifted; returns the step, the squared length of what is lost and the
    sum, both in steps."""
    largest = np.empty(1, np.int32)
    largest[0] = largest_bits(bits)
    # A little more, so that no rounding here makes a number too large.
    wanted = np.float64(largest.view(np.float32)[0]) / MOST * (1 + 2.0**-20)
    step = np.float32(max(wanted, 1e-30))
    inverse, added = np.float32(1) / step, np.float32(shift)
    lost, summed = np.float32(0), np.float32(0)
    for d in range(len(vector)):
        scaled = vector[d] * inverse
        nearest = np.rint(scaled)
        away = scaled - nearest
        lost += away * away
        summed += nearest
        whole[d] = np.uint8(np.int32(nearest + added))
    return step, lost, summed
