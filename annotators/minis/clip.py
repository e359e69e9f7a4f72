"""CLIP-mini: a transformer over 64 patches and a causal transformer over byte pairs, trained by contrast alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Generator, Tensor

from annotators.clip import Clip
from annotators.inputs.bpe import BytePairEncoder, learn_merges
from annotators.inputs.pixels import clip_pixels
from annotators.minis.losses import contrast
from annotators.minis.twin import Captions, DualTwin, Side
from annotators.networks.clip_config import ClipConfig

MERGES = 400
"""Enough for nearly every word of scenes to be one token."""
SIZE = 64
LARGEST_SCALE = 4.6052
"""log(100), the bound of the learned temperature in the paper, section 2.5."""


class ClipMini(DualTwin[Clip]):
    """Learns by CLIP's symmetric contrast at a learned temperature."""

    network_name = "clip"

    def __init__(self, texts: Sequence[str]) -> None:
        self.encoder = BytePairEncoder(learn_merges(texts, MERGES))
        self.network = Clip(
            ClipConfig(
                embed_dim=96,
                image_size=SIZE,
                patch_size=8,
                vision_width=96,
                vision_layers=3,
                vision_heads=4,
                vision_mlp=288,
                vocab_size=self.encoder.size,
                text_width=64,
                text_layers=2,
                text_heads=4,
                text_mlp=192,
            )
        )

    def pixels(self, picture: Image) -> NDArray[np.float32]:
        """(3, 64, 64)."""
        return clip_pixels(picture, SIZE)

    def encode(self, text: str) -> NDArray[np.int64]:
        """(L,) byte pairs."""
        return self.encoder.encode(text)

    def images(self, pixels: Tensor) -> Side:
        """As the network keeps them."""
        return self.network.images(pixels)

    def captions(self, captions: Captions) -> Side:
        """As the network keeps them; what stands behind a text's end token is not seen."""
        return self.network.captions(captions.tokens)

    def objective(self, images: Side, captions: Side, generator: Generator) -> Tensor:
        """Contrast at the learned temperature."""
        scale = self.network.logit_scale.clamp(max=LARGEST_SCALE).exp()
        return contrast(scale * self.compare(images, captions))

    def metadata(self) -> dict[str, str]:
        """Sizes and merges."""
        return {
            "config": json.dumps(asdict(self.network.config), sort_keys=True),
            "bpe_merges": "\n".join(" ".join(merge) for merge in self.encoder.merges),
        }
