"""PCME-mini: a residual network of two stages and a Gaussian an item, compared by samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Generator, Tensor, nn

from annotators.minis.losses import soft_contrast
from annotators.minis.twin import Captions, DualTwin, Side
from annotators.minis.words import vocabulary_of
from annotators.pcme_network import MatchProbability, Pcme, PcmeConfig
from annotators.pixels import imagenet_pixels

SIZE, WORD, EMBED, WIDTH, BLOCKS = 64, 64, 96, 24, (1, 1)
SAMPLES = 4
"""Samples an item in training."""
ODDS = 8.0
"""Where the criterion's shift and scale start; the released weights' 15 is steep for so short a training."""
CENTRE = -3.0
"""The log-sigma from which training starts, and to which a weak pull holds it: a sigma of 0.05."""
PULL = 1e-4


class PcmeMini(DualTwin):
    """Learns by the soft contrast of matching probabilities, averaged over pairs of samples."""

    network_name = "pcme"

    def __init__(self, texts: Sequence[str]) -> None:
        self.vocabulary = vocabulary_of(texts)
        sizes = {
            "words": len(self.vocabulary),
            "word": WORD,
            "embed": EMBED,
            "width": WIDTH,
            "blocks": BLOCKS,
        }
        self.network = Pcme(PcmeConfig(**sizes, image_size=SIZE))
        self.criterion = MatchProbability()
        for odds in self.criterion.parameters():
            nn.init.constant_(odds, ODDS)
        for encoder in (self.network.img_enc, self.network.txt_enc):
            # A start at a sigma of 1 would drown means of length 1 in noise of length sqrt(D).
            nn.init.zeros_(encoder.uncertain_net.fc.weight)
            nn.init.constant_(encoder.uncertain_net.fc.bias, CENTRE)

    def parameters(self) -> Iterator[nn.Parameter]:
        yield from self.network.parameters()
        yield from self.criterion.parameters()

    def state(self) -> dict[str, Tensor]:
        own = {f"criterion.{name}": odds for name, odds in self.criterion.state_dict().items()}
        return {**self.network.state_dict(), **own}

    def pixels(self, picture: Image) -> NDArray[np.float32]:
        return imagenet_pixels(picture, SIZE)

    def encode(self, text: str) -> NDArray[np.int64]:
        return self.vocabulary.encode(text)

    def images(self, pixels: Tensor) -> Side:
        return self.network.images(pixels)

    def captions(self, captions: Captions) -> Side:
        return self.network.captions(captions.tokens, captions.lengths)

    def compare(self, images: Side, captions: Side) -> Tensor:
        # The closed form: no noise in what is measured on the way.
        spreads = [(2 * side["log_sigma"]).exp().sum(1) for side in (images, captions)]
        return 2 * images["mean"] @ captions["mean"].T - spreads[0][:, None] - spreads[1]

    def objective(self, images: Side, captions: Side, generator: Generator) -> Tensor:
        samples = [_sampled(side, generator) for side in (images, captions)]
        log_sigmas = torch.cat([images["log_sigma"], captions["log_sigma"]])
        pull = PULL * (log_sigmas - CENTRE).square().sum(1).mean()
        return soft_contrast(self.criterion.half_log_odds(*samples)) + pull

    def metadata(self) -> dict[str, str]:
        return {"config": self.network.config.to_json(), "vocabulary": self.vocabulary.to_text()}


def _sampled(side: Side, generator: Generator) -> Tensor:
    """(B, S, D) samples."""
    mean, sigma = side["mean"][:, None], side["log_sigma"].exp()[:, None]
    noise = torch.randn(len(mean), SAMPLES, mean.shape[2], generator=generator)
    return mean + sigma * noise
