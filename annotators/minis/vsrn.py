"""VSRN-mini: regions that are related to each other on a graph, then read one by one."""

from __future__ import annotations

from torch import Generator, Tensor, nn
from torch.nn import functional as F

from annotators.minis import losses
from annotators.minis.layers import Backbone, WordGru, cells_of, lengths_of
from annotators.minis.network import MiniNetwork, Side
from annotators.minis.vocabulary import PAD
from mitl.records import AnnotatorKind

MARGIN = 0.2
TEMPERATURE = 0.08


class GraphBlock(nn.Module):
    """Each region takes from all others by an affinity of learned projections; residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.theta, self.phi, self.g = (nn.Linear(width, width) for _ in range(3))
        self.W = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, regions: Tensor) -> Tensor:
        """(B, R, D) -> (B, R, D)."""
        affinity = self.theta(regions) @ self.phi(regions).transpose(1, 2) / regions.shape[1]  # (B, R, R)
        related: Tensor = regions + self.norm(self.W(affinity @ self.g(regions)))
        return related


class VsrnMini(MiniNetwork):
    """Visual semantic reasoning: 6 x 6 grid regions, graph blocks, a GRU over the regions; cosine.

    Source: Li et al., VSRN, ICCV 2019; the detector's boxes are replaced by learned cells, sizes are ours, and
    regions are normalised over their features.
    """

    kind = AnnotatorKind.INNER_PRODUCT

    def __init__(
        self, words: int, *, grid: int = 80, word: int = 64, width: int = 112, blocks: int = 2
    ) -> None:
        super().__init__()
        self.cnn = Backbone(grid)
        self.regions = nn.Conv2d(grid, width, 3)  # 8 x 8 cells -> 6 x 6 regions
        self.norm = nn.LayerNorm(width)
        self.graph = nn.ModuleList(GraphBlock(width) for _ in range(blocks))
        self.img_rnn = nn.GRU(width, width, batch_first=True)
        self.embed = nn.Embedding(words, word, padding_idx=PAD)
        self.rnn = WordGru(word, width, both=False)

    def images(self, squares: Tensor) -> Side:
        """``embedding`` (B, D) of unit vectors: the state after the last region."""
        regions = self.norm(cells_of(self.regions(self.cnn(squares))))  # (B, 36, D)
        for block in self.graph:
            regions = block(regions)
        states = self.img_rnn(regions)[0]
        return {"embedding": F.normalize(states[:, -1], dim=-1)}

    def captions(self, tokens: Tensor) -> Side:
        """``embedding`` (B, D) of unit vectors: the state after the last word."""
        return {"embedding": F.normalize(self.rnn(self.embed(tokens), lengths_of(tokens)), dim=-1)}

    def similarities(self, images: Side, captions: Side) -> Tensor:
        """Cosines."""
        return images["embedding"] @ captions["embedding"].T

    def loss(self, images: Side, captions: Side, progress: float, generator: Generator) -> Tensor:
        """Hinge on a smooth maximum of the negatives."""
        return losses.smooth_triplet(self.similarities(images, captions), MARGIN, TEMPERATURE)
