"""Compiled loops of the search on a GPU, by Triton, which comes with torch's builds for CUDA.

``sift_blocks`` multiplies two blocks in half precision and compares while the products are in registers: only blocks
that hold something leave a word of bits for each 32 pairs. ``dot_pairs`` multiplies chosen pairs in float64.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Triton compiles the text of these functions, types among it.
# mypy: ignore-errors


@triton.jit(do_not_specialize=["rows", "columns"])
def sift_blocks(
    left,
    right,
    left_least,
    right_least,
    rows,
    columns,
    totals,
    blocks,
    words,
    BOTH: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    GROUP: tl.constexpr,
):
    """One block of ``ROWS`` x ``COLUMNS`` pairs: a bit for each that reaches its row's, or its column's, least.

    Args:
        left, right: (n, WIDTH) and (m, WIDTH) float16; ``WIDTH`` is a multiple of ``DEPTH``.
        left_least, right_least: (n,) and (m,) float32; the latter is read where ``BOTH``.
        rows, columns: n and m.
        totals: (2,) int64, raised by one for a block with bits, and by their number.
        blocks: (most blocks, 2) int32, where each block with bits begins.
        words: (most blocks, ROWS, COLUMNS // 32) int32.
    """
    # Some rows of blocks at a time, so that what is read stays in the cache.
    across, down = tl.cdiv(columns, COLUMNS), tl.cdiv(rows, ROWS)
    here = tl.program_id(0)
    above = here // (GROUP * across) * GROUP
    tall = tl.minimum(down - above, GROUP)
    top = (above + here % (GROUP * across) % tall) * ROWS
    first = here % (GROUP * across) // tall * COLUMNS
    row, column, depth = top + tl.arange(0, ROWS), first + tl.arange(0, COLUMNS), tl.arange(0, DEPTH)
    one = left + (tl.minimum(row, rows - 1).to(tl.int64)[:, None] * WIDTH + depth[None, :])
    other = right + (tl.minimum(column, columns - 1).to(tl.int64)[None, :] * WIDTH + depth[:, None])
    near = tl.zeros((ROWS, COLUMNS), tl.float32)
    for _ in range(0, WIDTH, DEPTH):
        near = tl.dot(tl.load(one), tl.load(other), near)
        one += DEPTH
        other += DEPTH
    infinite = float("inf")
    least = tl.load(left_least + row, mask=row < rows, other=infinite)
    found = (near >= least[:, None]) & (column < columns)[None, :]
    if BOTH:
        theirs = tl.load(right_least + column, mask=column < columns, other=infinite)
        found = found | ((near >= theirs[None, :]) & (row < rows)[:, None])
    bits = found.to(tl.int32)
    count = tl.sum(tl.sum(bits, 1), 0)
    if count > 0:
        place = tl.atomic_add(totals, 1)
        tl.atomic_add(totals + 1, count.to(tl.int64))
        tl.store(blocks + 2 * place, top)
        tl.store(blocks + 2 * place + 1, first)
        # Another name: a branch may not change the shape of what was there before it.
        lanes = tl.reshape(bits, (ROWS, COLUMNS // 32, 32)) << tl.arange(0, 32)[None, None, :]
        packed = tl.sum(lanes, 2)
        at = tl.arange(0, ROWS)[:, None] * (COLUMNS // 32) + tl.arange(0, COLUMNS // 32)[None, :]
        tl.store(words + place * (ROWS * (COLUMNS // 32)) + at, packed)


@triton.jit(do_not_specialize=["words_count"])
def spread_words(
    words,
    blocks,
    rows,
    columns,
    total,
    words_count,
    ROWS: tl.constexpr,
    ACROSS: tl.constexpr,
    WORDS: tl.constexpr,
):
    """Write the pairs of the bits of ``WORDS`` words of ``sift_blocks``, in any order.

    Of all words one bit at a time, for hardly any has two.

    Args:
        rows, columns: (pairs,) int64.
        total: (1,) int64, how many are written, from 0 on.
    """
    place = tl.program_id(0).to(tl.int64) * WORDS + tl.arange(0, WORDS)
    word = tl.load(words + place, mask=place < words_count, other=0)
    some = tl.sum((word != 0).to(tl.int32), 0)
    if some > 0:
        block, within = place // (ROWS * ACROSS), place % (ROWS * ACROSS)
        row = tl.load(blocks + 2 * block, mask=word != 0, other=0) + within // ACROSS
        column = tl.load(blocks + 2 * block + 1, mask=word != 0, other=0) + within % ACROSS * 32
        while some > 0:
            held = word != 0
            # The lowest bit's place is the exponent of what is left of the word without the others.
            power = (word & -word).to(tl.float32).to(tl.int32, bitcast=True)
            lane = ((power >> 23) & 255) - 127
            at = tl.atomic_add(total, some.to(tl.int64)) + tl.cumsum(held.to(tl.int32), 0) - 1
            tl.store(rows + at, row, mask=held)
            tl.store(columns + at, column + lane, mask=held)
            word = word & (word - 1)
            some = tl.sum((word != 0).to(tl.int32), 0)


@triton.jit(do_not_specialize=["pairs", "relative"])
def dot_pairs(
    left,
    right,
    rows,
    columns,
    lengths,
    sums,
    values,
    unsure,
    pairs,
    relative,
    left_step,
    right_step,
    ROUNDED: tl.constexpr,
    WIDTH: tl.constexpr,
    PAIRS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Inner products of ``PAIRS`` pairs in float64; where ``ROUNDED``, to float32 with the sure ones apart.

    Args:
        left, right: (n, WIDTH) and (m, WIDTH), rows ``left_step`` and ``right_step`` numbers apart.
        rows, columns: (pairs,) int64.
        lengths: (n,) float64; ``relative`` times it is how far a sum in another order may be off.
        sums: (pairs,) float64, written unless ``ROUNDED``.
        values, unsure: (pairs,) float32 and int8, 1 where another order might round to another number.
    """
    pair = tl.program_id(0).to(tl.int64) * PAIRS + tl.arange(0, PAIRS)
    there = pair < pairs
    row = tl.load(rows + pair, mask=there, other=0)
    one = left + row * left_step
    other = right + tl.load(columns + pair, mask=there, other=0) * right_step
    total = tl.zeros((PAIRS,), tl.float64)
    for start in range(0, WIDTH, DEPTH):
        depth = start + tl.arange(0, DEPTH)
        mask = there[:, None] & (depth < WIDTH)[None, :]
        q = tl.load(one[:, None] + depth[None, :], mask=mask, other=0.0).to(tl.float64)
        x = tl.load(other[:, None] + depth[None, :], mask=mask, other=0.0).to(tl.float64)
        total += tl.sum(q * x, 1)
    if ROUNDED:
        error = tl.load(lengths + row, mask=there, other=0.0) * relative
        low, high = (total - error).to(tl.float32), (total + error).to(tl.float32)
        tl.store(values + pair, tl.where(low == 0, 0.0, low), mask=there)  # -0.0 becomes 0.0
        tl.store(unsure + pair, (low != high).to(tl.int8), mask=there)
    else:
        tl.store(sums + pair, total, mask=there)


@triton.jit(do_not_specialize=["pairs", "first_row", "first_position"])
def take_pairs(
    keys,
    fill,
    floors,
    rows,
    positions,
    values,
    left,
    pairs,
    first_row,
    first_position,
    ROOM: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """Put ``PAIRS`` pairs that reach their floors into free places of their rows' lists, in any order.

    Args:
        keys: (n, ROOM) int64, as ``card_lists.keys_of`` makes them.
        fill: (n,) int64, places taken; raised also by pairs that find none.
        floors: (n,) float64.
        rows, positions: (pairs,) int64, which ``first_row`` and ``first_position`` are added to.
        values: (pairs,) float32.
        left: (pairs,) int8, 1 for a pair that found no place.
    """
    pair = tl.program_id(0).to(tl.int64) * PAIRS + tl.arange(0, PAIRS)
    there = pair < pairs
    row = tl.load(rows + pair, mask=there, other=0) + first_row
    value = tl.load(values + pair, mask=there, other=0.0)
    reach = there & (value.to(tl.float64) >= tl.load(floors + row, mask=there, other=0.0))
    one = tl.full((PAIRS,), 1, tl.int64)
    place = tl.atomic_add(fill + row, one, mask=reach)
    bits = value.to(tl.int32, bitcast=True)
    falling = ~(bits ^ ((bits >> 31) & 0x7FFFFFFF))
    position = tl.load(positions + pair, mask=there, other=0) + first_position
    key = (falling.to(tl.int64) << 32) | position
    fits = reach & (place < ROOM)
    tl.store(keys + row * ROOM + place, key, mask=fits)
    tl.store(left + pair, (reach & (place >= ROOM)).to(tl.int8), mask=there)


@triton.jit(do_not_specialize=["items"])
def sort_keys(keys, floors, items, K: tl.constexpr, ROOM: tl.constexpr, ITEMS: tl.constexpr):
    """Sort the lists (items, ROOM) of ``ITEMS`` items, keep the best ``K`` and raise the floors to the last of them."""
    item = tl.program_id(0).to(tl.int64) * ITEMS + tl.arange(0, ITEMS)
    place = tl.arange(0, ROOM)
    there = item < items
    at = keys + item[:, None] * ROOM + place[None, :]
    nothing = 0x7FFFFFFFFFFFFFFF
    found = tl.sort(tl.load(at, mask=there[:, None], other=nothing), 1)
    tl.store(at, tl.where(place[None, :] < K, found, nothing), mask=there[:, None])
    last = tl.min(tl.where(place[None, :] == K - 1, found, nothing), 1)
    rising = ~(last >> 32).to(tl.int32)
    value = (rising ^ ((rising >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True).to(tl.float64)
    floor = tl.load(floors + item, mask=there, other=0.0)
    better = there & (last != nothing) & (value > floor)
    tl.store(floors + item, value, mask=better)
