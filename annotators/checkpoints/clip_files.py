"""A file or folder with CLIP's weights, opened: which layout, which sizes, which list of merges lies in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from annotators.checkpoints.checkpoint import OURS, Checkpoint, read_checkpoint
from annotators.checkpoints.clip_layouts import Layout, layout_of, sizes_in
from annotators.inputs.bpe import START, BytePairEncoder
from annotators.inputs.bpe_files import encoder, merges_of_lines, read_encoder
from mitl.errors import AnnotatorError

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


def _checked(found: BytePairEncoder, vocabulary: Path) -> BytePairEncoder:
    """The tokeniser, if the numbers in ``vocab.json`` are those that its merges give."""
    if vocabulary.is_file():
        numbers = _json(vocabulary.read_text(encoding="utf-8", errors="replace"), repr(str(vocabulary)))
        if numbers != found.number_of:
            wrong = next((s for s, n in found.number_of.items() if numbers.get(s) != n), START)
            raise AnnotatorError(
                f"{str(vocabulary)!r} does not belong to the merges beside it; first token that differs: {wrong!r}"
            )
    return found


def _json(text: str, what: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AnnotatorError(f"{what} is not readable as JSON: {error}") from error
    if not isinstance(found, dict):
        raise AnnotatorError(f"{what} is a {type(found).__name__}; it should be an object")
    return found
