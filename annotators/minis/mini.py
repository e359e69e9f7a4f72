"""A small trained network as a machine annotator: files and texts in, arrays and similarities out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from annotators.base import Encoded, Modality
from annotators.devices import inference
from annotators.minis.network import Side
from annotators.minis.pixels import read_square
from annotators.minis.weights import Trained
from annotators.similarity import best_inner_products, inner_products
from mitl.errors import AnnotatorError
from mitl.records import AnnotatorKind, CaptionItem, ImageItem

BATCH = 64
"""Items encoded at a time, always so many: equal shapes sum in an equal order, whatever else is asked."""


class MiniAnnotator:
    """Looks at the image files' pixels and the captions' words; one class for all five networks."""

    def __init__(
        self, name: str, trained: Trained, fingerprint: str, device: torch.device, threads: int
    ) -> None:
        self.name = name
        self.kind = trained.network.kind
        self.fingerprint = fingerprint
        self._network = trained.network.to(device)
        self._vocabulary = trained.vocabulary
        self._device, self._threads = device, threads

    def encode_images(self, items: Sequence[ImageItem]) -> Encoded:
        """What the network keeps of each image; AnnotatorError for a file that is missing or no image."""
        size = self._network.image_size

        def squares(part: Sequence[ImageItem]) -> NDArray[Any]:
            return np.stack([read_square(item, size) for item in part])

        return self._encoded("image", items, squares, self._network.images)

    def encode_captions(self, items: Sequence[CaptionItem]) -> Encoded:
        """What the network keeps of each caption."""
        length = self._network.text_length

        def tokens(part: Sequence[CaptionItem]) -> NDArray[Any]:
            return self._vocabulary.encode([item.text for item in part], length)

        return self._encoded("caption", items, tokens, self._network.captions)

    def similarities(self, queries: Encoded, gallery: Encoded) -> NDArray[np.float32]:
        """(Q, G) cosines, best cosines, probabilities or scores, as the network has it."""
        if self.kind is AnnotatorKind.INNER_PRODUCT:
            return inner_products(queries.arrays["embedding"], gallery.arrays["embedding"])
        if self.kind is AnnotatorKind.MULTI_VECTOR:
            return best_inner_products(queries.arrays["embedding"], gallery.arrays["embedding"])
        images, captions = (queries, gallery) if queries.modality == "image" else (gallery, queries)
        with inference(self._threads):
            block = self._network.similarities(self._side(images), self._side(captions))
        by_image: NDArray[np.float32] = block.to(torch.float32).cpu().numpy()
        return by_image if queries.modality == "image" else np.ascontiguousarray(by_image.T)

    def _encoded(
        self,
        modality: Modality,
        items: Sequence[Any],
        read: Callable[[Sequence[Any]], NDArray[Any]],
        encode: Callable[[Tensor], Side],
    ) -> Encoded:
        if not items:
            raise AnnotatorError(f"no {modality}s to encode")
        ids = np.array([item.id for item in items], dtype=np.int64)
        parts: list[dict[str, NDArray[Any]]] = []
        with inference(self._threads):
            for start in range(0, len(items), BATCH):
                part = items[start : start + BATCH]
                side = encode(self._full_batch(read, part))
                parts.append({key: value[: len(part)].cpu().numpy() for key, value in side.items()})
        arrays = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        return Encoded(modality, ids, arrays)

    def _full_batch(self, read: Callable[[Sequence[Any]], NDArray[Any]], part: Sequence[Any]) -> Tensor:
        rows = read(part)
        padding = np.repeat(rows[-1:], BATCH - len(rows), axis=0)
        return torch.from_numpy(np.concatenate([rows, padding])).to(self._device)

    def _side(self, encoded: Encoded) -> Side:
        # Probabilities are computed in float64, where the shape of a block leaves no trace after rounding.
        exact = self.kind is AnnotatorKind.PROBABILITY
        tensors = {key: torch.from_numpy(array).to(self._device) for key, array in encoded.arrays.items()}
        return {key: t.double() if exact else t for key, t in tensors.items()}
