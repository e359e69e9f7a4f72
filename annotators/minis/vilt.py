"""ViLT-mini: 16 patches and the word pieces in one transformer of three layers, a score for each pair."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Generator, Tensor, nn

from annotators.inputs.pixels import vilt_pixels
from annotators.inputs.wordpieces import from_lines
from annotators.minis.losses import contrast
from annotators.minis.twin import Captions, Side, Twin
from annotators.minis.words import wordpieces_of
from annotators.networks.vilt import Vilt, ViltConfig

SIZE, PATCH = 64, 16
PLACES = 40
PAIRS = 256
"""Pairs scored at a time, of captions of similar length: little padding, and all fits into the cache."""


class ViltMini(Twin[Vilt]):
    """Learns to rank by contrast among all pairs of the batch; no pre-training with masked words.

    ViLT's own fine-tuning takes the cross-entropy of the original among 15 drawn captions; a batch's whole rows and
    columns teach faster, for each embedded picture and caption serves many pairs.
    """

    network_name = "vilt"

    def __init__(self, texts: Sequence[str]) -> None:
        self.lines = wordpieces_of(texts)
        self.wordpieces = from_lines(self.lines, "the words of scenes")
        self.network = Vilt(
            ViltConfig(
                vocab_size=len(self.wordpieces),
                hidden_size=64,
                num_hidden_layers=3,
                num_attention_heads=4,
                intermediate_size=128,
                image_size=SIZE,
                patch_size=PATCH,
                max_position_embeddings=PLACES,
            )
        )
        # The port's start, a deviation of 0.02, is meant for widths of hundreds: here nothing would move.
        for module in self.network.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)

    def pixels(self, picture: Image) -> NDArray[np.float32]:
        """(3, 64, 64)."""
        return vilt_pixels(picture, SIZE, PATCH)

    def encode(self, text: str) -> NDArray[np.int64]:
        """(L,) word pieces, at most 40."""
        return self.wordpieces.encode(text, PLACES)

    def loss(self, pixels: Tensor, captions: Sequence[Captions], generator: Generator) -> Tensor:
        """Contrast of the scores of all pairs."""
        return torch.stack([contrast(self.similarities(pixels, one)) for one in captions]).mean()

    def similarities(self, pixels: Tensor, captions: Captions) -> Tensor:
        """(I, C) logits of the rank head."""
        images = self.network.images(pixels)
        order = captions.lengths.argsort()
        parts = torch.split(order, max(1, PAIRS // len(pixels)))
        return torch.cat([self._block(images, captions.rows(part)) for part in parts], 1)[:, order.argsort()]

    def metadata(self) -> dict[str, str]:
        """Sizes and word pieces."""
        return {"config": self.network.sizes.to_json(), "wordpieces": self.lines}

    def _block(self, images: Side, captions: Captions) -> Tensor:
        words = torch.arange(captions.tokens.shape[1]) < captions.lengths[:, None]
        texts = self.network.captions(captions.tokens, words)
        count = len(images["state"])
        pairs = torch.cartesian_prod(torch.arange(count), torch.arange(len(captions)))
        return self.network.score(images, texts, pairs[:, 0], pairs[:, 1]).view(count, len(captions))
