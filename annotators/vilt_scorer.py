"""Pairs of encoded items through ViLT, nothing padded: their tokens one behind another, on a card always as many."""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from annotators.base import Encoded
from annotators.devices import inference, to_device
from annotators.vilt_core import Filling, ViltCore

Rows = NDArray[np.int64]

_PIECE_BYTES = 12 << 20
"""What the widest states of pairs that enter together may take on the CPU: 2,048 tokens in bfloat16 at full size."""
_PAIRS_CUDA = 96
"""Places for pairs that go through a card together, with tokens for two thirds of them at their longest: a card always
gets so many, filled up, for there how a product adds hangs on its size."""
_TOKENS, _WIDE = 128, 16
"""On a card tokens, and the longest pair's, are a multiple of it."""
_WORKERS_CUDA = 2
"""So that one batch is looked up while another is computed."""


class PairScorer:
    """One core's scores of pairs; ``threads`` batches at a time on the CPU, a thread each.

    A score does not depend on what else is asked, not by a bit: on a card all products have one size. On the CPU those
    of the joint layers, of all tokens, add each row alike however many there are, and only the last layer needs that.

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
        self._workers = _WORKERS_CUDA if device.type == "cuda" else threads
        self._kept = _Kept(kept_bytes)

    def scores(
        self, images: Encoded, captions: Encoded, image_rows: Rows, caption_rows: Rows
    ) -> NDArray[np.float32]:
        """(P,) the rank head's logits of the pairs (image_rows[p], caption_rows[p]), whatever their order."""
        logits = np.empty(len(image_rows), np.float32)
        lengths = images.arrays["length"][image_rows] + captions.arrays["length"][caption_rows]
        batches = self._batches(image_rows, caption_rows, lengths, _longest(images, captions))
        workers = max(1, min(self._workers, len(batches)))

        def score(places: Rows) -> None:
            with torch.inference_mode():
                logits[places] = self._score(images, captions, image_rows[places], caption_rows[places])

        threads = 1 if self._device.type == "cpu" and self._workers > 1 else self._threads
        with (
            inference(threads),
            ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads,)) as pool,
        ):
            try:
                for _ in pool.map(score, batches):
                    pass
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return logits

    def _batches(self, image_rows: Rows, caption_rows: Rows, lengths: Rows, longest: int) -> list[Rows]:
        """Places of the pairs, of so many tokens, that are looked up and enter together, an image's in a row."""
        size, most = lengths, _PIECE_BYTES // self._core.token_bytes
        order = np.lexsort((caption_rows, image_rows))
        if self._core.fills:
            return _within(
                order, size, _tokens_on_card(longest), min(_PAIRS_CUDA, self._batch or _PAIRS_CUDA)
            )
        if self._batch:
            size, most = np.ones_like(size), self._batch
        # As many for each worker, all of about one size, so that threads finish together.
        count = -(-size.sum() // (max(1, most) * self._workers)) * self._workers
        batch = (size[order].cumsum() - 1) * count // max(1, size.sum())
        parts = np.split(order, np.flatnonzero(np.diff(batch)) + 1)
        # Neighbours of one length attend in one call: a call for each pair is most of what a small network costs.
        return [part[np.argsort(lengths[part], kind="stable")] for part in parts if len(part)]

    def _score(
        self, images: Encoded, captions: Encoded, image_rows: Rows, caption_rows: Rows
    ) -> NDArray[np.float32]:
        """A batch of pairs."""
        longest = _longest(images, captions)
        tokens = _tokens_on_card(longest) if self._core.fills else 0
        pictures, i = np.unique(image_rows, return_inverse=True)
        texts, c = np.unique(caption_rows, return_inverse=True)
        entered = [
            *self._entered_captions(captions, texts, tokens),
            *self._entered_images(images, pictures, tokens),
        ]
        lengths = np.array([len(item["state"]) for item in entered])
        starts = lengths.cumsum() - lengths
        items = {name: torch.cat([item[name] for item in entered]) for name in entered[0]}
        item = np.stack([c, i + len(texts)], 1).ravel()
        sizes = lengths[item]
        rows = np.repeat(starts[item] - sizes.cumsum() + sizes, sizes) + np.arange(sizes.sum())
        of_pairs = sizes.reshape(-1, 2).sum(1)
        filling = None
        if self._core.fills:
            rows = np.pad(rows, (0, tokens - len(rows)))
            counts = torch.from_numpy(np.pad(of_pairs, (0, _PAIRS_CUDA - len(of_pairs)))).to(self._device)
            filling = Filling.of(counts, tokens, -(-longest // _WIDE) * _WIDE)
        at = torch.from_numpy(rows).to(self._device)
        scores = self._core.packed(items, at, of_pairs.tolist(), filling)[: len(i)]
        numbers: NDArray[np.float32] = scores.float().cpu().numpy()
        return numbers

    def _entered(self, state: Tensor, lengths: list[int], tokens: int) -> list[dict[str, Tensor]]:
        """Each item of these lengths, whose states lie one behind another, as it enters the network.

        By products of at least so many ``tokens``.
        """
        entered = self._core.entered({"state": F.pad(state, (0, 0, 0, max(0, tokens - len(state))))})
        parts = zip(*(torch.split(part[: len(state)], lengths) for part in entered.values()), strict=True)
        return [dict(zip(entered, of_item, strict=True)) for of_item in parts]

    def _entered_captions(self, captions: Encoded, rows: Rows, tokens: int) -> list[dict[str, Tensor]]:
        lengths = captions.arrays["length"][rows].tolist()
        pieces = captions.arrays["tokens"][rows, : max(lengths)].astype(np.int64)
        state = self._core.captions(torch.from_numpy(pieces).to(self._device))["state"]
        of_words = [row[:length] for row, length in zip(state, lengths, strict=True)]
        return self._entered(torch.cat(of_words), lengths, tokens)

    def _entered_images(self, images: Encoded, rows: Rows, tokens: int) -> list[dict[str, Tensor]]:
        states = images.arrays["state"]
        items = self._kept.get(states, rows)
        new = [place for place, item in enumerate(items) if item is None]
        if new:
            lengths = images.arrays["length"][rows[new]].tolist()
            state = np.concatenate(
                [states[row, :length] for row, length in zip(rows[new], lengths, strict=True)]
            )
            entered = self._entered(to_device(state, self._device), lengths, tokens)
            for place, item in zip(new, entered, strict=True):
                items[place] = item
            self._kept.put(states, rows[new], entered)
        return [item for item in items if item]


def _longest(images: Encoded, captions: Encoded) -> int:
    """Tokens of the longest pair."""
    return int(images.arrays["state"].shape[1] + captions.arrays["tokens"].shape[1])


def _tokens_on_card(longest: int) -> int:
    """Tokens of the pairs that go through a card together, where the longest pair has so many."""
    return -(-_PAIRS_CUDA * longest * 2 // (3 * _TOKENS)) * _TOKENS


def _within(order: Rows, size: Rows, tokens: int, pairs: int) -> list[Rows]:
    """Cut places in their order into parts of at most so many tokens, ``size`` each, and pairs."""
    ends, parts, start = size[order].cumsum(), [], 0
    while start < len(order):
        before = ends[start - 1] if start else 0
        stop = min(int(np.searchsorted(ends, before + tokens, "right")), start + pairs)
        parts.append(order[start:stop])
        start = stop
    return parts


def default_kept_bytes(device: torch.device) -> int:
    """Memory for images that have entered: a quarter of what a card has free, little where states lie in memory."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] // 4)
    return 0


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

    def put(self, states: NDArray[np.float32], rows: Rows, entered: list[dict[str, Tensor]]) -> None:
        with self._lock:
            if self._of is not states:
                return
            for row, image in zip(rows.tolist(), entered, strict=True):
                if row not in self._rows:
                    # Copies: a view would keep its whole batch.
                    self._rows[row] = {name: part.clone() for name, part in image.items()}
                    self._bytes += _bytes(image)
            while self._bytes > self.budget and self._rows:
                self._bytes -= _bytes(self._rows.popitem(last=False)[1])


def _bytes(entered: dict[str, Tensor]) -> int:
    return sum(part.numel() * part.element_size() for part in entered.values())
