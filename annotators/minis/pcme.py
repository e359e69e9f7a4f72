"""PCME-mini: a Gaussian an item; what could mean much is wide."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from annotators.minis import losses
from annotators.minis.layers import AttentionPooling, Backbone, Pie, WordGru, cells_of, lengths_of
from annotators.minis.network import MiniNetwork, Side
from annotators.minis.vocabulary import PAD
from mitl.records import AnnotatorKind

UNIFORMITY = 1e-4
"""Weight that keeps the variances near 1e-2, so that they neither vanish nor run away."""
CENTRE = -2.3
"""The log-sigma from which that weight pulls back: a sigma of 0.1."""


class PcmeMini(MiniNetwork):
    """Probabilistic embedding: unit mean, log-sigma a dimension; similarity is the matching probability.

    The probability is sigmoid(2 * (shift - scale * d)) with d the root of the expected squared distance between
    samples, |mu_i - mu_c|^2 + sum(sigma_i^2) + sum(sigma_c^2): in closed form, where the paper averages samples.
    Source: Chun et al., PCME, CVPR 2021; the closed form as in Chun, PCME++, ICLR 2024; sizes are ours.
    """

    kind = AnnotatorKind.PROBABILITY

    def __init__(self, words: int, *, grid: int = 96, word: int = 64, width: int = 64) -> None:
        super().__init__()
        self.cnn = Backbone(grid)
        self.img_fc = nn.Linear(grid, width)
        self.img_pie = Pie(grid, width, 1)
        self.img_attention = AttentionPooling(grid, 1)
        self.img_sigma = nn.Linear(2 * grid, width)
        self.embed = nn.Embedding(words, word, padding_idx=PAD)
        self.rnn = WordGru(word, width // 2, both=True)
        self.txt_pie = Pie(word, width, 1)
        self.txt_attention = AttentionPooling(word, 1)
        self.txt_sigma = nn.Linear(width + word, width)
        for head in (self.img_sigma, self.txt_sigma):
            nn.init.zeros_(head.weight)
            nn.init.constant_(head.bias, CENTRE)
        self.scale = nn.Parameter(torch.tensor(5.0))
        self.shift = nn.Parameter(torch.tensor(5.0))

    def images(self, squares: Tensor) -> Side:
        """``mean`` and ``log_sigma`` (B, D)."""
        cells = cells_of(self.cnn(squares))
        pooled = cells.mean(1)
        mean = self.img_pie(self.img_fc(pooled), cells)[:, 0]
        detail = self.img_attention(cells)[:, 0]
        return {
            "mean": F.normalize(mean, dim=-1),
            "log_sigma": self.img_sigma(torch.cat([pooled, detail], 1)),
        }

    def captions(self, tokens: Tensor) -> Side:
        """``mean`` and ``log_sigma`` (B, D)."""
        words, mask = self.embed(tokens), tokens == PAD
        whole = self.rnn(words, lengths_of(tokens))
        mean = self.txt_pie(whole, words, mask)[:, 0]
        detail = self.txt_attention(words, mask)[:, 0]
        return {"mean": F.normalize(mean, dim=-1), "log_sigma": self.txt_sigma(torch.cat([whole, detail], 1))}

    def similarities(self, images: Side, captions: Side) -> Tensor:
        """Matching probabilities, computed in the inputs' precision."""
        return torch.sigmoid(2 * self._half_log_odds(images, captions))

    def loss(self, images: Side, captions: Side, progress: float, generator: Generator) -> Tensor:
        """Soft contrast of matching probabilities, with a pull of the variances."""
        sigmas = torch.cat([images["log_sigma"], captions["log_sigma"]])
        return (
            losses.soft_contrast(self._half_log_odds(images, captions))
            + UNIFORMITY * (sigmas - CENTRE).square().sum(1).mean()
        )

    def _half_log_odds(self, images: Side, captions: Side) -> Tensor:
        cosines = images["mean"] @ captions["mean"].T
        spread = [(2 * side["log_sigma"]).exp().sum(1) for side in (images, captions)]
        squared = (2 - 2 * cosines).clamp(min=0) + spread[0][:, None] + spread[1][None, :]
        return self.shift - self.scale * (squared + 1e-6).sqrt()
