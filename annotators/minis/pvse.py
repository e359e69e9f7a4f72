"""PVSE-mini: two embeddings an item, so that one may follow one object and one another."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from annotators.minis import losses
from annotators.minis.layers import Backbone, Pie, WordGru, cells_of, lengths_of
from annotators.minis.network import MiniNetwork, Side
from annotators.minis.vocabulary import PAD
from mitl.records import AnnotatorKind

TEMPERATURE = 0.08
DIVERSITY = 0.05


class PvseMini(MiniNetwork):
    """Polysemous embedding: a global vector plus K attended details; similarity is the best of K x K cosines.

    Source: Song and Soleymani, PVSE, CVPR 2019; sizes are ours.
    """

    kind = AnnotatorKind.MULTI_VECTOR

    def __init__(self, words: int, *, grid: int = 96, word: int = 64, width: int = 96, k: int = 2) -> None:
        super().__init__()
        self.cnn = Backbone(grid)
        self.img_fc = nn.Linear(grid, width)
        self.img_pie = Pie(grid, width, k)
        self.embed = nn.Embedding(words, word, padding_idx=PAD)
        self.rnn = WordGru(word, width // 2, both=True)
        self.txt_pie = Pie(word, width, k)

    def images(self, squares: Tensor) -> Side:
        """``embedding`` (B, K, D) of unit vectors."""
        cells = cells_of(self.cnn(squares))
        return {"embedding": F.normalize(self.img_pie(self.img_fc(cells.mean(1)), cells), dim=-1)}

    def captions(self, tokens: Tensor) -> Side:
        """``embedding`` (B, K, D) of unit vectors."""
        words = self.embed(tokens)
        whole = self.rnn(words, lengths_of(tokens))
        return {"embedding": F.normalize(self.txt_pie(whole, words, tokens == PAD), dim=-1)}

    def similarities(self, images: Side, captions: Side) -> Tensor:
        """The best of the K x K cosines."""
        products = torch.einsum("ikd,cld->ickl", images["embedding"], captions["embedding"])
        return products.flatten(2).amax(2)

    def loss(self, images: Side, captions: Side, progress: float, generator: Generator) -> Tensor:
        """Contrast at a fixed temperature; the K vectors of an item should differ."""
        similarities = self.similarities(images, captions)
        ranking = losses.contrast(similarities / TEMPERATURE)
        alike = [(side["embedding"][:, 0] * side["embedding"][:, 1]).sum(-1) for side in (images, captions)]
        return ranking + DIVERSITY * torch.cat(alike).square().mean()
