"""PVSE-mini: a residual network of two stages, two embeddings an item by attention pooling."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from annotators.minis.losses import contrast
from annotators.minis.twin import Side
from annotators.minis.word_twin import SIZE, WordTwin
from annotators.pvse import Pvse, PvseConfig

TEMPERATURE = 0.08
DIVERSITY = 0.05
"""Weight of the pull that keeps an item's two embeddings apart."""


class PvseMini(WordTwin[Pvse]):
    """Learns by contrast of the best of the 2 x 2 cosines at a fixed temperature.

    The paper's hinge on the hardest negative is VSRN-mini's: two twins of one loss would differ less.
    """

    network_name = "pvse"

    def untrained(self, words: int) -> Pvse:
        """64 cells of 192 numbers, embeddings of 2 x 128."""
        return Pvse(PvseConfig(words=words, word=64, embed=128, blocks=(1, 1), width=24, image_size=SIZE))

    def compare(self, images: Side, captions: Side) -> Tensor:
        """The best of the K x K cosines."""
        products = torch.einsum("ikd,cld->ickl", images["embedding"], captions["embedding"])
        return products.flatten(2).amax(2)

    def objective(self, images: Side, captions: Side, generator: Generator) -> Tensor:
        """Contrast, and the K embeddings of an item should differ."""
        alike = [(side["embedding"][:, 0] * side["embedding"][:, 1]).sum(-1) for side in (images, captions)]
        ranking = contrast(self.compare(images, captions) / TEMPERATURE)
        return ranking + DIVERSITY * torch.cat(alike).square().mean()
