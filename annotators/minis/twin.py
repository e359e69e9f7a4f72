"""What the five small twins have in common while they are trained: read, learn, compare, be saved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Generator, Tensor, nn

Side = dict[str, Tensor]
"""Named tensors whose first axis is the items."""
Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True, slots=True, eq=False)
class Captions:
    """Captions as numbers: ``tokens`` (B, L) int64, padded with zeros, and ``lengths`` (B,)."""

    tokens: Tensor
    lengths: Tensor

    def rows(self, index: Tensor) -> Captions:
        """These captions, cut to the longest of them."""
        lengths = self.lengths[index]
        return Captions(self.tokens[index, : int(lengths.max())], lengths)

    def __len__(self) -> int:
        return len(self.lengths)


class Twin(ABC, Generic[Network]):
    """A network of the full-size classes at a small size, with all that it needs to learn from scenes."""

    network_name: ClassVar[str]
    """Of the full-size network."""
    network: Network

    @abstractmethod
    def __init__(self, texts: Sequence[str]) -> None:
        """An untrained network that knows the words of these texts."""

    @abstractmethod
    def pixels(self, picture: Image) -> NDArray[np.float32]:
        """(3, S, S): the picture as the full-size network reads it, at the small size."""

    @abstractmethod
    def encode(self, text: str) -> NDArray[np.int64]:
        """(L,) the caption as the full-size network reads it."""

    @abstractmethod
    def loss(self, pixels: Tensor, captions: Sequence[Captions], generator: Generator) -> Tensor:
        """What training lowers.

        Args:
            pixels: (B, 3, S, S) pictures.
            captions: sets of B captions, of which row i describes picture i; all other pairs count as negatives.
            generator: of all that is drawn.
        """

    @abstractmethod
    def similarities(self, pixels: Tensor, captions: Captions) -> Tensor:
        """(I, C) how close each picture and caption are; higher is closer."""

    @abstractmethod
    def metadata(self) -> dict[str, str]:
        """What the weights file says beside the tensors: ``config`` and the words."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """All that is trained: the network's parameters and those of its criterion."""
        return self.network.parameters()

    def state(self) -> dict[str, Tensor]:
        """All tensors that the weights file holds."""
        return self.network.state_dict()


class DualTwin(Twin[Network]):
    """A twin that encodes each side alone."""

    def loss(self, pixels: Tensor, captions: Sequence[Captions], generator: Generator) -> Tensor:
        """The mean over the sets of captions: encoding a picture costs most, so each meets several."""
        images = self.images(pixels)
        losses = [self.objective(images, self.captions(one), generator) for one in captions]
        return torch.stack(losses).mean()

    def similarities(self, pixels: Tensor, captions: Captions) -> Tensor:
        """(I, C) as the network compares the two sides."""
        return self.compare(self.images(pixels), self.captions(captions))

    @abstractmethod
    def images(self, pixels: Tensor) -> Side:
        """What the network keeps of (B, 3, S, S) pictures."""

    @abstractmethod
    def captions(self, captions: Captions) -> Side:
        """What the network keeps of captions."""

    def compare(self, images: Side, captions: Side) -> Tensor:
        """(I, C) how close each picture and caption are: the inner product of their embeddings."""
        return images["embedding"] @ captions["embedding"].T

    @abstractmethod
    def objective(self, images: Side, captions: Side, generator: Generator) -> Tensor:
        """The loss of a batch whose row i of both sides is an original pair."""
