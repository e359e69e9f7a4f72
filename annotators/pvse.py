"""PVSE at full size: K embeddings an image or a caption, so that one may follow one meaning and one another.

Source: Song and Soleymani, Polysemous visual-semantic embedding for cross-modal retrieval, CVPR 2019. Parameters
bear the names of the released weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from annotators.base import Encoded
from annotators.checkpoints.checkpoint import (
    Checkpoint,
    Examination,
    Shape,
    compare,
    contradictions,
    load_strictly,
    options_of,
    read_checkpoint,
    shapes_of,
    without_memory,
)
from annotators.devices import Running
from annotators.dual_encoders import (
    BACKBONE_HEAD,
    BATCH,
    DualEncoder,
    Ready,
    Sizes,
    computed_with,
    config_of,
    held_vocabulary,
    preprocessing,
    require_size,
    sizes_in,
    vocabulary_of,
    with_own_names,
)
from annotators.fingerprint import file_sha256, fingerprint
from annotators.inputs.vocabularies import Vocabulary
from annotators.networks.pie import Pie, SentenceGru, padding_of, xavier
from annotators.networks.resnet import ResNet, cells_of
from annotators.options import Options
from annotators.scoring.similarity import best_inner_products, inner_products
from mitl.records import AnnotatorKind

NETWORK = "pvse"
Pooling = Literal["legacy", "full"]


@dataclass(frozen=True, slots=True)
class PvseConfig(Sizes):
    """Sizes; the defaults are those of ``coco_pvse.pth``."""

    k: int = 2
    """Embeddings of an item."""
    pooling: Pooling = "legacy"
    """What stands for a whole caption: the GRU's outputs at its last word, of which the backward one has read that
    word only (``legacy``, as all released weights), or what both directions end with (``full``)."""

    def __post_init__(self) -> None:
        Sizes.__post_init__(self)
        require_size("k", self.k)
        if self.pooling not in get_args(Pooling):
            raise ValueError(f"'pooling' is {self.pooling!r}, but should be legacy or full")

    @classmethod
    def of_shapes(cls, shapes: Mapping[str, Shape]) -> Self:
        """The sizes of the network that has these shapes; K is the number of attention heads."""
        sizes, heads = sizes_in(shapes), shapes.get("img_enc.pie_net.attention.w_2.weight", ())
        if len(heads) == 2:
            sizes["k"] = heads[0]
        return cls(**sizes)


class ImageEncoder(nn.Module):
    """A picture's cells, their mean as the whole, and K heads of attention over them."""

    def __init__(self, config: PvseConfig) -> None:
        super().__init__()
        self.cnn = ResNet(config.blocks, config.width)
        self.fc = nn.Linear(self.cnn.channels, config.embed)
        self.pie_net = Pie(self.cnn.channels, config.embed, config.k)
        xavier(self.fc)

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, 3, S, S) -> (B, K, embed) of unit vectors."""
        grid = self.cnn(pixels)  # (B, D, 7, 7)
        whole = self.fc(grid.mean((2, 3)))
        return l2norm(self.pie_net(whole, cells_of(grid)))


class TextEncoder(nn.Module):
    """A caption's words, a recurrent network's reading as the whole, and K heads of attention over the words."""

    def __init__(self, config: PvseConfig) -> None:
        super().__init__()
        self.pooling = config.pooling
        self.embed = nn.Embedding(config.words, config.word)
        self.rnn = SentenceGru(config.word, config.embed)
        self.pie_net = Pie(config.word, config.embed, config.k)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """(B, L) and (B,) -> (B, K, embed) of unit vectors; what lies past a caption's end does not matter."""
        words = self.embed(tokens)  # (B, L, word)
        read = self.rnn.last_position if self.pooling == "legacy" else self.rnn.last_states
        padding = padding_of(lengths.to(words.device), words.shape[1])
        return l2norm(self.pie_net(read(words, lengths), words, padding))


class Pvse(nn.Module):
    """Both encoders; a similarity is the greatest of the K x K inner products."""

    def __init__(self, config: PvseConfig) -> None:
        super().__init__()
        self.config = config
        self.img_enc = ImageEncoder(config)
        self.txt_enc = TextEncoder(config)

    def images(self, pixels: Tensor) -> dict[str, Tensor]:
        """``embedding`` (B, K, D) of unit vectors for pixels (B, 3, S, S); (B, D) where K is 1."""
        return {"embedding": self._without_k_of_1(self.img_enc(pixels))}

    def captions(self, tokens: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """``embedding`` (B, K, D) for captions (B, L) int64 of lengths (B,), padded with anything; (B, D) for K 1."""
        return {"embedding": self._without_k_of_1(self.txt_enc(tokens, lengths))}

    def _without_k_of_1(self, embedding: Tensor) -> Tensor:
        return embedding[:, 0] if self.config.k == 1 else embedding


def l2norm(x: Tensor) -> Tensor:
    """Divide by the plain length over the last axis, with nothing added to it, as the released code does."""
    unit: Tensor = x / x.square().sum(-1, keepdim=True).sqrt()
    return unit


@dataclass(frozen=True, slots=True)
class Trained:
    """A network with its weights, and the words it knows where the file says them."""

    network: Pvse
    vocabulary: Vocabulary | None


def examine(path: Path) -> Examination:
    """Hold a weights file against PVSE; AnnotatorError where it is no weights file at all."""
    checkpoint = with_own_names(read_checkpoint(path))
    return _examined(checkpoint, _without_memory(checkpoint))


def load(path: Path, *, pooling: Pooling | None = None) -> Trained:
    """The network of a released checkpoint, of the training script's, or of a safetensors file of ours.

    ``pooling`` goes before what the file says. K, the number of words and all other sizes are read off the file.

    Raises:
        AnnotatorError: unreadable, or any key is missing, left over, of another shape or not finite.
    """
    checkpoint = with_own_names(read_checkpoint(path))
    network = _without_memory(checkpoint, pooling)
    load_strictly(network, checkpoint.tensors, _examined(checkpoint, network))
    return Trained(network.eval(), held_vocabulary(checkpoint))


def _without_memory(checkpoint: Checkpoint, pooling: Pooling | None = None) -> Pvse:
    """The network of the file's sizes, which gets its memory with its weights."""
    config = config_of(checkpoint, NETWORK, PvseConfig)
    # The training script says whether it ran with the old pooling.
    args = options_of(checkpoint.values.get("args"))
    stated: Pooling = "full" if args.get("legacy") is False else config.pooling
    return without_memory(Pvse, replace(config, pooling=pooling or stated))


def _examined(checkpoint: Checkpoint, network: Pvse) -> Examination:
    config = network.config
    expected = shapes_of(network.state_dict())
    what = f"PVSE, K = {config.k}, {config.words:,} words"
    settings = {"k": config.k, "words": config.words, "embed": config.embed, "pooling": config.pooling}
    examination = compare(NETWORK, checkpoint, expected, what=what, ignored=BACKBONE_HEAD, settings=settings)
    strange = contradictions(
        checkpoint.values.get("args"),
        {
            **computed_with(config),
            "embed_size": config.embed,
            "num_embeds": config.k,
            "vocab_size": config.words,
            "order": False,
            "use_abs": False,
            "max_video_length": 1,
        },
    )
    return examination.with_problems(strange, otherwise="no weights of PVSE")


class PvseAnnotator(DualEncoder[Pvse]):
    """The greatest of K x K cosines; with K = 1 one inner product, searched as such."""

    def __init__(self, ready: Ready[Pvse]) -> None:
        super().__init__(ready)
        single = ready.network.config.k == 1
        self.kind = AnnotatorKind.INNER_PRODUCT if single else AnnotatorKind.MULTI_VECTOR

    def similarities(self, queries: Encoded, gallery: Encoded) -> NDArray[np.float32]:
        """(Q, G) from -1 to 1."""
        best = inner_products if self.kind is AnnotatorKind.INNER_PRODUCT else best_inner_products
        return best(queries.arrays["embedding"], gallery.arrays["embedding"])


def build(options: Options) -> PvseAnnotator:
    """The annotator of the settings ``weights`` and ``vocabulary``, which weights of ours bring themselves.

    ``pooling`` is ``legacy`` or ``full``; by default what the weights say, and ``legacy`` where they say nothing.
    Further settings: ``device``, ``threads``, ``batch``.
    """
    options.only("weights", "vocabulary", "pooling", "device", "threads", "batch")
    running = Running.of(options, batch=BATCH)
    path = options.path("weights")
    pooling = _pooling(options)
    trained = load(path, pooling=pooling)
    config = trained.network.config
    vocabulary = vocabulary_of(options, trained.vocabulary, config.words)
    digest = fingerprint(
        network=NETWORK,
        weights=file_sha256(path),
        vocabulary=vocabulary.fingerprint,
        pooling=config.pooling,
        **preprocessing(),
    )
    network = trained.network.to(running.device)
    return PvseAnnotator(Ready(options.annotator, digest, network, vocabulary, running))


def _pooling(options: Options) -> Pooling | None:
    if "pooling" not in options.values:
        return None
    return "full" if options.text("pooling", choices=get_args(Pooling)) == "full" else "legacy"
