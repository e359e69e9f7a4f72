"""ViLT's weights in every layout they come in: the authors' Lightning file, the hub's folder or file, and ours.

| layout | names | LayerNorm's epsilon |
| --- | --- | --- |
| authors' (``state_dict`` of Lightning) | 162, queries, keys and values fused | 1e-6, BERT's norm 1e-12 |
| hub (folder with config.json, or one file) | 208 | of config.json (1e-12), one for all norms; 1e-12 without it |
| ours (safetensors with ``format`` in its metadata) | 208 | as stated |
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

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
    stated_config,
    without_memory,
)
from annotators.networks.vilt import Vilt, ViltConfig
from mitl.errors import AnnotatorError

NETWORK = "vilt"
HUB_FILES = ("model.safetensors", "pytorch_model.bin")
"""The weights in a folder of the hub, in order of preference."""
_HEAD_WIDTH = 64
"""Width of an attention head where only shapes are known; all released ViLTs have it."""

_EMBEDDINGS = {
    "text_embeddings.": "vilt.embeddings.text_embeddings.",
    "token_type_embeddings.": "vilt.embeddings.token_type_embeddings.",
    "transformer.cls_token": "vilt.embeddings.cls_token",
    "transformer.pos_embed": "vilt.embeddings.position_embeddings",
    "transformer.patch_embed.proj.": "vilt.embeddings.patch_embeddings.projection.",
    "transformer.norm.": "vilt.layernorm.",
    "pooler.": "vilt.pooler.",
    "rank_output.": "rank_output.",
}
"""How the authors' names begin outside the blocks -> the hub's."""
_BLOCK = {
    "norm1.": "layernorm_before.",
    "norm2.": "layernorm_after.",
    "attn.proj.": "attention.output.dense.",
    "mlp.fc1.": "intermediate.dense.",
    "mlp.fc2.": "output.dense.",
}
"""The same within a block, but for the fused ``attn.qkv``."""
_BLOCK_NAME = re.compile(r"transformer\.blocks\.(\d+)\.(.+)")
_FUSED, _PARTS = "attn.qkv.", ("query", "key", "value")

_NO_POSITIONS = "a buffer of old versions that counts 0, 1, 2, ...; positions are not learnt there"
_IGNORED = {
    "text_embeddings.position_ids": _NO_POSITIONS,
    "vilt.embeddings.text_embeddings.position_ids": _NO_POSITIONS,
    "itm_score.": "head of pre-training that tells whether a pair matches; retrieval reads rank_output",
    "mlm_score.": "head of pre-training that guesses masked words; retrieval reads rank_output",
    "mpp_score.": "head of pre-training that guesses masked patches; retrieval reads rank_output",
}
"""What may be left over in a file: name or, with a dot at its end, beginning of names -> why it is not needed."""


@dataclass(frozen=True, slots=True, eq=False)
class ViltFile:
    """A weights file that was opened: what it holds under the hub's names, and what stands beside it."""

    checkpoint: Checkpoint
    """With its own names."""
    kind: str
    """authors', hub's or ours."""
    config: ViltConfig
    folder: Path
    """Where ``vocab.txt`` may lie beside it."""

    @property
    def wordpieces(self) -> str | None:
        """The word pieces in a file of ours, a line each."""
        text = self.checkpoint.values.get("wordpieces")
        return text if isinstance(text, str) else None


def open_weights(path: Path) -> ViltFile:
    """Read a file of any layout, or the weights file of a folder of the hub.

    Raises:
        AnnotatorError: there is none, it is unreadable, or its configuration is of another kind of network.
    """
    file = _weights_of(path) if path.is_dir() else path
    checkpoint = read_checkpoint(file)
    stated = file.parent / "config.json"
    ours = stated_config(checkpoint, NETWORK, ViltConfig.from_json)
    if ours is not None:
        kind, config = "ours", ours
    elif any(name.startswith("transformer.") for name in checkpoint.tensors):
        kind, config = "authors'", _shown_by(_renamed(checkpoint.tensors), ViltConfig())
    elif file.name in HUB_FILES and stated.is_file():
        kind, config = "hub's", _hub_config(stated)
    else:
        hub = ViltConfig(layer_norm_eps=1e-12)
        kind, config = "hub's", _shown_by(checkpoint.tensors, hub)
    return ViltFile(checkpoint, kind, config, file.parent)


def examined(opened: ViltFile) -> Examination:
    """Hold the file against the network of its configuration, under the file's own names."""
    shapes = shapes_of(without_memory(Vilt, opened.config).state_dict())
    expected = dict(_authors_shapes(shapes)) if opened.kind == "authors'" else shapes
    config = opened.config
    examination = compare(
        NETWORK,
        opened.checkpoint,
        expected,
        what=f"ViLT for retrieval, {opened.kind} layout: {config.num_hidden_layers} layers of width "
        f"{config.hidden_size}, {config.vocab_size:,} word pieces, LayerNorm epsilon {config.layer_norm_eps:g}",
        ignored=_IGNORED,
        settings=json.loads(config.to_json()),
    )
    problems = list(contradictions(_authors_options(opened.checkpoint), _computed_with(config)))
    rank = [name for name in examination.missing if name.startswith("rank_output.")]
    if rank and len(rank) == len(examination.missing):
        problems.append(_NOT_FOR_RETRIEVAL)
    return examination.with_problems(problems, otherwise="no weights of ViLT")


def _authors_options(checkpoint: Checkpoint) -> Mapping[str, object]:
    """The configuration that Lightning keeps beside the authors' weights."""
    return options_of(options_of(checkpoint.values.get("hyper_parameters")).get("config"))


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


def load_network(opened: ViltFile) -> Vilt:
    """The network with its weights; AnnotatorError where any key is missing, left over or of another shape."""
    network = without_memory(Vilt, opened.config)
    examination = examined(opened)
    kept = {name: t for name, t in opened.checkpoint.tensors.items() if name not in examination.ignored}
    load_strictly(network, _renamed(kept) if opened.kind == "authors'" else kept, examination)
    network.train(False)
    return network


def _weights_of(folder: Path) -> Path:
    for name in HUB_FILES:
        if (folder / name).is_file():
            return folder / name
    raise AnnotatorError(
        f"the folder {str(folder)!r} holds no {' or '.join(HUB_FILES)}; name the weights file or a folder of the hub"
    )


def _hub_config(path: Path) -> ViltConfig:
    try:
        stated = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(stated, dict):
            raise ValueError("it is no object")
        return ViltConfig.from_hub(stated)
    except (OSError, ValueError, TypeError) as error:
        raise AnnotatorError(f"{str(path)!r} does not describe a ViLT: {error}") from error


def _shown_by(tensors: Mapping[str, Tensor], default: ViltConfig) -> ViltConfig:
    """The configuration that shapes under the hub's names show; the default's where they do not."""
    shapes = shapes_of(tensors)
    embeddings, layer = "vilt.embeddings.", "vilt.encoder.layer."
    text = f"{embeddings}text_embeddings."
    sizes = {
        "vocab_size": _size(shapes, f"{text}word_embeddings.weight", 0),
        "hidden_size": _size(shapes, f"{text}word_embeddings.weight", 1),
        "max_position_embeddings": _size(shapes, f"{text}position_embeddings.weight", 0),
        "type_vocab_size": _size(shapes, f"{text}token_type_embeddings.weight", 0),
        "modality_type_vocab_size": _size(shapes, f"{embeddings}token_type_embeddings.weight", 0),
        "intermediate_size": _size(shapes, f"{layer}0.intermediate.dense.weight", 0),
        "patch_size": _size(shapes, f"{embeddings}patch_embeddings.projection.weight", 2),
        "num_hidden_layers": len({name.split(".")[3] for name in shapes if name.startswith(layer)}),
    }
    config = {name: size or getattr(default, name) for name, size in sizes.items()}
    config["num_attention_heads"] = max(1, config["hidden_size"] // _HEAD_WIDTH)
    places = _size(shapes, f"{embeddings}position_embeddings", 1)
    side = round((places - 1) ** 0.5) if places > 1 else default.grid
    try:
        return replace(default, **config, image_size=side * config["patch_size"])
    except ValueError:
        # Shapes that make no ViLT at all: the released sizes say best what is wrong with them.
        return default


def _size(shapes: Mapping[str, Shape], name: str, axis: int) -> int:
    shape = shapes.get(name, ())
    return shape[axis] if axis < len(shape) else 0


def _renamed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The authors' tensors under the hub's names; a fused query, key and value in its three parts."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        names = _hub_names(name)
        parts = tensor.chunk(len(names)) if len(names) > 1 else (tensor,)
        renamed.update(zip(names, parts, strict=False))
    return renamed


def _hub_names(name: str) -> tuple[str, ...]:
    """The hub's name of one of the authors' tensors, three for a fused one; unknown names stay."""
    if block := _BLOCK_NAME.fullmatch(name):
        layer, rest = f"vilt.encoder.layer.{block[1]}.", block[2]
        if rest.startswith(_FUSED):
            kind = rest.removeprefix(_FUSED)
            return tuple(f"{layer}attention.attention.{part}.{kind}" for part in _PARTS)
        for theirs, ours in _BLOCK.items():
            if rest.startswith(theirs):
                return (layer + ours + rest.removeprefix(theirs),)
    for theirs, ours in _EMBEDDINGS.items():
        if name.startswith(theirs):
            return (ours + name.removeprefix(theirs),)
    return (name,)


def _authors_shapes(shapes: Mapping[str, Shape]) -> Iterator[tuple[str, Shape]]:
    """The names and shapes of the authors' file for a network of these, in the hub's order."""
    back = {ours: theirs for theirs, ours in _EMBEDDINGS.items()}
    within = {ours: theirs for theirs, ours in _BLOCK.items()}
    for name, shape in shapes.items():
        if match := re.fullmatch(r"vilt\.encoder\.layer\.(\d+)\.(.+)", name):
            block, rest = f"transformer.blocks.{match[1]}.", match[2]
            if fused := re.fullmatch(r"attention\.attention\.(query|key|value)\.(\w+)", rest):
                if fused[1] == _PARTS[0]:
                    yield f"{block}{_FUSED}{fused[2]}", (len(_PARTS) * shape[0], *shape[1:])
                continue
            start = next(ours for ours in within if rest.startswith(ours))
            yield block + within[start] + rest.removeprefix(start), shape
        else:
            start = next(ours for ours in back if name.startswith(ours))
            yield back[start] + name.removeprefix(start), shape
