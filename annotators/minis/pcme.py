"""PCME-mini: a residual network of two stages and a Gaussian an item, compared by samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Generator, Tensor, nn

from annotators.minis.losses import soft_contrast
from annotators.minis.twin import Side
from annotators.minis.word_twin import SIZE, WordTwin
from annotators.networks.pcme import MatchProbability, Pcme, PcmeConfig

SAMPLES = 4
"""Samples an item in training."""
ODDS = 8.0
"""Where the criterion's shift and scale start; the paper's 15 is steep for so short a training."""
CENTRE = -3.0
"""The log-sigma from which training starts, and to which a weak pull holds it: a sigma of 0.05."""
PULL = 1e-4


class PcmeMini(WordTwin[Pcme]):
    """Learns by the soft contrast of matching probabilities, averaged over pairs of samples."""

    network_name = "pcme"

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__(texts)
        self.criterion = MatchProbability()
        for odds in self.criterion.parameters():
            nn.init.constant_(odds, ODDS)

    def untrained(self, words: int) -> Pcme:
        """64 cells of 192 numbers, Gaussians over 96."""
        network = Pcme(PcmeConfig(words=words, word=64, embed=96, blocks=(1, 1), width=24, image_size=SIZE))
        for uncertain in (network.img_enc.uncertain_net, network.txt_enc.uncertain_net):
            # A start at a sigma of 1 would drown means of length 1 in noise of length sqrt(D).
            nn.init.zeros_(uncertain.fc.weight)
            nn.init.constant_(uncertain.fc.bias, CENTRE)
        return network

    def parameters(self) -> Iterator[nn.Parameter]:
        """The network's and the two of the odds."""
        yield from self.network.parameters()
        yield from self.criterion.parameters()

    def state(self) -> dict[str, Tensor]:
        """The network's tensors and ``criterion.shift``, ``criterion.negative_scale``."""
        odds = {f"criterion.{name}": tensor for name, tensor in self.criterion.state_dict().items()}
        return {**self.network.state_dict(), **odds}

    def compare(self, images: Side, captions: Side) -> Tensor:
        """Minus the expected squared distance, but for a constant: no noise in what is measured on the way."""
        spreads = [(2 * side["log_sigma"]).exp().sum(1) for side in (images, captions)]
        return 2 * images["mean"] @ captions["mean"].T - spreads[0][:, None] - spreads[1]

    def objective(self, images: Side, captions: Side, generator: Generator) -> Tensor:
        """Soft contrast of sampled probabilities, with a pull of the variances."""
        samples = [_sampled(side, generator) for side in (images, captions)]
        log_sigmas = torch.cat([images["log_sigma"], captions["log_sigma"]])
        pull = PULL * (log_sigmas - CENTRE).square().sum(1).mean()
        return soft_contrast(self.criterion.half_log_odds(*samples)) + pull


def _sampled(side: Side, generator: Generator) -> Tensor:
    """(B, S, D) samples."""
    mean, sigma = side["mean"][:, None], side["log_sigma"].exp()[:, None]
    noise = torch.randn(len(mean), SAMPLES, mean.shape[2], generator=generator)
    return mean + sigma * noise
