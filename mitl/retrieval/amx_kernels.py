"""The sieve's 8-bit products for processors with AMX. Imported late.

The instruction ``tdpbssd`` multiplies two tiles, each of 16 lines of 64 bytes with signs, and adds to a tile of 16 x 16
sums of 32 bits. Four tiles of sums share four of numbers; compared are the sums from a core's first cache, since no
instruction moves tiles to other registers.
"""

from __future__ import annotations

import ctypes
import math
import sys
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from mitl.retrieval import vnni_kernels
from mitl.retrieval.int16_kernels import Sums, highest_sums, load_at, loop_of_sums
from mitl.retrieval.kernels import LINE, compiled, has

LINES, DEPTH, QUAD = 16, 64, 4
"""Lines of a tile, and numbers of a line: of one vector of the left, or four of each of 16 vectors of the right."""
ROWS, COLUMNS = 2 * LINES, 2 * LINES
"""Sums that are kept in tiles."""
WORTH, LEFT_BYTES = vnni_kernels.WORTH, 9 << 16
"""As there; these rows in 16 bits, too, stay in a core's second cache."""
_MARKED = 4
"""Rows that are compared at once; more would not fit the registers."""
_ASK, _TILES, _CALL = 0x1023, 18, 158
"""Linux lends the tiles' memory to a process that asks: ``ARCH_REQ_XCOMP_PERM`` of ``arch_prctl``."""

_BYTE, _WORD, _SIZE = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_WORDS, _PLACE = ir.VectorType(_WORD, LINES), _BYTE.as_pointer()
_SHAPES = bytes([1, *bytes(15), *[DEPTH, 0] * 8, *bytes(16), *[LINES] * 8, *bytes(8)])
"""Of all eight tiles, as ``ldtilecfg`` reads them."""


@cache
def runs_here() -> bool:
    """Whether the processor that numba compiles for has the instruction, and the system lets this process use it."""
    if not (vnni_kernels.runs_here() and has("amx-tile", "amx-int8") and sys.platform == "linux"):
        return False
    return bool(ctypes.CDLL(None).syscall(_CALL, _ASK, _TILES) == 0)


def _declared(builder: Any, name: str, *kinds: Any) -> Any:
    function = ir.FunctionType(ir.VoidType(), list(kinds))
    return cgutils.get_or_insert_function(builder.module, function, f"llvm.x86.{name}")


def write_shapes(builder: Any, keep: bool) -> None:
    """Give this thread's tiles their shapes, or give them back: threads without tiles are switched faster."""
    if keep:
        shapes = cgutils.global_constant(builder, "mitl.tiles", cgutils.make_bytearray(_SHAPES))
        builder.call(_declared(builder, "ldtilecfg", _PLACE), [builder.bitcast(shapes, _PLACE)])
    else:
        builder.call(_declared(builder, "tilerelease"), [])


def write_block(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
    """As ``sieve_kernels`` has it for AVX2; panels are (steps, lines, bytes), the right's of two tiles side by side."""
    left, right, steps, *limits, marks, out = cgutils.unpack_tuple(builder, arguments[0])
    move = _BYTE, _PLACE, _SIZE
    load, store = (_declared(builder, name, *move) for name in ("tileloadd64", "tilestored64"))
    clear = _declared(builder, "tilezero", _BYTE)
    multiply_add = _declared(builder, "tdpbssd", *[_BYTE] * 3)
    sums = {(row, column): 2 * row + column for row in range(2) for column in range(2)}

    def tile(number: int) -> Any:
        return ir.Constant(_BYTE, number)

    def at(address: Any, offset: int) -> Any:
        return builder.inttoptr(builder.add(address, ir.Constant(_SIZE, offset)), _PLACE)

    def add(step: Any, _: Sums) -> Sums:
        here, there = (
            builder.add(panel, builder.mul(step, ir.Constant(_SIZE, DEPTH * width)))
            for panel, width in ((left, ROWS), (right, COLUMNS))
        )
        for half in range(2):
            builder.call(load, [tile(4 + half), at(here, half * LINES * DEPTH), ir.Constant(_SIZE, DEPTH)])
            width = ir.Constant(_SIZE, QUAD * COLUMNS)
            builder.call(load, [tile(6 + half), at(there, half * QUAD * LINES), width])
        for (row, column), number in sums.items():
            builder.call(multiply_add, [tile(number), tile(4 + row), tile(6 + column)])
        return []

    for number in sums.values():
        builder.call(clear, [tile(number)])
    loop_of_sums(builder, steps, [], add)
    for (row, column), number in sums.items():
        place = at(out, 4 * LINES * (row * COLUMNS + column))
        builder.call(store, [tile(number), place, ir.Constant(_SIZE, 4 * COLUMNS)])

    def mark(group: Any, _: Sums) -> Sums:
        offset = builder.mul(group, ir.Constant(_SIZE, 4 * _MARKED))
        first = builder.add(out, builder.mul(offset, ir.Constant(_SIZE, COLUMNS)))
        total = [
            [load_at(builder, first, row * COLUMNS + half * LINES, _WORDS) for half in range(2)]
            for row in range(_MARKED)
        ]
        of_rows = builder.add(limits[0], offset), limits[1], builder.add(limits[2], offset)
        highest_sums(builder, total, (*of_rows, *limits[3:]), builder.add(marks, offset))
        return []

    loop_of_sums(builder, ir.Constant(_SIZE, ROWS // _MARKED), [], mark)
    return cgutils.true_bit


def empty_panels(count: int, width: int, side: int) -> Any:
    """(Panels, steps, ROWS, LINES, QUAD) or (panels, steps, LINES, COLUMNS, QUAD) for vectors of the left or right."""
    lines = ((ROWS, LINES), (LINES, COLUMNS))[side]
    shape = -(-count // (ROWS, COLUMNS)[side]), -(-width // DEPTH), *lines, QUAD
    room = np.empty(math.prod(shape) + LINE, np.int8)
    start = -room.ctypes.data % LINE  # a tile's line that crosses one of the cache's is read twice
    return room[start : start + math.prod(shape)].reshape(shape)


@compiled()
def to_panels(block: Any, bits: Any, side: int, out: Any, first: int, found: tuple[Any, Any]) -> None:
    """As ``sieve_kernels.to_panels``, whose arguments these are; no part of a vector limits its steps here."""
    steps, lost = found
    words = out.view(np.uint32)
    whole = np.zeros(DEPTH * out.shape[1], np.uint8)
    quads = whole.view(np.uint32).reshape(out.shape[1], LINES)
    for item in range(block.shape[0]):
        steps[item], lost[item], _ = vnni_kernels.to_bytes(block[item], bits[item], 0, whole)
        panel, place = divmod(first + item, out.shape[2 + side])
        for step in range(out.shape[1]):
            for quad in range(LINES):
                if side == 0:
                    words[panel, step, place, quad, 0] = quads[step, quad]
                else:
                    words[panel, step, quad, place, 0] = quads[step, quad]
