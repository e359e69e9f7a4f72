"""Vectors on their way to a device of torch's: span by span, while it is busy with others."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np

from mitl.retrieval.card_sieve import Block
from mitl.retrieval.processor import exactly
from mitl.retrieval.search import cut
from mitl.retrieval.vectors import Vectors

_COPIERS = 8
"""Threads that bring vectors to pinned memory: one moves a fifth of what a card takes in."""


class Side:
    """One side of a search, loaded span by span; what memory holds is kept for the next time."""

    def __init__(self, vectors: Vectors, span: int, loader: Loader) -> None:
        self.vectors = vectors
        self.spans = list(cut(0, len(vectors), span))
        self._loader = loader
        self._kept: dict[int, Block] = {}
        self._coming: dict[int, Future[Block]] = {}

    def ask(self, number: int) -> None:
        """Begin to load a span, where it is neither there nor on its way."""
        if number not in self._kept and number not in self._coming:
            self._coming[number] = self._loader.load(self.vectors, self.spans[number])

    def block(self, number: int) -> Block:
        """A span, loaded."""
        if number in self._kept:
            return self._kept[number]
        self.ask(number)
        block = self._coming.pop(number).result()
        if self._loader.keeps(block):
            self._kept[number] = block
        return block


class Loader:
    """Brings spans to the device while it is busy with others: copies through pinned memory, on a stream of its own."""

    def __init__(self, torch: Any, device: Any, keep_bytes: int) -> None:
        self._torch, self._device, self._left = torch, device, keep_bytes
        self._on_gpu = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if self._on_gpu else None
        self._pinned: Any = None
        self._one = ThreadPoolExecutor(1)
        self._copiers = ThreadPoolExecutor(_COPIERS)

    def close(self) -> None:
        """Wait for nothing more."""
        self._one.shutdown(wait=True, cancel_futures=True)
        self._copiers.shutdown(wait=True, cancel_futures=True)

    def keeps(self, block: Block) -> bool:
        """Whether there is room to keep a block, which is then taken."""
        size = block.exact.nbytes + block.halves.nbytes
        if size > self._left:
            return False
        self._left -= size
        return True

    def load(self, vectors: Vectors, rows: slice) -> Future[Block]:
        """A block of these items, one after the other in the order of the calls."""
        return self._one.submit(self._load, vectors, rows)

    def _load(self, vectors: Vectors, rows: slice) -> Block:
        torch = self._torch
        array = vectors.array[rows]
        with ExitStack() as stack:
            stack.enter_context(exactly())
            if self._stream is None:
                return Block.of(torch, torch.from_numpy(np.array(array)), vectors, rows.start)
            stack.enter_context(torch.cuda.stream(self._stream))
            if self._pinned is None or self._pinned.numel() * self._pinned.itemsize < array.nbytes:
                self._pinned = torch.empty(array.nbytes, dtype=torch.uint8, pin_memory=True)
            staged = self._pinned[: array.nbytes].numpy().view(array.dtype).reshape(array.shape)
            parts = list(cut(0, len(array), max(1, -(-len(array) // _COPIERS))))
            list(self._copiers.map(lambda part: np.copyto(staged[part], array[part]), parts))
            exact = torch.from_numpy(staged).to(self._device, non_blocking=True)
            block = Block.of(torch, exact, vectors, rows.start)
            # Then the pinned memory is free for the next block.
            self._stream.synchronize()
        for tensor in (block.exact, block.halves, block.lengths, block.losses):
            tensor.record_stream(torch.cuda.default_stream(self._device))
        return block
