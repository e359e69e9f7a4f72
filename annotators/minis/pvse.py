"""PVSE-mini: a residual network of two stages, two embeddings an item by attention pooling."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Generator, Tensor

from annotators.minis.losses import contrast
from annotators.minis.twin import Captions, DualTwin, Side
from annotators.minis.words import vocabulary_of
from annotators.pixels import imagenet_pixels
from annotators.pvse import Pvse, PvseConfig

TEMPERATURE = 0.08
DIVERSITY = 0.05
"""Weight of the pull that keeps an item's two embeddings apart; the paper's, section 3.3, is 0.01 to 0.1."""
SIZE, WORD, EMBED, WIDTH, BLOCKS = 64, 64, 128, 24, (1, 1)


class PvseMini(DualTwin):
    """Learns by contrast of the best of the 2 x 2 cosines at a fixed temperature."""

    network_name = "pvse"

    def __init__(self, texts: Sequence[str]) -> None:
        self.vocabulary = vocabulary_of(texts)
        sizes = {
            "words": len(self.vocabulary),
            "word": WORD,
            "embed": EMBED,
            "width": WIDTH,
            "blocks": BLOCKS,
        }
        self.network = Pvse(PvseConfig(**sizes, image_size=SIZE))

    def pixels(self, picture: Image) -> NDArray[np.float32]:
        return imagenet_pixels(picture, SIZE)

    def encode(self, text: str) -> NDArray[np.int64]:
        return self.vocabulary.encode(text)

    def images(self, pixels: Tensor) -> Side:
        return self.network.images(pixels)

    def captions(self, captions: Captions) -> Side:
        return self.network.captions(captions.tokens, captions.lengths)

    def compare(self, images: Side, captions: Side) -> Tensor:
        products = torch.einsum("ikd,cld->ickl", images["embedding"], captions["embedding"])
        return products.flatten(2).amax(2)

    def objective(self, images: Side, captions: Side, generator: Generator) -> Tensor:
        alike = [(side["embedding"][:, 0] * side["embedding"][:, 1]).sum(-1) for side in (images, captions)]
        ranking = contrast(self.compare(images, captions) / TEMPERATURE)
        return ranking + DIVERSITY * torch.cat(alike).square().mean()

    def metadata(self) -> dict[str, str]:
        config = json.dumps(asdict(self.network.config), sort_keys=True)
        return {"config": config, "vocabulary": self.vocabulary.to_text()}
