"""CLIP-mini: a transformer over patches and a transformer over words, trained by contrast alone."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from annotators.minis import losses
from annotators.minis.layers import Block, PatchStem, lengths_of
from annotators.minis.network import MiniNetwork, Side
from annotators.minis.vocabulary import PAD
from mitl.records import AnnotatorKind

PATCHES = 64


class ClipMini(MiniNetwork):
    """Contrastive transformers: class token of the patches, end token of the words; cosine.

    Source: Radford et al., CLIP, ICML 2021; sizes are ours, and words see both sides.
    """

    kind = AnnotatorKind.INNER_PRODUCT

    def __init__(
        self, words: int, *, width: int = 96, layers: int = 3, heads: int = 4, out: int = 96
    ) -> None:
        super().__init__()
        self.stem = PatchStem(width)
        self.class_embedding = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.img_places = nn.Parameter(torch.randn(1, PATCHES + 1, width) * 0.02)
        self.img_blocks = nn.ModuleList(Block(width, heads, 3) for _ in range(layers))
        self.img_norm = nn.LayerNorm(width)
        self.img_proj = nn.Linear(width, out, bias=False)
        text = width * 2 // 3
        self.embed = nn.Embedding(words, text, padding_idx=PAD)
        self.txt_places = nn.Parameter(torch.randn(1, self.text_length, text) * 0.02)
        self.txt_blocks = nn.ModuleList(Block(text, heads, 3) for _ in range(2))
        self.txt_norm = nn.LayerNorm(text)
        self.txt_proj = nn.Linear(text, out, bias=False)
        self.logit_scale = nn.Parameter(torch.tensor(2.66))  # log(1 / 0.07), the paper's start

    def images(self, squares: Tensor) -> Side:
        """``embedding`` (B, D) of unit vectors."""
        patches = self.stem(squares)
        x = torch.cat([self.class_embedding.expand(len(patches), -1, -1), patches], 1) + self.img_places
        for block in self.img_blocks:
            x = block(x)
        return {"embedding": F.normalize(self.img_proj(self.img_norm(x[:, 0])), dim=-1)}

    def captions(self, tokens: Tensor) -> Side:
        """``embedding`` (B, D) of unit vectors."""
        x, mask = self.embed(tokens) + self.txt_places, tokens == PAD
        for block in self.txt_blocks:
            x = block(x, mask)
        ends = x[torch.arange(len(x), device=x.device), lengths_of(tokens) - 1]
        return {"embedding": F.normalize(self.txt_proj(self.txt_norm(ends)), dim=-1)}

    def similarities(self, images: Side, captions: Side) -> Tensor:
        """Cosines."""
        return images["embedding"] @ captions["embedding"].T

    def loss(self, images: Side, captions: Side, progress: float, generator: Generator) -> Tensor:
        """Contrast at the learned temperature."""
        return losses.contrast(self.logit_scale.clamp(max=4.6).exp() * self.similarities(images, captions))
