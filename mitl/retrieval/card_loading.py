"""Vectors on their way to a device of torch's: span by span, while it is busy with others."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from annotators.devices import to_device
from mitl.retrieval.card_sieve import CardBlock
from mitl.retrieval.processor import exactly
from mitl.retrieval.search import Best, cut
from mitl.retrieval.vectors import Vectors


class CardSide:
    """One side of a search, loaded span by span; what memory holds is kept for the next time."""

    def __init__(self, vectors: Vectors, span: int, loader: Loader) -> None:
        self.vectors = vectors
        self.spans = list(cut(0, len(vectors), span))
        self._loader = loader
        self._kept: dict[int, CardBlock] = {}
        self._coming: dict[int, Future[CardBlock]] = {}

    def ask(self, number: int) -> None:
        """Begin to load a span, where there is one that is neither there nor on its way."""
        if number < len(self.spans) and number not in self._kept and number not in self._coming:
            self._coming[number] = self._loader.load(self.vectors, self.spans[number])

    def block(self, number: int) -> CardBlock:
        """A span, loaded."""
        if number in self._kept:
            return self._kept[number]
        self.ask(number)
        block = self._coming.pop(number).result()
        if self._loader.keeps(block):
            self._kept[number] = block
        return block


class Loader:
    """Copies by threads and streams of its own: to pinned memory, from there to the device, and what was found back."""

    def __init__(self, torch: Any, device: Any, keep_bytes: int) -> None:
        self._torch, self._device, self._left = torch, device, keep_bytes
        # Its blocks go before those of the tile that is multiplied, which would hold them up to its end.
        streams: list[Any] = [
            torch.cuda.Stream(device, priority=-1) if device.type == "cuda" else None for _ in range(2)
        ]
        self._in, self._out = streams
        self._stagers, self._movers, self._writers = (ThreadPoolExecutor(1) for _ in range(3))
        self._written: list[Future[None]] = []

    def close(self) -> None:
        """Drop what is still to be loaded."""
        for pool in (self._stagers, self._movers, self._writers):
            pool.shutdown(wait=True, cancel_futures=True)

    def keeps(self, block: CardBlock) -> bool:
        """Whether there is room to keep a block, which is then taken."""
        size = block.exact.nbytes + block.halves.nbytes
        if size > self._left:
            return False
        self._left -= size
        return True

    def load(self, vectors: Vectors, rows: slice) -> Future[CardBlock]:
        """A block of these items, one after the other in the order of the calls."""
        return self._movers.submit(
            self._move, self._stagers.submit(self._stage, vectors, rows), vectors, rows
        )

    def _stage(self, vectors: Vectors, rows: slice) -> Any:
        array = vectors.array[rows]
        with self._stream(self._in):
            return to_device(array, self._device, getattr(self._torch, array.dtype.name))

    def _move(self, exact: Future[Any], vectors: Vectors, rows: slice) -> CardBlock:
        with exactly(), self._stream(self._in):
            block = CardBlock.of(self._torch, exact.result(), vectors, rows)
        if self._in is not None:
            self._in.synchronize()
            for tensor in (block.exact, block.halves, block.lengths, block.losses, block.scale):
                tensor.record_stream(self._torch.cuda.default_stream(self._device))
        return block

    def _stream(self, stream: Any) -> AbstractContextManager[Any]:
        return nullcontext() if stream is None else self._torch.cuda.stream(stream)

    def write(self, positions: Any, similarities: Any, best: Best, part: slice) -> None:
        """Put what was found where it belongs; ``wait`` says when all is there."""
        transfers = (positions, best.positions), (similarities, best.similarities)
        ready = None
        if self._out is not None:
            ready = self._torch.cuda.Event()
            ready.record()

        def bring() -> None:
            with self._stream(self._out):
                if ready is not None:
                    ready.wait()
                for here, there in transfers:
                    there[part] = here.cpu().numpy()

        self._written.append(self._writers.submit(bring))

    def wait(self) -> None:
        """Until all is written."""
        for writing in self._written:
            writing.result()
