"""The dual encoders of Crisscrossed Captions in small: trainable towers on frozen backbones that are installed.

The paper freezes BERT-Base and sets three transformer layers upon it; the caption is what they give at place 0. Here
BERT is the encoder of ``annotators.sentences`` and EfficientNet-B4 is EfficientNet-Lite0, both frozen, so one linear
layer, which begins as the identity, stands for what the image encoder would learn. Similarities are cosines; the
paper's are products without a norm.

They learn from pictures with captions, captions with captions, or both. Two captions are a match where they are
positives of one image of the batch; all other two are none. A caption with itself takes no part. The paper's softmax is
the loss ``softmax``, or ``softmax-own-outside`` as it is printed; any other loss of ``LOSSES`` serves as well.

Source: Parekh et al., Crisscrossed Captions, EACL 2021, section 5.2, equations 1 and 2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self, cast

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from annotators.base import file_sha256, fingerprint
from annotators.catalog import BEGINNERS, FORMS
from annotators.checkpoints.checkpoint import Weights, config_of, read_checkpoint
from annotators.devices import Running
from annotators.efficientnet import WIDTH as PICTURE
from annotators.efficientnet import ImageBackbone, lite_pixels, shared_backbone
from annotators.encoding import Inputs, NetworkAnnotator
from annotators.options import Options
from annotators.pivot import MachineCaptions, read_machine_captions
from annotators.sentences import WIDTH as WORD
from annotators.sentences import SentenceEncoder, shared_encoder
from annotators.sizes import Config
from annotators.training.learner import Learner, Side
from annotators.training.losses import Labels
from mitl.errors import AnnotatorError
from mitl.records import CaptionItem, ImageItem

NETWORK = "towers"
BATCH = 32
VERSION = 1
"""Raised when the same weights and item give another embedding."""


class TowerTask(StrEnum):
    """What the towers are trained for."""

    T2T = "t2t"
    """DE_T2T: captions of one picture are close. A picture is told by a machine's caption of it."""
    I2T = "i2t"
    """DE_I2T: pictures and captions."""
    BOTH = "t2t+i2t"
    """DE_T2T+I2T: both, with one text tower."""


@dataclass(frozen=True, slots=True)
class Sizes(Config):
    """The paper's text tower at the width of the small encoder: 8 heads, inside four times as wide."""

    task: TowerTask = TowerTask.BOTH
    layers: int = 3
    heads: int = 8
    inside: int = 4 * WORD

    def check(self) -> None:
        """Raise ValueError for sizes that no towers have."""
        Config.check(self)
        if self.layers > 100:
            raise ValueError(f"{self.layers} layers, which no towers have")
        if WORD % self.heads:
            raise ValueError(f"a width of {WORD} for {self.heads} heads, which do not divide it")

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The sizes that a weights file states; ValueError, TypeError or KeyError where there are none."""
        said = json.loads(text)
        return cls(**{**said, "task": TowerTask(said["task"])})


class TowerNetwork(nn.Module):
    """What learns: the text tower and, unless texts alone are compared, what brings both sides together."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.text = nn.ModuleList(
            nn.TransformerEncoderLayer(WORD, sizes.heads, sizes.inside, 0.0, "gelu", batch_first=True)
            for _ in range(sizes.layers)
        )
        if sizes.task is not TowerTask.T2T:
            self.text_projection = nn.Linear(WORD, PICTURE)
            self.image = nn.Linear(PICTURE, PICTURE)
            nn.init.eye_(self.image.weight)
            nn.init.zeros_(self.image.bias)

    def captions(self, states: Tensor) -> Tensor:
        """(B, L, 384) states of word pieces, no padding -> (B, 384) or, to be compared with pictures, (B, 1280)."""
        for layer in self.text:
            states = layer(states)
        first = states[:, 0]
        return F.normalize(first if self.sizes.task is TowerTask.T2T else self.text_projection(first), dim=1)

    def images(self, features: Tensor) -> Tensor:
        """(B, 1280) features -> (B, 1280) unit rows."""
        return F.normalize(self.image(features), dim=1)


@dataclass(frozen=True, slots=True, eq=False)
class Frozen:
    """What reads items and does not learn."""

    sentences: SentenceEncoder
    pictures: ImageBackbone | None
    told: MachineCaptions
    """Captions that stand for pictures, by external id, where there is no backbone."""

    def fingerprint(self) -> str:
        """Of all that decides what is read."""
        pictures = self.pictures.sha256 if self.pictures else fingerprint(captions=self.told)
        return fingerprint(sentences=self.sentences.sha256, pictures=pictures, version=VERSION)


class TowersAnnotator(NetworkAnnotator):
    """Similarity is the cosine."""

    def __init__(self, name: str, mark: str, towers: TowerNetwork, frozen: Frozen, running: Running) -> None:
        super().__init__(name, mark, running)
        self.towers, self.frozen = towers.to(running.device), frozen
        self.reads_pictures = frozen.pictures is not None

    def read_image(self, item: ImageItem) -> Inputs:
        """``features`` (1280,), or ``tokens`` (L,) of its machine caption; AnnotatorError where it has none."""
        if self.frozen.pictures is not None:
            return {"features": self.frozen.pictures.features(lite_pixels(item))}
        text = self.frozen.told.get(item.external_id)
        if text is None:
            raise AnnotatorError(
                f"annotator {self.name!r} compares texts, and image {item.external_id!r} has none in its 'captions'; "
                "add one there"
            )
        return self._tokens(text)

    def read_caption(self, item: CaptionItem) -> Inputs:
        """``tokens`` (L,), word pieces."""
        return self._tokens(item.text)

    def embedding(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """(B, D) unit rows of ``features`` (B, 1280) or of ``tokens`` (B, L) of one length."""
        if "features" in inputs:
            return self.towers.images(inputs["features"])
        return self.towers.captions(self.frozen.sentences.states(inputs["tokens"]))

    def _tokens(self, text: str) -> Inputs:
        return {"tokens": np.array(self.frozen.sentences.pieces(text), np.int64)}

    def _encode_images(self, inputs: dict[str, Tensor]) -> Mapping[str, Tensor]:
        return {"embedding": self.embedding(inputs)}

    def _encode_captions(self, inputs: dict[str, Tensor]) -> Mapping[str, Tensor]:
        return {"embedding": self.embedding(inputs)}


def begin(options: Options, sizes: Sizes, seed: int = 0) -> TowersAnnotator:
    """Towers that have not learnt yet, drawn from a seed.

    Raises:
        AnnotatorError: texts are to be compared and ``captions`` is missing.
        ImportError: the package of a backbone is missing.
    """
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        towers = TowerNetwork(sizes).eval()
    return _made(options, towers, fingerprint(sizes=sizes.to_json(), seed=seed))


def build(options: Options) -> TowersAnnotator:
    """The annotator of the setting ``towers``, a weights file; where it compares texts alone, of ``captions`` too.

    Further settings: ``captioner``, a column of the captions' Parquet; ``device``, ``threads``, ``batch``.

    Raises:
        AnnotatorError: the file holds no towers, or any key is missing, left over, of another shape or not finite.
    """
    path = options.path("towers")
    return _made(options, load(path), file_sha256(path))


def load(path: Path) -> TowerNetwork:
    """The towers of a weights file of ours; AnnotatorError where it holds none."""
    checkpoint = read_checkpoint(path)
    sizes = config_of(checkpoint, NETWORK, Sizes())
    weights = Weights(
        NETWORK,
        checkpoint,
        lambda: TowerNetwork(sizes),
        what=f"towers of {sizes.task}",
        settings=cast("dict[str, object]", asdict(sizes)),
        otherwise="no weights of towers",
    )
    return weights.load()


def _made(options: Options, towers: TowerNetwork, weights: str) -> TowersAnnotator:
    running = Running.of(options, batch=BATCH)
    device = str(running.device)
    if towers.sizes.task is TowerTask.T2T:
        if "captions" not in options.values:
            raise AnnotatorError(
                f"annotator {options.annotator!r} compares texts, so a machine's captions have to tell the images; "
                f'write `captions = "FILE"` under [annotators.{options.annotator}] of mitl.toml'
            )
        told = read_machine_captions(options.path("captions"), options.text("captioner", "caption"))
        frozen = Frozen(shared_encoder(device), None, told)
    else:
        frozen = Frozen(shared_encoder(device), shared_backbone(device), {})
    mark = fingerprint(network=NETWORK, weights=weights, frozen=frozen.fingerprint())
    return TowersAnnotator(options.annotator, mark, towers, frozen, running)


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
        for place, item in enumerate(inputs):
            by_length.setdefault(len(item["tokens"]), []).append(place)
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


def text_labels(labels: Labels) -> Labels:
    """(C, C) labels of captions with captions: a match where both are positives of one image, of relevance 1."""
    positive = (labels.matches & labels.known).float()
    known = ~torch.eye(positive.shape[1], dtype=torch.bool, device=positive.device)
    matches = (positive.T @ positive > 0) & known
    return Labels(matches, matches.float(), known)
