"""What the five small twins have in common while they are trained: read, learn by a loss, compare, be saved."""

from __future__ import annotations

import math
import re
import string
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from annotators.clip import Clip
from annotators.inputs.pixels import imagenet_pixels
from annotators.inputs.vocabularies import SPECIALS, Vocabulary, word_tokens
from annotators.pcme import Pcme
from annotators.pvse import Pvse
from annotators.vilt import Vilt
from annotators.vsrn import Vsrn


def smooth_triplet(similarities: Tensor, margin: float, temperature: float) -> Tensor:
    """Hinge on the hardest negative of the row and of the column, the maximum smoothed.

    Unfound positives stand among the negatives of a batch, and the hardest negative is mostly one of them; the
    log-sum-exp lets the others be heard.
    Source: the hinge of Faghri et al., VSE++, BMVC 2018, equation 6; the smooth maximum of Oh Song et al., Deep
    metric learning via lifted structured feature embedding, CVPR 2016, equation 4.
    """
    diagonal = torch.eye(len(similarities), dtype=torch.bool, device=similarities.device)
    original = similarities.diag()
    negatives = (similarities / temperature).masked_fill(diagonal, -torch.inf)
    hardest = (temperature * negatives.logsumexp(dim) for dim in (1, 0))
    return torch.stack([(margin + negative - original).clamp(min=0).mean() for negative in hardest]).sum()


def contrast(logits: Tensor) -> Tensor:
    """Cross-entropy of finding the original among the row and among the column.

    Source: Radford et al., CLIP, ICML 2021, figure 3.
    """
    target = torch.arange(len(logits), device=logits.device)
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


def soft_contrast(half_log_odds: Tensor) -> Tensor:
    """Log-likelihood loss of "match" on the diagonal and of "no match" off it, summed over the pairs of an item.

    Args:
        half_log_odds: (B, B, S, T) of all pairs of samples; a probability is the mean of their sigmoid(2 x).
    Source: Chun et al., PCME, CVPR 2021, equations 2 and 3.
    """
    diagonal = torch.eye(len(half_log_odds), dtype=torch.bool, device=half_log_odds.device)
    pairs = math.log(half_log_odds[0, 0].numel())
    match, no_match = (F.logsigmoid(sign * half_log_odds).flatten(2).logsumexp(2) - pairs for sign in (2, -2))
    return -(match[diagonal].sum() + no_match[~diagonal].sum()) / len(half_log_odds)


BERT_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_WORD = re.compile(r"[a-z]+")


def vocabulary_of(texts: Iterable[str]) -> Vocabulary:
    """All words of these texts in alphabetical order, behind the specials."""
    return Vocabulary((*SPECIALS, *sorted({word for text in texts for word in word_tokens(text)})))


def wordpieces_of(texts: Iterable[str]) -> str:
    """BERT's specials, printable ASCII characters alone and within words, and all words of these texts, a line each.

    So every word of scenes is one piece, and other words are spelt out.
    """
    words = sorted({word for text in texts for word in _WORD.findall(text.lower())})
    letters = sorted({chr(code) for code in range(33, 127)} - set(string.ascii_uppercase))
    return "\n".join(
        dict.fromkeys((*BERT_SPECIALS, *letters, *(f"##{letter}" for letter in letters), *words))
    )


Side = dict[str, Tensor]
"""Named tensors whose first axis is the items."""
Network = TypeVar("Network", Pvse, Vsrn, Pcme, Vilt, Clip)


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

    def loss(self, pixels: Tensor, captions: Sequence[Captions], generator: Generator) -> Tensor:
        """What training lowers, averaged over the sets of captions: pictures cost most, so each meets several.

        Args:
            pixels: (B, 3, S, S) pictures.
            captions: sets of B captions, of which row i describes picture i; all other pairs count as negatives.
            generator: of all that is drawn.
        """
        images = self.images(pixels)
        losses = [self.objective(images, self.captions(described), generator) for described in captions]
        return torch.stack(losses).mean()

    def similarities(self, pixels: Tensor, captions: Captions) -> Tensor:
        """(I, C) how close each picture and caption are; higher is closer."""
        return self.compare(self.images(pixels), self.captions(captions))

    def images(self, pixels: Tensor) -> Side:
        """What the network keeps of (B, 3, S, S) pictures."""
        return self.network.images(pixels)

    @abstractmethod
    def captions(self, captions: Captions) -> Side:
        """What the network keeps of captions."""

    def compare(self, images: Side, captions: Side) -> Tensor:
        """(I, C) how close each picture and caption are: the inner product of their embeddings."""
        return images["embedding"] @ captions["embedding"].T

    @abstractmethod
    def objective(self, images: Side, captions: Side, generator: Generator) -> Tensor:
        """The loss of a batch whose row i of both sides is an original pair."""

    @abstractmethod
    def metadata(self) -> dict[str, str]:
        """What the weights file says beside the tensors: ``config`` and the words."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """All that is trained: the network's parameters and those of its criterion."""
        return self.network.parameters()

    def state(self) -> dict[str, Tensor]:
        """All tensors that the weights file holds."""
        return self.network.state_dict()


SIZE = 64
"""Side of a picture in pixels."""
WordNetwork = TypeVar("WordNetwork", Pvse, Vsrn, Pcme)


class WordTwin(Twin[WordNetwork]):
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

    def captions(self, captions: Captions) -> Side:
        """As the network keeps them."""
        return self.network.captions(captions.tokens, captions.lengths)

    def metadata(self) -> dict[str, str]:
        """Sizes and words."""
        return {"config": self.network.config.to_json(), "vocabulary": self.vocabulary.to_text()}
