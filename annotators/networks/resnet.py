"""The residual network of PVSE and PCME, with torchvision's parameter names and no classifier."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

EXPANSION = 4
"""A block's last convolution is this many times as wide as its first two."""


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions around a shortcut; the 3 x 3 one strides.

    Source: He et al., Deep residual learning for image recognition, CVPR 2016, figure 5; the stride's place as
    in torchvision.
    """

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = EXPANSION * width
        self.conv1 = nn.Conv2d(inside, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outside, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outside)
        self.downsample: nn.Module | None = None
        if stride != 1 or inside != outside:
            shortcut = nn.Conv2d(inside, outside, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        """(B, inside, H, W) -> (B, 4 * width, H / stride, W / stride)."""
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """A residual network without its average pooling and classifier: pictures to grids of cells.

    ``blocks`` says how many bottlenecks each stage has, (3, 8, 36, 3) for ResNet-152; the first stage is ``width``
    wide and every further one twice the one before, at half the size of the grid.
    """

    def __init__(self, blocks: Sequence[int] = (3, 8, 36, 3), width: int = 64) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.stages = len(blocks)
        inside = width
        for stage, count in enumerate(blocks):
            wide = width << stage
            first = Bottleneck(inside, wide, 1 if stage == 0 else 2)
            rest = (Bottleneck(EXPANSION * wide, wide, 1) for _ in range(count - 1))
            self.add_module(f"layer{stage + 1}", nn.Sequential(first, *rest))
            inside = EXPANSION * wide
        self.channels = inside
        """How many numbers a cell has: 2048 for ResNet-152."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, channels, H / 32, W / 32) for four stages; 224 pixels become 7 cells."""
        x: Tensor = self.maxpool(F.relu(self.bn1(self.conv1(pixels))))
        for stage in range(self.stages):
            x = self.get_submodule(f"layer{stage + 1}")(x)
        return x


def cells_of(grid: Tensor) -> Tensor:
    """(B, D, H, W) -> (B, H * W, D), row by row."""
    return grid.flatten(2).transpose(1, 2)
