"""Pairs of encoded items through ViLT in batches of one shape, so that nothing is padded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from annotators.base import Encoded
from annotators.devices import inference
from annotators.vilt_core import Side, ViltCore

Rows = NDArray[np.int64]

_PIECE_BYTES = 12 << 20
"""What the widest states of the pairs in the joint layers may take on the CPU: a core's caches, about."""
_PIECE_CUDA = 64
"""Pairs of a piece on a card, which fill it well; always so many, for there how a product adds hangs on its size."""
_PIECES = {"cpu": 2, "cuda": 1}
"""Pieces to a batch: pairs whose items are looked up and enter the network together."""
_TOGETHER_BYTES, _TOGETHER_MOST = 48 << 10, 64
"""The same of pairs that go through the last layer and the head together, one token each: 4 at full size."""
_WORKERS_CUDA = 2
"""So that one batch is looked up while another is computed."""


class PairScorer:
    """One core's scores of pairs; ``threads`` batches at a time on the CPU, a thread each.

    A score does not depend on what else is asked, not by a bit: on a card all products have one size, filled up by
    repeats. On the CPU those of the joint layers, of all of a pair's tokens, add each row alike however many there are,
    and only the last layer needs that.

    Args:
        batch: pairs whose items are looked up together; by their size where it is None.
        kept_bytes: images that have entered the network stay within as many bytes, for the next captions.
    """

    def __init__(
        self,
        core: ViltCore,
        device: torch.device,
        *,
        threads: int,
        batch: int | None = None,
        kept_bytes: int = 0,
    ) -> None:
        self._core, self._device = core, device
        self._threads, self._batch = threads, batch
        # Compiled code runs on all threads itself.
        self._workers = 1 if core.compiled else _WORKERS_CUDA if device.type == "cuda" else threads
        self._kept = _Kept(kept_bytes)

    def scores(
        self, images: Encoded, captions: Encoded, image_rows: Rows, caption_rows: Rows
    ) -> NDArray[np.float32]:
        """(P,) the rank head's logits of the pairs (image_rows[p], caption_rows[p]), whatever their order."""
        logits = np.empty(len(image_rows), np.float32)
        lengths = (images.arrays["length"][image_rows], captions.arrays["length"][caption_rows])
        batches = _batches(*lengths, image_rows, caption_rows, self._batch_of, self._workers)
        workers = max(1, min(self._workers, len(batches)))

        def score(places: Rows) -> None:
            with torch.inference_mode():
                logits[places] = self._score(images, captions, image_rows[places], caption_rows[places])

        own = 1 if self._device.type == "cpu" and self._workers > 1 else self._threads
        with (
            inference(own),
            ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(own,)) as pool,
        ):
            try:
                for _ in pool.map(score, batches):
                    pass
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return logits

    def _piece(self, tokens: int) -> int:
        """Pairs of so many tokens that go through the joint layers together."""
        if _kind(self._device) == "cuda":
            return _PIECE_CUDA
        return max(1, _PIECE_BYTES // (tokens * self._core.token_bytes))

    def _batch_of(self, tokens: int) -> int:
        """Pairs of so many tokens that are looked up together."""
        return self._batch or _PIECES[_kind(self._device)] * self._piece(tokens)

    def _score(
        self, images: Encoded, captions: Encoded, image_rows: Rows, caption_rows: Rows
    ) -> NDArray[np.float32]:
        """Pairs whose images are of one length and whose captions are."""
        wanted, i = np.unique(image_rows, return_inverse=True)
        entered_images = self._entered_images(images, wanted)
        texts, c = np.unique(caption_rows, return_inverse=True)
        length = int(captions.arrays["length"][texts[0]])
        tokens = captions.arrays["tokens"][self._filled(texts), :length].astype(np.int64)
        entered_captions = self._core.entered(self._core.captions(torch.from_numpy(tokens).to(self._device)))
        size = self._piece(length + entered_images["state"].shape[1])
        together = max(1, min(_TOGETHER_MOST, _TOGETHER_BYTES // self._core.token_bytes))
        places = torch.from_numpy(self._filled(np.stack([i, c]))).to(self._device)
        scores = [
            self._core.joint(entered_images, entered_captions, piece[0], piece[1], together=together)
            for piece in torch.split(places, size, dim=1)
        ]
        numbers: NDArray[np.float32] = torch.cat(scores)[: len(i)].float().cpu().numpy()
        return numbers

    def _filled(self, rows: Rows) -> Rows:
        """(..., n) with the last one repeated, on a card, until it fills the piece."""
        missing = -rows.shape[-1] % _PIECE_CUDA if _kind(self._device) == "cuda" else 0
        return np.concatenate([rows, np.repeat(rows[..., -1:], missing, axis=-1)], axis=-1)

    def _entered_images(self, images: Encoded, rows: Rows) -> Side:
        states = images.arrays["state"]
        entered = self._kept.get(states, rows)
        new = [place for place, one in enumerate(entered) if one is None]
        if new:
            length = int(images.arrays["length"][rows[0]])
            fresh = torch.from_numpy(np.stack([states[row, :length] for row in self._filled(rows[new])]))
            entered_now = self._core.entered({"state": fresh.to(self._device)})
            if len(new) == len(rows) and not self._kept.budget:
                return entered_now
            for at, place in enumerate(new):
                entered[place] = {name: part[at] for name, part in entered_now.items()}
            self._kept.put(states, rows[new], [entered[place] for place in new])
        return {name: torch.stack([one[name] for one in entered if one]) for name in entered[0] or ()}


def _kind(device: torch.device) -> str:
    return device.type if device.type in _PIECES else "cuda"


def default_kept_bytes(device: torch.device) -> int:
    """Memory for images that have entered: a quarter of what a card has free, little where states lie in memory."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] // 4)
    return 0


def _batches(
    image_lengths: Rows,
    caption_lengths: Rows,
    image_rows: Rows,
    caption_rows: Rows,
    size: Callable[[int], int],
    workers: int,
) -> list[Rows]:
    """Places of pairs of one shape, an image's pairs one after another, at most ``size`` of so many tokens.

    Of a shape that does not fill a batch for each worker all have a share. The dearest come first, so that threads
    finish together.
    """
    order = np.lexsort((caption_rows, image_rows, caption_lengths, image_lengths))
    shapes = np.stack([image_lengths[order], caption_lengths[order]])
    cuts = np.flatnonzero((shapes[:, 1:] != shapes[:, :-1]).any(axis=0)) + 1
    tokens = (image_lengths + caption_lengths).tolist()
    batches: list[Rows] = []
    for bucket in np.split(order, cuts) if len(order) else ():
        step = min(size(tokens[bucket[0]]), -(-len(bucket) // workers))
        batches += [bucket[start : start + step] for start in range(0, len(bucket), step)]
    return sorted(batches, key=lambda places: -len(places) * tokens[places[0]])


class _Kept:
    """Images that have entered the network, the last used of one array of states, within a number of bytes."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._of: NDArray[np.float32] | None = None
        self._rows: OrderedDict[int, dict[str, Tensor]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get(self, states: NDArray[np.float32], rows: Rows) -> list[dict[str, Tensor] | None]:
        with self._lock:
            if self._of is not states:
                self._of, self._bytes = states, 0
                self._rows.clear()
            kept = [self._rows.get(row) for row in rows.tolist()]
            for row, image in zip(rows.tolist(), kept, strict=True):
                if image is not None:
                    self._rows.move_to_end(row)
            return kept

    def put(self, states: NDArray[np.float32], rows: Rows, entered: list[dict[str, Tensor] | None]) -> None:
        with self._lock:
            if self._of is not states:
                return
            for row, image in zip(rows.tolist(), entered, strict=True):
                if image is not None and row not in self._rows:
                    # Copies: a view would keep its whole batch.
                    self._rows[row] = {name: part.clone() for name, part in image.items()}
                    self._bytes += _bytes(image)
            while self._bytes > self.budget and self._rows:
                self._bytes -= _bytes(self._rows.popitem(last=False)[1])


def _bytes(entered: dict[str, Tensor]) -> int:
    return sum(part.numel() * part.element_size() for part in entered.values())
