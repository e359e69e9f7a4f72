"""The five small twins: what they are made of, what they learn by, and how long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Generator, Tensor, nn

from annotators.clip import LARGEST_SCALE, Clip
from annotators.inputs.bpe import BytePairEncoder, learn_merges
from annotators.inputs.pixels import clip_pixels, vilt_pixels
from annotators.inputs.wordpieces import from_lines
from annotators.minis.twin import (
    SIZE,
    Captions,
    Side,
    Twin,
    WordTwin,
    contrast,
    smooth_triplet,
    soft_contrast,
    wordpieces_of,
)
from annotators.pcme import MatchProbability, Pcme, drawn_samples
from annotators.pvse import Pvse
from annotators.sizes import ClipConfig, GridConfig, PcmeConfig, PvseConfig, ViltConfig, VsrnConfig
from annotators.vilt import Vilt
from annotators.vsrn import Vsrn

TEMPERATURE = 0.08
"""Of PVSE-mini's contrast and of VSRN-mini's smooth maximum."""
DIVERSITY = 0.05
"""Weight of the pull that keeps an item's two embeddings apart."""


class PvseMini(WordTwin[Pvse]):
    """A residual network of two stages and two embeddings an item.

    Learns by contrast of the best of the 2 x 2 cosines at a fixed temperature.

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


MARGIN = 0.2
"""The paper's."""


class VsrnMini(WordTwin[Vsrn]):
    """36 windows of a small residual network's grid as regions, four graph blocks, a GRU over the regions.

    Learns by the hinge on the hardest negative, as VSRN does; without its caption generator.
    """

    network_name = "vsrn"

    def untrained(self, words: int) -> Vsrn:
        """36 regions of 128 numbers, embeddings of 112."""
        grid = GridConfig(blocks=(1, 1), width=16, window=3, image_size=SIZE)
        return Vsrn(
            VsrnConfig(
                words=words,
                word_width=64,
                region_width=128,
                width=112,
                regions=grid.regions,
                extractor=grid,
            )
        )

    def objective(self, images: Side, captions: Side, generator: Generator) -> Tensor:
        """Hinge on a smooth maximum of the negatives."""
        return smooth_triplet(self.compare(images, captions), MARGIN, TEMPERATURE)


ODDS = 8.0
"""Where the criterion's shift and scale start; the paper's 15 is steep for so short a training."""
CENTRE = -3.0
"""The log-sigma from which training starts, and to which a weak pull holds it: a sigma of 0.05."""
PULL = 1e-4


class PcmeMini(WordTwin[Pcme]):
    """A residual network of two stages and a Gaussian an item.

    Learns by the soft contrast of matching probabilities, averaged over pairs of samples.
    """

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
        samples = [drawn_samples(side, generator) for side in (images, captions)]
        log_sigmas = torch.cat([images["log_sigma"], captions["log_sigma"]])
        pull = PULL * (log_sigmas - CENTRE).square().sum(1).mean()
        return soft_contrast(self.criterion.half_log_odds(*samples)) + pull


PATCH = 16
PLACES = 40
PAIRS = 256
"""Pairs scored at a time, of captions of similar length: little padding, and all fits into the cache."""


class ViltMini(Twin[Vilt]):
    """16 patches and the word pieces in one transformer of three layers, a score for each pair.

    Learns to rank by contrast among all pairs of the batch; no pre-training with masked words.

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

    def captions(self, captions: Captions) -> Side:
        """``tokens`` and ``lengths``; pieces are embedded with the pairs."""
        return {"tokens": captions.tokens, "lengths": captions.lengths}

    def compare(self, images: Side, captions: Side) -> Tensor:
        """(I, C) logits of the rank head."""
        described = Captions(**captions)
        order = described.lengths.argsort()
        parts = torch.split(order, max(1, PAIRS // len(images["state"])))
        return torch.cat([self._block(images, described.rows(part)) for part in parts], 1)[:, order.argsort()]

    def objective(self, images: Side, captions: Side, generator: Generator) -> Tensor:
        """Contrast of the scores of all pairs."""
        return contrast(self.compare(images, captions))

    def metadata(self) -> dict[str, str]:
        """Sizes and word pieces."""
        return {"config": self.network.sizes.to_json(), "wordpieces": self.lines}

    def _block(self, images: Side, captions: Captions) -> Tensor:
        words = torch.arange(captions.tokens.shape[1]) < captions.lengths[:, None]
        texts = self.network.captions(captions.tokens, words)
        count = len(images["state"])
        pairs = torch.cartesian_prod(torch.arange(count), torch.arange(len(captions)))
        return self.network.score(images, texts, pairs[:, 0], pairs[:, 1]).view(count, len(captions))


MERGES = 400
"""Enough for nearly every word of scenes to be one token."""


class ClipMini(Twin[Clip]):
    """A transformer over 64 patches and a causal transformer over byte pairs.

    Learns by CLIP's symmetric contrast at a learned temperature.
    """

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

    def captions(self, captions: Captions) -> Side:
        """As the network keeps them; what stands behind a text's end token is not seen."""
        return self.network.captions(captions.tokens)

    def objective(self, images: Side, captions: Side, generator: Generator) -> Tensor:
        """Contrast at the learned temperature."""
        scale = self.network.logit_scale.clamp(max=LARGEST_SCALE).exp()
        return contrast(scale * self.compare(images, captions))

    def metadata(self) -> dict[str, str]:
        """Sizes and merges."""
        return {"config": self.network.config.to_json(), "bpe_merges": self.encoder.to_text()}


@dataclass(frozen=True, slots=True)
class TwinRecipe:
    """How one network is trained."""

    steps: int
    batch: int
    rate: float
    captions: int = 3
    """Captions an image in each batch."""
    weight_decay: float = 1e-4


RECIPES = {
    "pvse-mini": TwinRecipe(steps=1000, batch=96, rate=2e-3),
    "vsrn-mini": TwinRecipe(steps=1200, batch=96, rate=1.5e-3),
    "pcme-mini": TwinRecipe(steps=1000, batch=96, rate=2e-3),
    "vilt-mini": TwinRecipe(steps=1500, batch=32, rate=1e-3, captions=1, weight_decay=0.01),
    "clip-mini": TwinRecipe(steps=1500, batch=96, rate=1.2e-3, weight_decay=0.01),
}
TWINS: dict[str, type[Twin[Any]]] = {
    f"{twin.network_name}-mini": twin for twin in (PvseMini, VsrnMini, PcmeMini, ViltMini, ClipMini)
}
