"""What the twins of PVSE, VSRN and PCME share: ImageNet's pixels and whole words."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Tensor

from annotators.inputs.pixels import imagenet_pixels
from annotators.minis.twin import Captions, DualTwin, Side
from annotators.minis.words import vocabulary_of
from annotators.networks.pcme import Pcme
from annotators.networks.vsrn import Vsrn
from annotators.pvse import Pvse

SIZE = 64
"""Side of a picture in pixels."""
WordNetwork = TypeVar("WordNetwork", Pvse, Vsrn, Pcme)


class WordTwin(DualTwin[WordNetwork]):
    """A twin that knows all words of scenes."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.vocabulary = vocabulary_of(texts)
        self.network = self.untrained(len(self.vocabulary))

    @abstractmethod
    def untrained(self, words: int) -> WordNetwork:
        """The network at its small size for so many words."""

    def pixels(self, picture: Image) -> NDArray[np.float32]:
        """(3, 64, 64)."""
        return imagenet_pixels(picture, SIZE)

    def encode(self, text: str) -> NDArray[np.int64]:
        """(L,) word numbers."""
        return self.vocabulary.encode(text)

    def images(self, pixels: Tensor) -> Side:
        """As the network keeps them."""
        return self.network.images(pixels)

    def captions(self, captions: Captions) -> Side:
        """As the network keeps them."""
        return self.network.captions(captions.tokens, captions.lengths)

    def metadata(self) -> dict[str, str]:
        """Sizes and words."""
        return {"config": self.network.config.to_json(), "vocabulary": self.vocabulary.to_text()}
