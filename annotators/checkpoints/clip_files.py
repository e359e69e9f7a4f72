"""CLIP's weights: which layout a file or folder has, which sizes, which list of merges lies in it.

CLIP's own files (also open_clip's) fuse queries, keys and values and multiply by projections from the right; the
layout of ``transformers``, which our network has too, keeps them apart and transposes the projections.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from torch import Tensor

from annotators.checkpoints.checkpoint import OURS, Checkpoint, Shape, read_checkpoint
from annotators.inputs.bpe import START, BytePairEncoder, encoder, merges_of_lines, read_encoder
from mitl.errors import AnnotatorError

HEAD = 64
"""Width of an attention head in every CLIP transformer that was released."""

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


class Layout(Enum):
    """How a file names CLIP's weights."""

    OFFICIAL = "CLIP's own names"
    HUB = "the names of transformers"


class Part(Enum):
    """What of an official tensor becomes one of ours."""

    ALL = -1
    QUERIES, KEYS, VALUES = 0, 1, 2
    TRANSPOSED = 3


_TOWERS = {"vision_model": "visual.transformer.resblocks.", "text_model": "transformer.resblocks."}
_WHOLE = {
    "vision_model.embeddings.class_embedding": "visual.class_embedding",
    "vision_model.embeddings.position_embedding.weight": "visual.positional_embedding",
    "vision_model.embeddings.patch_embedding.weight": "visual.conv1.weight",
    "text_model.embeddings.token_embedding.weight": "token_embedding.weight",
    "text_model.embeddings.position_embedding.weight": "positional_embedding",
    "logit_scale": "logit_scale",
}
_NORMS = {
    "vision_model.pre_layrnorm": "visual.ln_pre",  # spelt so in transformers
    "vision_model.post_layernorm": "visual.ln_post",
    "text_model.final_layer_norm": "ln_final",
}
_PROJECTIONS = {"visual_projection.weight": "visual.proj", "text_projection.weight": "text_projection"}
_BLOCK = {
    "self_attn.out_proj": "attn.out_proj",
    "layer_norm1": "ln_1",
    "layer_norm2": "ln_2",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
}
_ATTENTION = {"q_proj": Part.QUERIES, "k_proj": Part.KEYS, "v_proj": Part.VALUES}


def official_name(name: str) -> tuple[str, Part]:
    """Where CLIP's own files keep the weight that ``transformers`` calls ``name``."""
    if name in _WHOLE:
        return _WHOLE[name], Part.ALL
    if name in _PROJECTIONS:
        return _PROJECTIONS[name], Part.TRANSPOSED
    module, _, kind = name.rpartition(".")
    if module in _NORMS:
        return f"{_NORMS[module]}.{kind}", Part.ALL
    tower, _, _, layer, block = module.split(".", 4)
    head = f"{_TOWERS[tower]}{layer}."
    if block.startswith("self_attn.") and (part := _ATTENTION.get(block.removeprefix("self_attn."))):
        return f"{head}attn.in_proj_{kind}", part
    return f"{head}{_BLOCK[block]}.{kind}", Part.ALL


def layout_of(names: Iterable[str]) -> Layout:
    """The layout that most of the names suggest; CLIP's own where none is of CLIP."""
    hub = sum(name.startswith(("vision_model.", "text_model.")) for name in names)
    return Layout.HUB if hub else Layout.OFFICIAL


def shapes_in(layout: Layout, ours: Mapping[str, Shape]) -> dict[str, Shape]:
    """Names and shapes that a file of this layout should have, of a network whose own are ``ours``."""
    if layout is Layout.HUB:
        return dict(ours)
    shapes: dict[str, Shape] = {}
    for name, shape in ours.items():
        official, part = official_name(name)
        if part is Part.TRANSPOSED:
            shape = shape[::-1]
        elif part is not Part.ALL:
            shape = (3 * shape[0], *shape[1:])
        shapes[official] = shape
    return shapes


def as_ours(layout: Layout, tensors: Mapping[str, Tensor], names: Iterable[str]) -> dict[str, Tensor]:
    """The weights under our own ``names``; those that the file holds beside them are left out."""
    if layout is Layout.HUB:
        return {name: tensors[name] for name in names}
    weights: dict[str, Tensor] = {}
    for name in names:
        official, part = official_name(name)
        tensor = tensors[official]
        if part is Part.TRANSPOSED:
            tensor = tensor.T
        elif part is not Part.ALL:
            tensor = tensor.chunk(3)[part.value]
        weights[name] = tensor
    return weights


def sizes_in(layout: Layout, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The fields of a ClipConfig that the shapes of the weights tell; a weight that is missing tells nothing."""

    def size(name: str, axis: int) -> int | None:
        official, part = official_name(name) if layout is Layout.OFFICIAL else (name, Part.ALL)
        shape = tensors[official].shape if official in tensors else ()
        if part is Part.TRANSPOSED:
            axis = 1 - axis
        return shape[axis] if axis < len(shape) else None

    sizes: dict[str, Any] = {}
    for side, tower in (("vision", "vision_model"), ("text", "text_model")):
        layers = f"{tower}.encoder.layers." if layout is Layout.HUB else _TOWERS[tower]
        numbers = [
            int(n) for name in tensors for n in re.findall(rf"^{re.escape(layers)}(\d{{1,3}})\.", name)
        ]
        width = size(f"{tower}.embeddings.position_embedding.weight", 1)
        sizes[f"{side}_width"] = width
        sizes[f"{side}_heads"] = max(width // HEAD, 1) if width else None
        sizes[f"{side}_layers"] = max(numbers) + 1 if numbers else None
        sizes[f"{side}_mlp"] = size(f"{tower}.encoder.layers.0.mlp.fc1.weight", 0)
    sizes["embed_dim"] = size("visual_projection.weight", 0)
    sizes["vocab_size"] = size("text_model.embeddings.token_embedding.weight", 0)
    sizes["context_length"] = size("text_model.embeddings.position_embedding.weight", 0)
    sizes["patch_size"] = size("vision_model.embeddings.patch_embedding.weight", 3)
    places = size("vision_model.embeddings.position_embedding.weight", 0)
    if sizes["patch_size"] and places:
        sizes["image_size"] = sizes["patch_size"] * round(max(places - 1, 1) ** 0.5)
    return {name: value for name, value in sizes.items() if value}


WEIGHTS = ("model.safetensors", "pytorch_model.bin")
MERGES = ("merges.txt", "tokenizer.json")
LAYER_NORM_EPS = 1e-5

_SIDE = {
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "mlp",
}
_TEXT = {"vocab_size": "vocab_size", "max_position_embeddings": "context_length", "hidden_act": "activation"}
_VISION = {"image_size": "image_size", "patch_size": "patch_size"}


@dataclass(frozen=True, slots=True, eq=False)
class ClipFile:
    """What was opened."""

    checkpoint: Checkpoint
    layout: Layout
    sizes: Mapping[str, Any]
    """Fields of a ClipConfig; those that the file does not tell are left out."""
    encoder: Callable[[int], BytePairEncoder] | None = None
    """Makes the tokeniser for a vocabulary of that many tokens; None where no merges lie with the weights."""


def open_clip_file(path: Path) -> ClipFile:
    """Open a weights file, or a folder that ``transformers`` or its hub wrote.

    Raises:
        AnnotatorError: no weights, or a description that is not of a CLIP.
    """
    if path.is_dir():
        return _of_folder(path, next((path / n for n in WEIGHTS if (path / n).is_file()), None))
    if path.name in WEIGHTS and (path.parent / "config.json").is_file():
        return _of_folder(path.parent, path)
    checkpoint = read_checkpoint(path)
    if {"format", "network"} <= set(checkpoint.values):
        return _of_ours(checkpoint)
    layout = layout_of(checkpoint.tensors)
    return ClipFile(checkpoint, layout, sizes_in(layout, checkpoint.tensors))


def _of_ours(checkpoint: Checkpoint) -> ClipFile:
    values, path = checkpoint.values, checkpoint.path
    if (values["format"], values["network"]) != (OURS, "clip"):
        raise AnnotatorError(
            f"{str(path)!r} holds {values['format']!r} weights of {values['network']!r}; "
            f"CLIP needs its own in the format {OURS!r}"
        )
    sizes = _json(str(values.get("config", "")), f"the config in {str(path)!r}")
    lines = str(values.get("bpe_merges", "")).split("\n")
    try:
        merges = merges_of_lines(lines)
    except ValueError as error:
        raise AnnotatorError(f"the merges in {str(path)!r} are malformed: {error}") from error
    return ClipFile(checkpoint, Layout.HUB, sizes, lambda size: encoder(merges, size, path))


def _of_folder(folder: Path, weights: Path | None) -> ClipFile:
    if weights is None:
        raise AnnotatorError(
            f"the folder {str(folder)!r} holds no {' or '.join(WEIGHTS)}; name a file, or a folder of transformers"
        )
    described = folder / "config.json"
    if not described.is_file():
        raise AnnotatorError(
            f"the folder {str(folder)!r} lacks 'config.json'; fetch it, or name the weights file"
        )
    config = _json(described.read_text(encoding="utf-8", errors="replace"), repr(str(described)))
    if config.get("model_type", "clip") != "clip":
        raise AnnotatorError(
            f"{str(described)!r} describes a {config['model_type']!r}, not a CLIP; "
            "other families are read by the setting 'transformers'"
        )
    sizes = _sizes_of(config, described)
    merges = next((folder / name for name in MERGES if (folder / name).is_file()), None)
    read = (
        None if merges is None else lambda size: _checked(read_encoder(merges, size), folder / "vocab.json")
    )
    return ClipFile(read_checkpoint(weights), Layout.HUB, sizes, read)


def _sizes_of(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The fields of a ClipConfig in a hub's description; what it leaves out has the default of ViT-B/32."""
    sizes: dict[str, Any] = {}
    if "projection_dim" in config:
        sizes["embed_dim"] = config["projection_dim"]
    for side, own in (("text", _TEXT), ("vision", _VISION)):
        # Old descriptions may hold each side twice; then the second alone counts.
        part = config.get(f"{side}_config_dict") or config.get(f"{side}_config") or {}
        names = {**{theirs: f"{side}_{ours}" for theirs, ours in _SIDE.items()}, **own}
        sizes.update((ours, part[theirs]) for theirs, ours in names.items() if part.get(theirs) is not None)
        if part.get("layer_norm_eps", LAYER_NORM_EPS) != LAYER_NORM_EPS:
            raise AnnotatorError(
                f"{str(path)!r} has a layer_norm_eps of {part['layer_norm_eps']!r}; CLIP's is {LAYER_NORM_EPS}"
            )
    return sizes


def _checked(encoder: BytePairEncoder, vocabulary: Path) -> BytePairEncoder:
    """The tokeniser, if the numbers in ``vocab.json`` are those that its merges give."""
    if vocabulary.is_file():
        numbers = _json(vocabulary.read_text(encoding="utf-8", errors="replace"), repr(str(vocabulary)))
        if numbers != encoder.number_of:
            wrong = next((s for s, n in encoder.number_of.items() if numbers.get(s) != n), START)
            raise AnnotatorError(
                f"{str(vocabulary)!r} does not belong to the merges beside it; first token that differs: {wrong!r}"
            )
    return encoder


def _json(text: str, what: str) -> dict[str, Any]:
    try:
        stated = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AnnotatorError(f"{what} is not readable as JSON: {error}") from error
    if not isinstance(stated, dict):
        raise AnnotatorError(f"{what} is a {type(stated).__name__}; it should be an object")
    return stated
