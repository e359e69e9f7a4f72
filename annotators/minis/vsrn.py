"""VSRN-mini: 36 windows of a small residual network's grid as regions, four graph blocks, a GRU over the regions."""

from __future__ import annotations

from torch import Generator, Tensor

from annotators.minis.losses import smooth_triplet
from annotators.minis.twin import Side
from annotators.minis.word_twin import SIZE, WordTwin
from annotators.networks.grid_regions import GridConfig
from annotators.networks.vsrn import Vsrn, VsrnConfig

MARGIN = 0.2
"""The paper's."""
TEMPERATURE = 0.08


class VsrnMini(WordTwin[Vsrn]):
    """Learns by the hinge on the hardest negative, as VSRN does; without its caption generator."""

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
