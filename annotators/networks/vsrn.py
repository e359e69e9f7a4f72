"""VSRN's network at any size: regions related to each other on a graph, then read by a GRU; captions by another.

Source: Li et al., Visual semantic reasoning for image-text matching, ICCV 2019, with the computation of its code,
which divides regions by their norm over the regions, not over the features; the released weights need that.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import torch
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


_LARGEST = 10_000_000


@dataclass(frozen=True, slots=True)
class VsrnConfig:
    """Sizes; the defaults are those of the released COCO weights."""

    words: int = 10_006
    word_width: int = 300
    region_width: int = 2048
    width: int = 2048
    """Of the graph, of both GRUs and of the embedding."""
    blocks: int = 4
    regions: int = 36
    flickr: bool = False
    """The Flickr30k weights leave out the first norm over regions and have a batch norm behind the GRU."""
    extractor: GridConfig | None = None
    """Where the network makes its regions itself, from pixels."""

    @property
    def reads(self) -> str:
        """What an image is to the network, in words."""
        if self.extractor is not None:
            return f"pictures of {self.extractor.image_size} x {self.extractor.image_size} pixels"
        return f"{self.regions} regions of {self.region_width:,} numbers"

    def to_json(self) -> str:
        """As ``from_json`` reads it."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> VsrnConfig:
        """The configuration in a weights file of ours; ValueError or TypeError where it is none."""
        stated = json.loads(text)
        grid = stated.pop("extractor", None)
        if grid is not None:
            grid = GridConfig(**{**grid, "blocks": tuple(grid["blocks"])})
        config = cls(**stated, extractor=grid)
        sizes = (
            config.words,
            config.word_width,
            config.region_width,
            config.width,
            config.blocks,
            config.regions,
        )
        if not all(isinstance(size, int) and 1 <= size <= _LARGEST for size in sizes) or config.blocks > 100:
            raise ValueError(f"sizes {sizes} that no network has")
        if grid is not None and grid.regions != config.regions:
            raise ValueError(f"{config.regions} regions, but an extractor of {grid.regions}")
        return config


def l2norm(x: Tensor) -> Tensor:
    """Divide by the norm over axis 1, whatever that axis is: the regions of (B, N, D), the features of (B, D)."""
    unit: Tensor = x / x.pow(2).sum(1, keepdim=True).sqrt()
    return unit


class RegionGraph(nn.Module):
    """Each region takes from all others by their affinity; a residual block (equations 2 to 4)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.g, self.theta, self.phi = (nn.Conv1d(width, width, 1) for _ in range(3))
        self.W = nn.Sequential(nn.Conv1d(width, width, 1), nn.BatchNorm1d(width))
        # An untrained block is the identity.
        nn.init.zeros_(self.W.get_parameter("1.weight"))

    def forward(self, v: Tensor) -> Tensor:
        """(B, D, N) -> (B, D, N)."""
        R = self.theta(v).transpose(1, 2) @ self.phi(v)  # (B, N, N)
        related = (R / v.shape[2]) @ self.g(v).transpose(1, 2)  # (B, N, D)
        reasoned: Tensor = self.W(related.transpose(1, 2)) + v
        return reasoned


class ImageEncoder(nn.Module):
    """Regions to one vector: projection, graph blocks, and a GRU that reads the regions in their order."""

    def __init__(self, config: VsrnConfig) -> None:
        super().__init__()
        self.flickr, self.blocks = config.flickr, config.blocks
        self.fc = nn.Linear(config.region_width, config.width)
        self.img_rnn = nn.GRU(config.width, config.width, batch_first=True)
        for place in range(config.blocks):
            self.add_module(f"Rs_GCN_{place + 1}", RegionGraph(config.width))
        if config.flickr:
            self.bn = nn.BatchNorm1d(config.width)
        nn.init.xavier_uniform_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)

    def forward(self, regions: Tensor) -> Tensor:
        """(B, N, region_width) -> (B, D) of unit vectors."""
        v = self.fc(regions)  # (B, N, D)
        if not self.flickr:
            v = l2norm(v)
        v = v.transpose(1, 2)  # (B, D, N)
        for place in range(self.blocks):
            v = self.get_submodule(f"Rs_GCN_{place + 1}")(v)
        _, last = self.img_rnn(l2norm(v.transpose(1, 2)))  # (1, B, D)
        return l2norm(self.bn(last[0]) if self.flickr else last[0])


class TextEncoder(nn.Module):
    """Words to one vector: the state of a GRU at the last word."""

    def __init__(self, config: VsrnConfig) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.words, config.word_width)
        self.rnn = nn.GRU(config.word_width, config.width, batch_first=True)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """(B, L) and (B,) -> (B, D) of unit vectors; what lies behind a caption's end does not matter."""
        states, _ = self.rnn(self.embed(tokens))  # (B, L, D)
        return l2norm(states[torch.arange(len(states), device=states.device), lengths - 1])


class Vsrn(nn.Module):
    """Both encoders; a similarity is the inner product of an image's and a caption's unit vector."""

    def __init__(self, config: VsrnConfig) -> None:
        super().__init__()
        self.config = config
        self.extractor = GridRegions(config.extractor, config.region_width) if config.extractor else None
        self.img_enc = ImageEncoder(config)
        self.txt_enc = TextEncoder(config)

    def images(self, regions: Tensor) -> dict[str, Tensor]:
        """``embedding`` (B, D) of regions (B, N, region_width); of pixels (B, 3, S, S) where there is an extractor."""
        return {"embedding": self.img_enc(self.extractor(regions) if self.extractor else regions)}

    def captions(self, tokens: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """``embedding`` (B, D) of captions (B, L) int64, each of its own length (B,) and padded with anything."""
        return {"embedding": self.txt_enc(tokens, lengths)}
