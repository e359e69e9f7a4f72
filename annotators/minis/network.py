"""What the five small networks have in common: encode either side, compare two encoded sides, and a loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Generator, Tensor, nn

from mitl.records import AnnotatorKind

Side = dict[str, Tensor]
"""Named tensors whose first axis is the items."""


class MiniNetwork(nn.Module, ABC):
    """A network over squares of ``image_size`` pixels and texts of at most ``text_length`` tokens."""

    kind: ClassVar[AnnotatorKind]
    image_size: ClassVar[int] = 64
    text_length: ClassVar[int] = 24

    @abstractmethod
    def images(self, squares: Tensor) -> Side:
        """Encode (B, S, S, 3) bytes."""

    @abstractmethod
    def captions(self, tokens: Tensor) -> Side:
        """Encode (B, L) token numbers."""

    @abstractmethod
    def similarities(self, images: Side, captions: Side) -> Tensor:
        """(I, C) how close each image and caption are; higher is closer."""

    @abstractmethod
    def loss(self, images: Side, captions: Side, progress: float, generator: Generator) -> Tensor:
        """What training lowers, where row i of both sides is an original pair and all other pairs count as
        negatives; ``progress`` goes from 0 to 1 over the training."""
