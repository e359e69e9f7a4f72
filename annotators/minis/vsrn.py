"""VSRN-mini: 36 windows of a small residual network's grid as regions, four graph blocks, a GRU over the regions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Generator, Tensor

from annotators.grid_regions import GridConfig
from annotators.minis.losses import smooth_triplet
from annotators.minis.twin import Captions, DualTwin, Side
from annotators.minis.words import vocabulary_of
from annotators.pixels import imagenet_pixels
from annotators.vsrn_network import Vsrn, VsrnConfig

GRID = GridConfig(blocks=(1, 1), width=16, window=3, image_size=64)
MARGIN, TEMPERATURE = 0.2, 0.08


class VsrnMini(DualTwin):
    """Learns by the hinge on the hardest negative, as VSRN does; without its caption generator."""

    network_name = "vsrn"

    def __init__(self, texts: Sequence[str]) -> None:
        self.vocabulary = vocabulary_of(texts)
        self.network = Vsrn(
            VsrnConfig(
                words=len(self.vocabulary),
                word_width=64,
                region_width=128,
                width=112,
                regions=GRID.regions,
                extractor=GRID,
            )
        )

    def pixels(self, picture: Image) -> NDArray[np.float32]:
        return imagenet_pixels(picture, GRID.image_size)

    def encode(self, text: str) -> NDArray[np.int64]:
        return self.vocabulary.encode(text)

    def images(self, pixels: Tensor) -> Side:
        return self.network.images(pixels)

    def captions(self, captions: Captions) -> Side:
        return self.network.captions(captions.tokens, captions.lengths)

    def compare(self, images: Side, captions: Side) -> Tensor:
        return images["embedding"] @ captions["embedding"].T

    def objective(self, images: Side, captions: Side, generator: Generator) -> Tensor:
        return smooth_triplet(self.compare(images, captions), MARGIN, TEMPERATURE)

    def metadata(self) -> dict[str, str]:
        return {"config": self.network.config.to_json(), "vocabulary": self.vocabulary.to_text()}
