"""PCME's network at any size: a Gaussian an image or a caption, wide where it could mean much.

Source: Chun et al., Probabilistic embeddings for cross-modal retrieval, CVPR 2021. Parameters bear the names of the
released weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotators.dual_encoders import Sizes
from annotators.networks.pie import AttentionPooling, Pie, SentenceGru, padding_of, xavier
from annotators.networks.resnet import ResNet, cells_of
from annotators.scoring.match_probability import EPSILON

INITIAL = 15.0
"""Where ``shift`` and ``negative_scale`` start in training on COCO."""


@dataclass(frozen=True, slots=True)
class PcmeConfig(Sizes):
    """Sizes; the defaults are those of the released weights."""


class ImageUncertainty(nn.Module):
    """The log-sigma of a picture: attention of its own over the cells, and the cells' mean; both linear."""

    def __init__(self, channels: int, embed: int) -> None:
        super().__init__()
        self.attention = AttentionPooling(channels, 1)
        self.fc = nn.Linear(channels, embed)
        self.fc2 = nn.Linear(channels, embed)
        xavier(self.fc)
        xavier(self.fc2)

    def forward(self, mean: Tensor, cells: Tensor) -> Tensor:
        """(B, D) and (B, L, D) -> (B, embed)."""
        log_sigma: Tensor = self.fc(self.attention(cells)[:, 0]) + self.fc2(mean)
        return log_sigma


class TextUncertainty(nn.Module):
    """The log-sigma of a caption: attention of its own over the words, and a recurrent network of its own."""

    def __init__(self, word: int, embed: int) -> None:
        super().__init__()
        self.attention = AttentionPooling(word, 1)
        self.fc = nn.Linear(word, embed)
        self.rnn = SentenceGru(word, embed)
        xavier(self.fc)

    def forward(self, words: Tensor, lengths: Tensor, padding: Tensor) -> Tensor:
        """(B, L, word), (B,) and (B, L) -> (B, embed)."""
        attended = self.attention(words, padding)[:, 0]
        log_sigma: Tensor = self.fc(attended) + self.rnn.last_position(words, lengths)
        return log_sigma


class ImageEncoder(nn.Module):
    """A picture's cells to the mean and the log-sigma of its Gaussian."""

    def __init__(self, config: PcmeConfig) -> None:
        super().__init__()
        self.cnn = ResNet(config.blocks, config.width)
        self.fc = nn.Linear(self.cnn.channels, config.embed)
        self.pie_net = Pie(self.cnn.channels, config.embed, 1)
        self.uncertain_net = ImageUncertainty(self.cnn.channels, config.embed)
        xavier(self.fc)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 3, S, S) -> means (B, embed) of length 1 and log-sigmas (B, embed)."""
        grid = self.cnn(pixels)  # (B, D, 7, 7)
        pooled, cells = grid.mean((2, 3)), cells_of(grid)
        mean = self.pie_net(self.fc(pooled), cells)[:, 0]
        return F.normalize(mean, dim=-1), self.uncertain_net(pooled, cells)


class TextEncoder(nn.Module):
    """A caption's words to the mean and the log-sigma of its Gaussian."""

    def __init__(self, config: PcmeConfig) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.words, config.word)
        self.rnn = SentenceGru(config.word, config.embed)
        self.pie_net = Pie(config.word, config.embed, 1)
        self.uncertain_net = TextUncertainty(config.word, config.embed)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)

    def forward(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(B, L) and (B,) -> means (B, embed) of length 1 and log-sigmas (B, embed)."""
        words = self.embed(tokens)  # (B, L, word)
        padding = padding_of(lengths.to(words.device), words.shape[1])
        mean = self.pie_net(self.rnn.last_position(words, lengths), words, padding)[:, 0]
        return F.normalize(mean, dim=-1), self.uncertain_net(words, lengths, padding)


class Pcme(nn.Module):
    """Both encoders; ``MatchProbability`` compares what they give."""

    def __init__(self, config: PcmeConfig) -> None:
        super().__init__()
        self.config = config
        self.img_enc = ImageEncoder(config)
        self.txt_enc = TextEncoder(config)

    def images(self, pixels: Tensor) -> dict[str, Tensor]:
        """``mean`` and ``log_sigma`` (B, D) of pixels (B, 3, S, S)."""
        mean, log_sigma = self.img_enc(pixels)
        return {"mean": mean, "log_sigma": log_sigma}

    def captions(self, tokens: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """``mean`` and ``log_sigma`` (B, D) of captions (B, L) int64 of lengths (B,), padded with anything."""
        mean, log_sigma = self.txt_enc(tokens, lengths)
        return {"mean": mean, "log_sigma": log_sigma}


class MatchProbability(nn.Module):
    """The learned odds of a match by distance, the criterion's two parameters; trainable.

    To rank, ``match_probability.match_probabilities`` gives the same numbers far faster.
    Source: section 3.1.2; the factor 2 and the 1e-6 as in its code (criterions/probemb.py).
    """

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.full((1,), INITIAL))
        self.negative_scale = nn.Parameter(torch.full((1,), INITIAL))

    def half_log_odds(self, left: Tensor, right: Tensor) -> Tensor:
        """(Q, G, S, T) of samples (Q, S, D) and (G, T, D): shift - negative_scale d."""
        squares = left.square().sum(-1)[:, None, :, None] + right.square().sum(-1)[None, :, None]
        products = torch.einsum("qsd,gtd->qgst", left, right)
        distance = ((squares - 2 * products).clamp(min=0) + EPSILON).sqrt()
        return self.shift - self.negative_scale * distance

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """(Q, G) probabilities: the mean over all pairs of samples."""
        return torch.sigmoid(2 * self.half_log_odds(left, right)).mean((2, 3))
