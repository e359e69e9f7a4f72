"""Regions without a detector: the cells of a small residual network's grid, for VSRN on pictures as small as scenes."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from annotators.networks.resnet import ResNet, cells_of


@dataclass(frozen=True, slots=True)
class GridConfig:
    """Sizes of the network that stands for a detector."""

    blocks: tuple[int, ...] = (1, 1)
    """Bottlenecks of each stage; the picture is halved twice, and once more by every stage but the first."""
    width: int = 16
    window: int = 3
    """Side of the square of cells that one region looks at; 64 pixels give 8 x 8 cells and 6 x 6 regions."""
    image_size: int = 64

    @property
    def regions(self) -> int:
        """How many regions a picture has."""
        cells = self.image_size
        for _ in range(1 + len(self.blocks)):
            cells = -(-cells // 2)
        return (cells - self.window + 1) ** 2


class GridRegions(nn.Module):
    """A grid of overlapping windows as regions; non-negative, as a detector's pooled features are."""

    def __init__(self, config: GridConfig, region_width: int) -> None:
        super().__init__()
        self.cnn = ResNet(config.blocks, config.width)
        self.look = nn.Conv2d(self.cnn.channels, region_width, config.window)

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, 3, S, S) -> (B, R, region_width), row by row from the upper left."""
        return F.relu(cells_of(self.look(self.cnn(pixels))))
