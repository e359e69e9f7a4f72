"""The dual encoders of Crisscrossed Captions learn: pictures with captions, captions with captions, or both.

Two captions are a match where they are positives of one image of the batch; all other two are none. A caption with
itself takes no part. The paper's softmax is the loss ``softmax``, or ``softmax-own-outside`` as it is printed; any
other loss of ``LOSSES`` serves as well.

Source: Parekh et al., Crisscrossed Captions, EACL 2021, section 5.2, equations 1 and 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Generator, Tensor

from annotators.catalog import BEGINNERS, FORMS
from annotators.encoding import Inputs
from annotators.options import Options
from annotators.towers import NETWORK, Sizes, TowersAnnotator, TowerTask, begin, build
from annotators.training.learner import Learner, Side
from annotators.training.losses import Labels

TEXTS = 1.0
"""c of equation 2, the weight of the loss of texts. The paper prints none."""


class TowersLearner(Learner):
    """Towers on frozen backbones; all that learns is head."""

    network = NETWORK
    head_alone = True

    def __init__(self, annotator: TowersAnnotator, options: Options, texts: float = TEXTS) -> None:
        """``texts``: c of equation 2."""
        super().__init__(annotator, options, {"": annotator.towers})
        self._towers, self._texts = annotator, texts
        self.task = annotator.towers.sizes.task

    @classmethod
    def begun(cls, options: Options, sizes: Sizes, seed: int = 0) -> Self:
        """With weights drawn from a seed; for ``TowerTask.T2T`` the options name ``captions`` of the pictures.

        Raises:
            AnnotatorError: ``captions`` is missing or not readable.
            ImportError: the package of a backbone is missing.
        """
        return cls(begin(options, sizes, seed), options)

    @classmethod
    def of(cls, options: Options) -> Self:
        """With the weights of the setting ``towers``, else as its name of ``BEGINNERS`` begins, always the same.

        Raises:
            AnnotatorError: a setting is wrong, or the file holds no towers.
            ImportError: the package of a backbone is missing.
        """
        options.only(*FORMS["towers"].keys)
        if "towers" in options.values:
            return cls(build(options), options)
        return cls.begun(options, Sizes(TowerTask(BEGINNERS[options.annotator])))

    def images(self, inputs: Sequence[Inputs]) -> Side:
        """``embedding``: of features or, where texts are compared, of the captions that tell the pictures."""
        if self.task is TowerTask.T2T:
            return self.captions(inputs)
        return {"embedding": self._towers.embedding({"features": self.stacked(inputs, "features")})}

    def captions(self, inputs: Sequence[Inputs]) -> Side:
        """``embedding``; texts of one length go together and need no padding."""
        by_length: dict[int, list[int]] = {}
        for place, each in enumerate(inputs):
            by_length.setdefault(len(each["tokens"]), []).append(place)
        parts = [
            self._towers.towers.captions(
                self._towers.frozen.sentences.kept_states([inputs[place]["tokens"] for place in places])
            )
            for places in by_length.values()
        ]
        order = torch.tensor([place for places in by_length.values() for place in places])
        return {"embedding": torch.cat(parts)[order.argsort().to(self.device)]}

    def loss(self, name: str, images: Side, captions: Side, labels: Labels, noise: Generator) -> Tensor:
        """That of pictures and captions, that of captions alone, or the weighted sum of both (equation 2)."""
        if self.task is TowerTask.I2T:
            return super().loss(name, images, captions, labels, noise)
        of_texts = super().loss(name, captions, captions, text_labels(labels), noise)
        if self.task is TowerTask.T2T:
            return of_texts
        return super().loss(name, images, captions, labels, noise) + self._texts * of_texts

    def metadata(self) -> dict[str, str]:
        """Sizes; the backbones are no part of the file."""
        return {"config": self._towers.towers.sizes.to_json()}

    def is_head(self, name: str) -> bool:
        """Everything: backbones are frozen."""
        return True


def text_labels(labels: Labels) -> Labels:
    """(C, C) labels of captions with captions: a match where both are positives of one image, of relevance 1."""
    positive = (labels.matches & labels.known).float()
    known = ~torch.eye(positive.shape[1], dtype=torch.bool, device=positive.device)
    matches = (positive.T @ positive > 0) & known
    return Labels(matches, matches.float(), known)
