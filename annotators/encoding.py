"""Items through a network in batches of one shape, so that no result depends on what else is encoded."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from annotators.base import Encoded, InnerProducts, Modality, ids_of
from annotators.devices import Running, inference
from mitl.errors import AnnotatorError
from mitl.records import CaptionItem, ImageItem

Inputs = Mapping[str, NDArray[Any]]
"""One item's inputs without a batch axis, by name."""

_READERS = min(8, os.cpu_count() or 1)
"""Threads that decode pictures while the network computes."""
_AHEAD = 4 * _READERS
"""Pictures decoded ahead of the network."""

_Shape = tuple[tuple[str, tuple[int, ...]], ...]
"""Each input's name and shape."""


def encode_in_batches(
    modality: Modality,
    items: Sequence[Any],
    read: Callable[[Any], Inputs],
    encode: Callable[[dict[str, Tensor]], Mapping[str, Tensor]],
    running: Running,
) -> Encoded:
    """Encode items, given in ascending id order.

    Items whose inputs have the same shapes (captions of one length, pictures of one size) go through the network
    together and need no padding. Every batch is full, the last of a shape by repeats of its last item: equal
    shapes sum in an equal order, so an item's bits do not depend on its neighbours.

    Args:
        read: one item to its arrays, for example {"tokens": (L,)}; AnnotatorError where it cannot be read.
        encode: a batch of them, {"tokens": (B, L)} on the network's device, to named tensors (B, ...).

    Raises:
        AnnotatorError: there is nothing to encode, or the network gives something that is not finite.
    """
    if not items:
        raise AnnotatorError(f"no {modality}s to encode")
    waiting: dict[_Shape, list[tuple[int, Inputs]]] = {}
    encoded: list[dict[str, NDArray[Any]]] = [{}] * len(items)

    def flush(shape: _Shape) -> None:
        part = waiting.pop(shape)
        rows = [inputs for _, inputs in part]
        full = [*rows, *([rows[-1]] * (running.batch - len(rows)))]
        stacked = {
            name: torch.from_numpy(np.stack([row[name] for row in full])).to(running.device)
            for name in full[0]
        }
        arrays = {name: value.cpu().numpy() for name, value in encode(stacked).items()}
        for row, (place, _) in enumerate(part):
            encoded[place] = {name: array[row] for name, array in arrays.items()}

    with inference(running.threads):
        for place, inputs in enumerate(_read_ahead(items, read) if modality == "image" else map(read, items)):
            shape = tuple((name, array.shape) for name, array in sorted(inputs.items()))
            waiting.setdefault(shape, []).append((place, inputs))
            if len(waiting[shape]) == running.batch:
                flush(shape)
        for shape in list(waiting):
            flush(shape)
    arrays = {name: np.stack([of_item[name] for of_item in encoded]) for name in encoded[0]}
    for array in arrays.values():
        bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(1))
        if len(bad):
            raise AnnotatorError(
                f"the network gives no finite numbers for {modality} {items[bad[0]].external_id!r}; "
                "check its weights and inputs"
            )
    ids = ids_of(items)
    return Encoded(modality, ids, arrays)


class NetworkAnnotator(InnerProducts, ABC):
    """An annotator whose network encodes each item alone; a similarity is the inner product of two ``embedding``s."""

    reusable_encodings = True
    reads_pictures = True

    def __init__(self, name: str, fingerprint: str, running: Running) -> None:
        self.name, self.fingerprint = name, fingerprint
        self._running, self.device = running, running.device

    def encode_images(self, items: Sequence[ImageItem]) -> Encoded:
        """What the network keeps of each picture; AnnotatorError where one cannot be read."""
        encoded = encode_in_batches("image", items, self.read_image, self._encode_images, self._running)
        return self._kept(encoded, items)

    def encode_captions(self, items: Sequence[CaptionItem]) -> Encoded:
        """What the network keeps of each caption; AnnotatorError where one is longer than it reads."""
        encoded = encode_in_batches("caption", items, self.read_caption, self._encode_captions, self._running)
        return self._kept(encoded, items)

    def _kept(self, encoded: Encoded, items: Sequence[ImageItem] | Sequence[CaptionItem]) -> Encoded:
        """What is kept of what the network gave; all of it unless a subclass says otherwise."""
        return encoded

    @abstractmethod
    def read_image(self, item: ImageItem) -> Inputs:
        """What the network reads of a picture; AnnotatorError where it cannot be read."""

    @abstractmethod
    def read_caption(self, item: CaptionItem) -> Inputs:
        """What it reads of a caption; AnnotatorError where it is longer than that."""

    @abstractmethod
    def _encode_images(self, inputs: dict[str, Tensor]) -> Mapping[str, Tensor]: ...

    @abstractmethod
    def _encode_captions(self, inputs: dict[str, Tensor]) -> Mapping[str, Tensor]: ...


def padded(texts: Sequence[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
    """(B, L) the numbers of texts, zeros behind the end of each, and (B,) their lengths."""
    rows = [torch.from_numpy(text) for text in texts]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])


def _read_ahead(items: Sequence[Any], read: Callable[[Any], Inputs]) -> Iterator[Inputs]:
    """What ``read`` gives for each item, in order; the next few are read on other threads meanwhile."""
    with ThreadPoolExecutor(_READERS) as pool:
        waiting: deque[Future[Inputs]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(read, item))
                if len(waiting) > _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
