"""Exact search on one device of torch's: vectors, floors and the best of each item stay there, tile after tile.

A tile's pairs that may reach a floor (``mitl.retrieval.card_sieve``) get their canonical similarities at once, so that
floors are those of the best found so far, and what comes back are the best of each item.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from mitl.errors import RetrievalError
from mitl.progress import Advance
from mitl.retrieval.card_lists import CardLists, list_bytes
from mitl.retrieval.card_loading import CardSide, Loader
from mitl.retrieval.card_sieve import ROUNDOFF, CardBlock, Sieve, block_bytes, errors, kernels_for
from mitl.retrieval.processor import exactly
from mitl.retrieval.search import Best
from mitl.retrieval.torch_products import import_torch
from mitl.retrieval.vectors import Vectors

_FIRST = 2048
"""Items of the other side by which first floors are found; after them tiles grow as what was seen grows."""
_SPAN, _SPAN_BYTES = 1 << 16, 1 << 29
"""Items that are loaded at once, at most, and their memory: as much of the processor's is pinned, some times over."""
_SHARE = 0.8
"""Of the memory that is free on a GPU."""
_LEAST = 64
"""Items of a span, at least."""
_CHECKED = 256
"""Queries of a probe whose pairs are compared with all that there should be."""
_AHEAD = 2
"""Spans of the right that are loaded ahead."""
_UNDER_WAY = 10
"""Spans in memory: on either side this one and those ahead, and what becomes of one while it is loaded."""
_PAIR_BYTES = 400
"""What a pair takes at most while its similarity is found and it is put into lists."""


@dataclass(frozen=True, slots=True)
class CardPlan:
    """What fits into so many bytes on a device."""

    span: int
    """Items of a side that are loaded at once."""
    most: int
    """Pairs of a tile that get their similarity."""
    kept: int
    """Bytes of loaded spans that are kept for the next time."""


def plan(memory: int, left: Vectors, right: Vectors, k: int, *, compiled: bool) -> CardPlan:
    """Spans, tiles and what is kept of them.

    A quarter of the memory is for spans under way, a quarter for the products or bits of a tile, an eighth for its
    pairs; what lists leave of the rest is for loaded spans.
    """
    item = max(block_bytes(side.width, side.per_item, side.array.itemsize) for side in (left, right))
    span = _SPAN
    spans = min(_SPAN_BYTES, memory // (4 * _UNDER_WAY))
    while span > _LEAST and (span * item > spans or span * _tile_bytes(span, compiled) > memory // 4):
        span //= 2
    kept = memory * 3 // 8 - len(left) * list_bytes(k, len(right))
    return CardPlan(span, max(span, memory // 8 // _PAIR_BYTES), max(0, kept))


def _tile_bytes(columns: int, compiled: bool) -> int:
    """Memory for a row of a tile: bits, or else products, one more of them and comparisons; and of first floors."""
    return max(columns // 8 if compiled else columns * 10, 10 * min(columns, _FIRST))


class CardSearch:
    """One pass over all tiles of ``left`` x ``right`` on a device.

    Args:
        device: a torch device; ``cpu`` runs the same code without a GPU.
        memory: bytes that may be used where the device is the processor; of a GPU most of what is free is used.

    Raises:
        RetrievalError: torch sees no such device.
    """

    def __init__(self, left: Vectors, right: Vectors, advance: Advance, *, device: str, memory: int) -> None:
        self._torch = torch = import_torch("cuda")
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise RetrievalError(
                "backend 'cuda' needs a GPU that torch can use, and there is none; use 'auto'"
            )
        self._device = torch.device(device)
        if self._device.type == "cuda":
            # What torch holds without using it, after a search before, is free too.
            held = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
            memory = int((torch.cuda.mem_get_info(self._device)[0] + held) * _SHARE)
        self._sides, self._advance, self._memory = (left, right), advance, memory

    def run(self, k: int, k_back: int | None = None) -> tuple[Best, ...]:
        """The best ``k`` of the right for each item of the left and, with ``k_back``, the other way too."""
        torch, (left, right) = self._torch, self._sides
        best = Best.empty(len(left), k)
        back = None if k_back is None else Best.empty(len(right), k_back)
        with ExitStack() as settings:
            settings.enter_context(exactly())
            settings.enter_context(torch.inference_mode())
            if self._device.type == "cuda":
                settings.enter_context(torch.cuda.device(self._device))
            self._sieve = sieve_for(torch, self._device)
            self._plan = plan(self._memory, left, right, k, compiled=self._sieve.kernels is not None)
            loader = Loader(torch, self._device, self._plan.kept)
            settings.callback(loader.close)
            rows, columns = (CardSide(side, self._plan.span, loader) for side in self._sides)
            lists = [self._lists(part, k, len(right)) for part in rows.spans]
            for column, span in enumerate(columns.spans):
                theirs = None if back is None else self._lists(span, k_back or 1, len(left))
                for row, own in enumerate(lists):
                    block, partner = rows.block(row), columns.block(column)
                    # Whatever comes next is on its way while these are multiplied.
                    if row + 1 < len(lists) or column + 1 < len(columns.spans):
                        rows.ask((row + 1) % len(lists))
                    for ahead in range(1, _AHEAD + 1):
                        columns.ask(column + ahead)
                    self._span(block, partner, own, theirs, (rows.spans[row].start, span.start))
                if theirs is not None and back is not None:
                    loader.write(*theirs.best(), back, span)
            for own, part in zip(lists, rows.spans, strict=True):
                loader.write(*own.best(), best, part)
            loader.wait()
        return (best,) if back is None else (best, back)

    def _lists(self, part: slice, k: int, others: int) -> CardLists:
        items = part.stop - part.start
        return CardLists(self._torch, self._device, items, k, others, compiled=self._sieve.kernels)

    def _span(
        self,
        block: CardBlock,
        partner: CardBlock,
        own: CardLists,
        theirs: CardLists | None,
        starts: tuple[int, int],
    ) -> None:
        """All pairs of a loaded row span and a loaded column span, by tiles that grow with what was seen."""
        bounds = [errors(block, partner, unit=ROUNDOFF, losses=True)]
        if theirs:
            bounds.append(errors(partner, block, unit=ROUNDOFF, losses=True))
        for rows in growing(theirs.seen if theirs else len(block), len(block)):
            for columns in growing(own.seen, len(partner)):
                one, other = block.part(rows), partner.part(columns)
                if not own.seen and columns.start == 0:
                    own.raise_floors(rows, self._sieve.floors(one, other, own.k))
                if theirs and not theirs.seen and rows.start == 0:
                    theirs.raise_floors(columns, self._sieve.floors(other, one, theirs.k))
                self._tile((one, other), (own, theirs), bounds, (rows, columns), starts)
                self._advance(len(one) * len(other))
        own.seen += len(partner)
        if theirs:
            theirs.seen += len(block)

    def _tile(
        self,
        blocks: tuple[CardBlock, CardBlock],
        lists: tuple[CardLists, CardLists | None],
        bounds: list[Any],
        parts: tuple[slice, slice],
        starts: tuple[int, int],
    ) -> None:
        """The pairs of a tile that reach a floor, into the lists; of a crowded one half by half."""
        (block, partner), (own, theirs), (rows, columns) = blocks, lists, parts
        least = own.floors[rows] - bounds[0][rows]
        their_least = None if theirs is None else theirs.floors[columns] - bounds[1][columns]
        pairs = self._sieve.sift(block, partner, least, their_least, self._plan.most)
        if pairs is None:
            middle = len(partner) // 2
            for part in (slice(0, middle), slice(middle, len(partner))):
                narrow = slice(columns.start + part.start, columns.start + part.stop)
                self._tile((block, partner.part(part)), lists, bounds, (rows, narrow), starts)
            return
        row, column = pairs
        similarities = self._sieve.similarities(block, partner, row, column)
        own.add(row, column, similarities, (rows.start, columns.start + starts[1]))
        if theirs is not None:
            theirs.add(column, row, similarities, (columns.start, rows.start + starts[0]))


def sieve_for(torch: Any, device: Any) -> Sieve:
    """With compiled loops where they run."""
    return Sieve(torch, device, compiled=kernels_for(str(device)) if device.type == "cuda" else None)


def seconds_of_probe(device: str, width: int, queries: int, items: int, k: int) -> float:
    """The least time of looking at so many pairs of random items; infinite where a pair of the first queries is missed
    that reaches its floor, the k-th best similarity or a little less, or where its similarity is wrong."""
    torch = import_torch("cuda")
    where = torch.device(device)
    try:
        with exactly(), torch.inference_mode():
            sieve = sieve_for(torch, where)
            left, right = (
                CardBlock.of(torch, torch.randn((n, 1, width), device=where)) for n in (queries, items)
            )
            floors = sieve.floors(left, right, k)
            least = floors - errors(left, right, unit=ROUNDOFF, losses=True)
            times = []
            for _ in range(3):
                start = time.perf_counter()
                pairs = sieve.sift(left, right, least, None, queries * items)
                times.append(time.perf_counter() - start)
            assert pairs is not None
            exact = left.exact[:_CHECKED, 0].double() @ right.exact[:, 0].double().T
            rows, columns = (places[pairs[0] < _CHECKED] for places in pairs)
            missed = exact >= floors[:_CHECKED, None]
            missed[rows, columns] = False
            similarities = sieve.similarities(left, right, rows, columns)
            complete = torch.isclose(similarities.double(), exact[rows, columns]).all() and not missed.any()
    except (RuntimeError, RetrievalError):
        return math.inf
    return min(times) if complete else math.inf


def growing(seen: int, items: int) -> Iterator[slice]:
    """Parts of a span none of which is larger than what was seen before it, or than a first look."""
    start = 0
    while start < items:
        stop = min(items, start + max(_FIRST, seen + start))
        yield slice(start, stop)
        start = stop
