"""CLIP: a vision transformer and a text transformer, trained by contrast; ViT-B/32 unless the weights say otherwise.

The networks are those of ``transformers``; this file says which weights go where, prepares pixels and tokens as
CLIP's own code does, and never asks a hub for anything. CLIP's own files (also open_clip's) fuse queries, keys and
values and multiply by projections from the right; the layout of ``transformers``, which our network has too, keeps
them apart and transposes the projections.
Source: Radford et al., Learning transferable visual models from natural language supervision, ICML 2021.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import CLIPConfig, CLIPModel

from annotators.base import file_sha256, fingerprint
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
    json_object,
    read_checkpoint,
    renamed,
    same_name,
)
from annotators.devices import Running
from annotators.encoding import Inputs, NetworkAnnotator
from annotators.inputs import bpe, pixels
from annotators.inputs.bpe import (
    OFFICIAL_NAME,
    START,
    BytePairEncoder,
    encoder,
    find_official,
    merges_of_lines,
    read_encoder,
)
from annotators.options import Options
from annotators.sizes import ACTIVATIONS, ClipConfig
from mitl.errors import AnnotatorError
from mitl.records import CaptionItem, ImageItem

logger = logging.getLogger(__name__)

UNNEEDED = {
    **dict.fromkeys(
        ("input_resolution", "context_length", "vocab_size"),
        "a number that the shapes of the weights say too",
    ),
    **dict.fromkeys(
        ("text_model.embeddings.position_ids", "vision_model.embeddings.position_ids"),
        "a count from 0 that old files hold",
    ),
}
"""What files hold beside the weights, with the reason why it is not needed."""


class ClipLayout(Enum):
    """How a file names CLIP's weights."""

    OFFICIAL = "CLIP's own names"
    HUB = "the names of transformers"


_IN_LAYERS = {
    "self_attn.out_proj.": ("attn.out_proj.", TensorPart.ALL),
    "self_attn.q_proj.": ("attn.in_proj_", TensorPart.QUERIES),
    "self_attn.k_proj.": ("attn.in_proj_", TensorPart.KEYS),
    "self_attn.v_proj.": ("attn.in_proj_", TensorPart.VALUES),
    "layer_norm1.": ("ln_1.", TensorPart.ALL),
    "layer_norm2.": ("ln_2.", TensorPart.ALL),
    "mlp.fc1.": ("mlp.c_fc.", TensorPart.ALL),
    "mlp.fc2.": ("mlp.c_proj.", TensorPart.ALL),
}
official_name = renamed(
    {
        "vision_model.embeddings.class_embedding": ("visual.class_embedding", TensorPart.ALL),
        "vision_model.embeddings.position_embedding.weight": ("visual.positional_embedding", TensorPart.ALL),
        "vision_model.embeddings.patch_embedding.": ("visual.conv1.", TensorPart.ALL),
        "vision_model.pre_layrnorm.": ("visual.ln_pre.", TensorPart.ALL),  # spelt so in transformers
        "vision_model.post_layernorm.": ("visual.ln_post.", TensorPart.ALL),
        "visual_projection.weight": ("visual.proj", TensorPart.TRANSPOSED),
        "text_model.embeddings.token_embedding.": ("token_embedding.", TensorPart.ALL),
        "text_model.embeddings.position_embedding.weight": ("positional_embedding", TensorPart.ALL),
        "text_model.final_layer_norm.": ("ln_final.", TensorPart.ALL),
        "text_projection.weight": ("text_projection", TensorPart.TRANSPOSED),
    },
    {
        "vision_model.encoder.layers.": "visual.transformer.resblocks.",
        "text_model.encoder.layers.": "transformer.resblocks.",
    },
    _IN_LAYERS,
)
"""Where CLIP's own files keep the weight that ``transformers`` calls so."""


MERGES = ("merges.txt", "tokenizer.json")
LAYER_NORM_EPS = 1e-5
LARGEST_SCALE = 4.6052
"""log(100), the bound of the learnt temperature (Radford et al. 2021, section 2.5)."""

_SIDE = {
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "mlp",
}
_OWN = {
    "text": {
        "vocab_size": "vocab_size",
        "max_position_embeddings": "context_length",
        "hidden_act": "activation",
    },
    "vision": {"image_size": "image_size", "patch_size": "patch_size"},
}

_PREPARED = {
    "mean": list(pixels.CLIP_MEAN),
    "std": list(pixels.CLIP_STD),
    "interpolation": "bicubic",
    "resize_mode": "shortest",
}
"""How pictures are prepared, as open_clip states it."""
_PREPARED_ON_HUB = {
    "image_mean": list(pixels.CLIP_MEAN),
    "image_std": list(pixels.CLIP_STD),
    "resample": 3,
    "do_center_crop": True,
}
"""The same as ``transformers`` states it; 3 is bicubic."""


def _stated_names(side: str) -> dict[str, str]:
    """What ``transformers`` states of a side → the field of a ClipConfig."""
    return {**{theirs: f"{side}_{ours}" for theirs, ours in _SIDE.items()}, **_OWN[side]}


@dataclass(frozen=True, slots=True, eq=False)
class ClipFile:
    """What was opened."""

    checkpoint: Checkpoint
    layout: ClipLayout
    config: ClipConfig
    encoder: Callable[[int], BytePairEncoder] | None = None
    """Makes the tokeniser for a vocabulary of that many tokens; None where no merges lie with the weights."""
    unsaid: bool = False
    """Whether nothing says which activation they were trained with."""
    problems: Sequence[str] = ()
    """What is said beside them and does not hold for what is computed."""

    def weights(self, activation: str | None = None) -> Weights[Clip]:
        """The file beside the network; ``activation`` goes before what the file says."""
        held = self.checkpoint.tensors
        config = self.config if activation is None else replace(self.config, activation=activation)
        what = (
            f"CLIP {config.name} in {self.layout.value}, {config.image_size} pixels, "
            f"{config.vocab_size:,} tokens, embeddings of {config.embed_dim}"
        )
        if "visual.layer1.0.conv1.weight" in held:
            what = "CLIP with a residual network for images, which is not read here; take one with a ViT"
        sizes = {
            "input_resolution": "image_size",
            "context_length": "context_length",
            "vocab_size": "vocab_size",
        }
        stated = {name: held[name].item() for name in sizes if name in held and held[name].numel() == 1}
        return Weights(
            "clip",
            self.checkpoint,
            lambda: Clip(config),
            what,
            settings=asdict(config),
            problems=(
                *contradictions(stated, {name: getattr(config, size) for name, size in sizes.items()}),
                *self.problems,
            ),
            ignored={**UNNEEDED, **{name: "the causal mask" for name in held if name.endswith("attn_mask")}},
            otherwise=what if "residual" in what else "no weights of a CLIP",
            naming=official_name if self.layout is ClipLayout.OFFICIAL else same_name,
        )


def open_clip_file(path: Path) -> ClipFile:
    """Open a weights file, or a folder that ``transformers`` or its hub wrote.

    Raises:
        AnnotatorError: no weights, or a description that is not of a CLIP.
    """
    if path.is_dir():
        return _of_folder(hub_weights(path))
    if path.name in HUB_FILES and (path.parent / "config.json").is_file():
        return _of_folder(path)
    checkpoint = read_checkpoint(path)
    if {"format", "network"} <= set(checkpoint.values):
        return _of_ours(checkpoint)
    hub = any(name.startswith(("vision_model.", "text_model.")) for name in checkpoint.tensors)
    layout, naming = (ClipLayout.HUB, same_name) if hub else (ClipLayout.OFFICIAL, official_name)
    config = config_of(checkpoint, "clip", ClipConfig(), naming)
    # OpenAI's archives alone hold their sizes.
    if "input_resolution" in checkpoint.tensors:
        return ClipFile(checkpoint, layout, config)
    beside = path.parent / "open_clip_config.json"
    stated = {} if hub or not beside.is_file() else described(beside)
    model = stated.get("model_cfg")
    if not isinstance(model, dict):
        return ClipFile(checkpoint, layout, config, unsaid=True)
    quick = model.get("quick_gelu", False)  # the default of open_clip
    problems = (
        *contradictions(model.get("vision_cfg"), {"head_width": config.vision_width // config.vision_heads}),
        *contradictions(model.get("text_cfg"), {"heads": config.text_heads}),
        *contradictions(stated.get("preprocess_cfg"), _PREPARED),
    )
    config = replace(config, activation="quick_gelu" if quick else "gelu")
    return ClipFile(checkpoint, layout, config, problems=problems)


def _of_ours(checkpoint: Checkpoint) -> ClipFile:
    values, path = checkpoint.values, checkpoint.path
    if (values["format"], values["network"]) != (OURS, "clip"):
        raise AnnotatorError(
            f"{str(path)!r} holds {values['format']!r} weights of {values['network']!r}; "
            f"CLIP needs its own in the format {OURS!r}"
        )
    config = _config(json_object(str(values.get("config", "")), f"the config in {str(path)!r}"), path)
    merges = merges_of_lines(str(values.get("bpe_merges", "")), path)
    return ClipFile(checkpoint, ClipLayout.HUB, config, lambda size: encoder(merges, size, path))


def _of_folder(weights: Path) -> ClipFile:
    folder = weights.parent
    config = folder / "config.json"
    if not config.is_file():
        raise AnnotatorError(
            f"the folder {str(folder)!r} lacks 'config.json'; fetch it, or name the weights file"
        )
    stated = described(config)
    if stated.get("model_type", "clip") != "clip":
        raise AnnotatorError(
            f"{str(config)!r} describes a {stated['model_type']!r}, not a CLIP; "
            "other families are read by the setting 'transformers'"
        )
    sizes = _sizes_of(stated, config)
    merges = next((folder / name for name in MERGES if (folder / name).is_file()), None)
    read = (
        None if merges is None else lambda size: _checked(read_encoder(merges, size), folder / "vocab.json")
    )
    prepared = folder / "preprocessor_config.json"
    stated = described(prepared) if prepared.is_file() else {}
    return ClipFile(
        read_checkpoint(weights),
        ClipLayout.HUB,
        _config(sizes, weights),
        read,
        problems=contradictions(stated, _PREPARED_ON_HUB),
    )


def _config(sizes: Mapping[str, Any], path: Path) -> ClipConfig:
    """The sizes that a file states, with those of ViT-B/32 for the others; AnnotatorError where no CLIP has them."""
    try:
        unknown = next((name for name in sizes if name not in ClipConfig.__dataclass_fields__), None)
        if unknown is not None:
            raise ValueError(f"an unknown size {unknown!r}")
        return ClipConfig(**sizes)
    except ValueError as error:
        raise AnnotatorError(f"{str(path)!r} describes no CLIP: {error}") from error


def _sizes_of(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The fields of a ClipConfig in a hub's description; what it leaves out has the default of ViT-B/32."""
    sizes: dict[str, Any] = {}
    if "projection_dim" in config:
        sizes["embed_dim"] = config["projection_dim"]
    for side in ("text", "vision"):
        # Old descriptions may hold each side twice; then the second alone counts.
        part = config.get(f"{side}_config_dict") or config.get(f"{side}_config") or {}
        names = _stated_names(side)
        sizes.update((ours, part[theirs]) for theirs, ours in names.items() if part.get(theirs) is not None)
        if part.get("layer_norm_eps", LAYER_NORM_EPS) != LAYER_NORM_EPS:
            raise AnnotatorError(
                f"{str(path)!r} has a layer_norm_eps of {part['layer_norm_eps']!r}; CLIP's is {LAYER_NORM_EPS}"
            )
    return sizes


def _checked(encoder: BytePairEncoder, vocabulary: Path) -> BytePairEncoder:
    """The tokeniser, if the numbers in ``vocab.json`` are those that its merges give."""
    if vocabulary.is_file():
        numbers = described(vocabulary)
        if numbers != encoder.number_of:
            wrong = next((s for s, n in encoder.number_of.items() if numbers.get(s) != n), START)
            raise AnnotatorError(
                f"{str(vocabulary)!r} does not belong to the merges beside it; first token that differs: {wrong!r}"
            )
    return encoder


VERSION = 1
"""Raised when the same weights and inputs give other embeddings."""
BATCH = 64
PRECISIONS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class Clip(nn.Module):
    """Both transformers with their projections; weights go by the names of ``transformers``."""

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.config = config
        model = CLIPModel(for_transformers(config))
        self.vision_model = model.vision_model
        self.text_model = model.text_model
        for tower in (self.vision_model, self.text_model):
            # Built without memory (device "meta"), these would stay without: they are in no checkpoint.
            count = tower.embeddings.position_ids.shape[-1]
            tower.embeddings.position_ids = torch.arange(count, device="cpu").expand((1, -1))
        self.visual_projection = model.visual_projection
        self.text_projection = model.text_projection
        self.logit_scale = model.logit_scale

    def images(self, pixels: Tensor) -> dict[str, Tensor]:
        """(B, 3, S, S) float32 -> ``embedding`` (B, D) float32 of unit length."""
        seen = self.vision_model(pixel_values=pixels).pooler_output  # (B, width), of the class token
        return {"embedding": F.normalize(self.visual_projection(seen).float(), dim=-1)}

    def captions(self, tokens: Tensor) -> dict[str, Tensor]:
        """(B, L) int64 -> ``embedding`` (B, D) float32 of unit length.

        A text ends at its first end token. What follows may be any padding: no token sees a later one.
        """
        read = self.text_model(input_ids=tokens).pooler_output  # (B, width), of the end token
        return {"embedding": F.normalize(self.text_projection(read).float(), dim=-1)}

    def in_precision(self, dtype: torch.dtype) -> Clip:
        """Compute in ``dtype``, with LayerNorm in float32 as in CLIP's own code."""
        if dtype != torch.float32:
            for module in self.modules():
                if type(module) is nn.LayerNorm:
                    module.__class__ = LayerNorm32
                else:
                    for weight in module.parameters(recurse=False):
                        weight.data = weight.data.to(dtype)
        return self


def for_transformers(config: ClipConfig) -> CLIPConfig:
    """The same sizes as ``transformers`` writes them."""
    common = {
        "projection_dim": config.embed_dim,
        "hidden_act": config.activation,
        "layer_norm_eps": LAYER_NORM_EPS,
    }
    sides: dict[str, dict[str, Any]] = {
        side: {**common, **{theirs: getattr(config, ours) for theirs, ours in _stated_names(side).items()}}
        for side in ("text", "vision")
    }
    ends = {"bos_token_id": config.vocab_size - 2, "eos_token_id": config.vocab_size - 1, "pad_token_id": 0}
    return CLIPConfig(
        text_config={**sides["text"], **ends},
        vision_config=sides["vision"],
        projection_dim=config.embed_dim,
    )


class LayerNorm32(nn.LayerNorm):
    """A LayerNorm that computes in float32 whatever it is given."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D) of the same type."""
        return super().forward(x.float()).to(x.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class LoadedClip:
    """A network in evaluation mode and the tokeniser that belongs to it."""

    network: Clip
    encoder: BytePairEncoder
    path: Path
    """The file of the weights."""


def examine(path: Path) -> Examination:
    """What a weights file or a hub's folder is, compared with CLIP; AnnotatorError where it cannot be read."""
    return open_clip_file(path).weights().examination


def load(path: Path, *, bpe: Path | None = None, activation: str | None = None) -> LoadedClip:
    """CLIP from a weights file or a hub's folder.

    Args:
        path: ``ViT-B-32.pt``, a state dict of open_clip, a folder or file of ``transformers``, our own safetensors.
        bpe: the list of merges; by default that of the folder or file itself, then that of an installed package.
        activation: of the file, where it says none: ``quick_gelu``, which OpenAI's need, or ``gelu``.

    Raises:
        AnnotatorError: a weight is missing, left over or misshapen, or there is no list of merges.
    """
    opened = open_clip_file(path)
    network = opened.weights(activation).load()
    if opened.unsaid and activation is None:
        logger.warning(
            "nothing beside %r says which activation it was trained with; quick_gelu is taken, as for OpenAI's "
            'weights; set activation = "gelu" if open_clip\'s name of the model lacks -quickgelu, or else '
            '"quick_gelu"',
            str(opened.checkpoint.path),
        )
    return LoadedClip(network, _encoder(opened, bpe), opened.checkpoint.path)


def _encoder(opened: ClipFile, given: Path | None) -> BytePairEncoder:
    size = opened.config.vocab_size
    if given is not None:
        return read_encoder(given, size)
    if opened.encoder is not None:
        return opened.encoder(size)
    merges = find_official() if size == ClipConfig().vocab_size else None
    if merges is None:
        raise AnnotatorError(
            f"CLIP's list of merges is needed beside {str(opened.checkpoint.path)!r}; name it by the setting 'bpe': "
            f"{OFFICIAL_NAME} lies in the folder clip of github.com/openai/CLIP and in the package open_clip_torch"
        )
    return read_encoder(merges, size)


class ClipAnnotator(NetworkAnnotator):
    """Similarity is the cosine of both embeddings; the learned temperature would not change an order."""

    def __init__(
        self, name: str, loaded: LoadedClip, mark: str, running: Running, *, truncate: bool = False
    ) -> None:
        """Take a network with its tokeniser; ``mark`` is the fingerprint."""
        super().__init__(name, mark, running)
        self.network = loaded.network.to(running.device)
        self.encoder, self._truncate = loaded.encoder, truncate

    def _encode_images(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.network.images(inputs["pixels"])

    def _encode_captions(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.network.captions(inputs["tokens"])

    def read_image(self, item: ImageItem) -> Inputs:
        """``pixels`` (3, S, S)."""
        return {"pixels": pixels.clip_pixels(item, self.network.config.image_size)}

    def read_caption(self, item: CaptionItem) -> Inputs:
        """``tokens`` (L,); AnnotatorError where they are more than it reads and are not to be cut."""
        tokens, most = self.encoder.encode(item.text), self.network.config.context_length
        if len(tokens) > most:
            if not self._truncate:
                raise AnnotatorError(
                    f"caption {item.external_id!r} has {len(tokens)} tokens, but {self.name!r} reads {most}; "
                    "shorten it, leave it out, or set truncate = true"
                )
            tokens = np.append(tokens[: most - 1], self.encoder.end)
        return {"tokens": tokens}


def build(options: Options) -> ClipAnnotator:
    """CLIP from ``weights``, the file or folder, and the settings below.

    ``bpe``: the list of merges (default: found beside the weights or in an installed package). ``precision``:
    float32, or float16 and bfloat16, which change the embeddings. ``truncate``: whether a caption of more than 77
    tokens is cut, as CLIP's own code does only when it is asked to; otherwise it is an error (so this setting is no
    part of the fingerprint: it changes no embedding that there was without it). ``activation``:
    gelu for weights that were trained with it. ``device``, ``threads``, ``batch``.
    """
    precision = options.text("precision", "float32", choices=tuple(PRECISIONS))
    truncate = options.flag("truncate", False)
    activation = options.text("activation", choices=ACTIVATIONS) if "activation" in options.values else None
    path = options.path("weights")
    merges = options.path("bpe") if "bpe" in options.values else None
    running = Running.of(options, batch=BATCH, threads=os.cpu_count())
    loaded = load(path, bpe=merges, activation=activation)
    mark = fingerprint(
        network="clip",
        weights=file_sha256(loaded.path),
        config=asdict(loaded.network.config),
        merges=loaded.encoder.sha256,
        tokens=bpe.VERSION,
        pixels=pixels.VERSION,
        precision=precision,
        version=VERSION,
    )
    loaded.network.in_precision(PRECISIONS[precision])
    return ClipAnnotator(options.annotator, loaded, mark, running, truncate=truncate)
