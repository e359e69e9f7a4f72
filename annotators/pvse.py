"""PVSE at full size: K embeddings an image or a caption, so that one may follow one meaning and one another.

Source: Song and Soleymani, Polysemous visual-semantic embedding for cross-modal retrieval, CVPR 2019. Parameters
bear the names of the released weights.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from annotators.base import Encoded, best_inner_products, file_sha256, fingerprint, inner_products
from annotators.checkpoints.checkpoint import (
    Examination,
    Weights,
    config_of,
    contradictions,
    options_of,
    read_checkpoint,
)
from annotators.devices import Running
from annotators.dual_encoders import (
    BACKBONE_HEAD,
    BATCH,
    DualEncoder,
    Pie,
    Ready,
    ResNet,
    SentenceGru,
    Trained,
    cells_of,
    computed_with,
    held_vocabulary,
    l2norm,
    padding_of,
    preprocessing,
    vocabulary_of,
    xavier,
)
from annotators.options import Options
from annotators.sizes import Pooling, PvseConfig
from mitl.records import AnnotatorKind

NETWORK = "pvse"


class PvseImages(nn.Module):
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
        return l2norm(self.pie_net(whole, cells_of(grid)), -1)


class PvseCaptions(nn.Module):
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
        return l2norm(self.pie_net(read(words, lengths), words, padding), -1)


class Pvse(nn.Module):
    """Both encoders; a similarity is the greatest of the K x K inner products."""

    def __init__(self, config: PvseConfig) -> None:
        super().__init__()
        self.config = config
        self.img_enc = PvseImages(config)
        self.txt_enc = PvseCaptions(config)

    def images(self, image: Tensor) -> dict[str, Tensor]:
        """``embedding`` (B, K, D) of unit vectors for pixels (B, 3, S, S); (B, D) where K is 1."""
        return {"embedding": self._without_k_of_1(self.img_enc(image))}

    def captions(self, tokens: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """``embedding`` (B, K, D) for captions (B, L) int64 of lengths (B,), padded with anything; (B, D) for K 1."""
        return {"embedding": self._without_k_of_1(self.txt_enc(tokens, lengths))}

    def _without_k_of_1(self, embedding: Tensor) -> Tensor:
        return embedding[:, 0] if self.config.k == 1 else embedding


def examine(path: Path) -> Examination:
    """Compare a weights file with PVSE; AnnotatorError where it is not a weights file at all."""
    return _weights(path).examination


def load(path: Path, *, pooling: Pooling | None = None) -> Trained[Pvse]:
    """The network of a released checkpoint, of the training script's, or of a safetensors file of ours.

    ``pooling`` goes before what the file says. K, the number of words and all other sizes are read off the file.

    Raises:
        AnnotatorError: unreadable, or any key is missing, left over, of another shape or not finite.
    """
    weights = _weights(path, pooling)
    return Trained(weights.load(), held_vocabulary(weights.checkpoint))


def _weights(path: Path, pooling: Pooling | None = None) -> Weights[Pvse]:
    checkpoint = read_checkpoint(path)
    tensors = {_own_name(name): tensor for name, tensor in checkpoint.tensors.items()}
    checkpoint = replace(checkpoint, tensors=tensors)
    args = options_of(checkpoint.values.get("args"))
    config = config_of(checkpoint, NETWORK, PvseConfig())
    # The training script says whether it ran with the old pooling.
    stated: Pooling = "full" if args.get("legacy") is False else config.pooling
    config = replace(config, pooling=pooling or stated)
    computed = {
        **computed_with(config),
        "embed_size": config.embed,
        "num_embeds": config.k,
        "vocab_size": config.words,
        "order": False,
        "use_abs": False,
        "max_video_length": 1,
    }
    return Weights(
        NETWORK,
        checkpoint,
        lambda: Pvse(config),
        what=f"PVSE, K = {config.k}, {config.words:,} words",
        settings={"k": config.k, "words": config.words, "embed": config.embed, "pooling": config.pooling},
        problems=contradictions(args, computed),
        ignored=BACKBONE_HEAD,
        otherwise="no weights of PVSE",
    )


def _own_name(name: str) -> str:
    """Of an older layout, a list of both encoders' weights that calls the PIE block ``our_model``."""
    start = {"0.": "img_enc.", "1.": "txt_enc."}.get(name[:2], name[:2])
    return (start + name[2:]).replace(".our_model.", ".pie_net.", 1)


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
    running = Running.of(options, batch=BATCH)
    path = options.path("weights")
    pooling = options.text("pooling", choices=get_args(Pooling)) if "pooling" in options.values else None
    trained = load(path, pooling=cast("Pooling | None", pooling))
    config = trained.network.config
    vocabulary = vocabulary_of(options, {path: trained}, "coco_vocab.pkl")
    digest = fingerprint(
        network=NETWORK,
        weights=file_sha256(path),
        vocabulary=vocabulary.fingerprint,
        pooling=config.pooling,
        **preprocessing(),
    )
    network = trained.network.to(running.device)
    return PvseAnnotator(Ready(options.annotator, digest, network, vocabulary, running))
