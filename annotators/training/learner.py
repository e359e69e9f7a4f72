"""What learns: one of the networks with its weights, which reads items, compares them with a gradient and is saved.

A learner starts from the weights that an annotator has, those of a mini or those of full size; both are one class.
Similarities are cosines or, of networks that have none, numbers of the same size, so that one margin serves all.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Generator, Tensor, nn

from annotators.devices import device_of
from annotators.encoding import Inputs, NetworkAnnotator, padded
from annotators.options import Options
from annotators.training.files import TAUGHT, TRAINING, packed_pairs, write_weights
from annotators.training.losses import SOFTMAXES, Labels, LossSettings, loss_of
from mitl.records import CaptionItem, ImageItem

if TYPE_CHECKING:
    from annotators.vilt import ViltAnnotator

Side = dict[str, Tensor]
"""What a network keeps of items: named tensors whose first axis they are."""

TEMPERATURE = 0.08
"""Cosines are divided by it where a softmax is taken of them; CLIP has learnt its own."""


class Learner(ABC):
    """A network on its way."""

    network: ClassVar[str]
    """Which of the five, or towers."""
    head_alone: ClassVar[bool] = False
    """Whether a recipe's steps are all the head's, for nothing else learns."""
    head: ClassVar[tuple[str, ...]] = ("",)
    """How names begin of parameters that the papers' authors add to a backbone, and which so learn first."""
    backbone: ClassVar[tuple[str, ...]] = ()
    """How names begin of those that they do not add, if ``head`` does not tell."""

    def __init__(
        self, annotator: NetworkAnnotator | ViltAnnotator, options: Options, parts: Mapping[str, nn.Module]
    ) -> None:
        """Take what learns by the prefix of its names in the file, and of the settings where it runs."""
        self._annotator = annotator
        self.fingerprint = annotator.fingerprint
        """Of the annotator from whose weights it starts."""
        self.device, self.threads = device_of(options), options.whole("threads", torch.get_num_threads())
        self._parts = {prefix: part.to(self.device).requires_grad_(True) for prefix, part in parts.items()}

    def read_image(self, item: ImageItem) -> Inputs:
        """What the annotator's network reads of a picture; AnnotatorError where it cannot be read."""
        return self._annotator.read_image(item)

    def read_caption(self, item: CaptionItem) -> Inputs:
        """What it reads of a caption: ``tokens`` (L,)."""
        return self._annotator.read_caption(item)

    @abstractmethod
    def images(self, inputs: Sequence[Inputs]) -> Side:
        """What the network keeps of these pictures."""

    @abstractmethod
    def captions(self, inputs: Sequence[Inputs]) -> Side:
        """What it keeps of these captions."""

    def compare(self, images: Side, captions: Side) -> Tensor:
        """(I, C) how close each picture and caption are, higher is closer: the cosines of embeddings."""
        return images["embedding"] @ captions["embedding"].T

    @abstractmethod
    def metadata(self) -> dict[str, str]:
        """What the weights file says beside the tensors: ``config`` and the words."""

    def is_head(self, name: str) -> bool:
        """Whether a parameter of this name belongs to the ``head``."""
        return name.startswith(self.head) and not name.startswith(self.backbone)

    def similarities(self, images: Sequence[Inputs], captions: Sequence[Inputs]) -> Tensor:
        """(I, C) of a batch, with gradients."""
        return self.compare(self.images(images), self.captions(captions))

    def logits(self, similarities: Tensor) -> Tensor:
        """(I, C) what a softmax reads."""
        return similarities / TEMPERATURE

    def loss(self, name: str, images: Side, captions: Side, labels: Labels, noise: Generator) -> Tensor:
        """The loss of that name on a batch.

        Args:
            noise: what is drawn, is drawn from it; on the CPU, so that every device gets the same.

        Raises:
            TrainingError: there is no such loss.
        """
        similarities = self.compare(images, captions)
        if name in SOFTMAXES:
            return loss_of(name, LossSettings(scale=1.0))(self.logits(similarities).float(), labels)
        return loss_of(name)(similarities, labels)

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All that learns, by its name in the file."""
        for prefix, part in self._parts.items():
            for name, parameter in part.named_parameters():
                yield prefix + name, parameter

    def parameters(self, *, head: bool = False) -> list[nn.Parameter]:
        """All that learns, or the head's alone."""
        return [parameter for name, parameter in self.named_parameters() if not head or self.is_head(name)]

    def learn(self) -> None:
        """Get ready to learn.

        Batch norms keep the statistics that they have: batches of hard pairs are no fair sample. On a card a recurrent
        network gives gradients in training mode alone.
        """
        for part in self._parts.values():
            part.train()
            for module in part.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm | nn.Dropout):
                    module.eval()

    def rank(self) -> None:
        """Get ready to rank."""
        for part in self._parts.values():
            part.eval()

    def state(self) -> dict[str, Tensor]:
        """All tensors of the file, on the CPU, as copies."""
        return {
            prefix + name: tensor.detach().to("cpu", copy=True)
            for prefix, part in self._parts.items()
            for name, tensor in part.state_dict().items()
        }

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the tensors of ``state``."""
        for prefix, part in self._parts.items():
            part.load_state_dict({name: tensors[prefix + name] for name in part.state_dict()})

    def save(self, path: Path, training: Mapping[str, Any], taught: pd.DataFrame) -> None:
        """Write weights that ``[annotators.NAME] network = ..., weights = ...`` loads.

        Args:
            training: what the file says of it; ``base`` among it.
            taught: ``TAUGHT_PAIRS``.

        Raises:
            OSError: the disk is full, or the place cannot be written.
        """
        said = {TRAINING: json.dumps(dict(training), sort_keys=True), TAUGHT: packed_pairs(taught)}
        write_weights(path, self.state(), {"network": self.network, **said, **self.metadata()})

    def padded(self, inputs: Sequence[Inputs]) -> tuple[Tensor, Tensor]:
        """Tokens (B, L), zeros behind the end of each, and lengths (B,)."""
        tokens, lengths = padded([item["tokens"] for item in inputs])
        return tokens.to(self.device), lengths.to(self.device)

    def stacked(self, inputs: Sequence[Inputs], name: str) -> Tensor:
        """(B, ...) of inputs that have one shape."""
        return torch.from_numpy(np.stack([item[name] for item in inputs])).to(self.device)


def rows_of(side: Side, rows: Tensor | slice) -> Side:
    """Some of the items."""
    return {name: tensor[rows] for name, tensor in side.items()}
