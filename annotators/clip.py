"""CLIP: a vision transformer and a text transformer, trained by contrast; ViT-B/32 unless the weights say otherwise.

The networks are those of ``transformers``; this file says which weights go where, prepares pixels and tokens as
CLIP's own code does, and never asks a hub for anything.
Source: Radford et al., Learning transferable visual models from natural language supervision, ICML 2021.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import CLIPConfig, CLIPModel

from annotators.checkpoints.checkpoint import (
    Examination,
    compare,
    contradictions,
    load_strictly,
    shapes_of,
    without_memory,
)
from annotators.checkpoints.clip_files import UNNEEDED, ClipFile, as_ours, open_clip_file, shapes_in
from annotators.devices import Running
from annotators.encoding import Inputs, NetworkAnnotator
from annotators.fingerprint import file_sha256, fingerprint
from annotators.inputs import bpe, pixels
from annotators.inputs.bpe import OFFICIAL_NAME, BytePairEncoder, find_official, read_encoder
from annotators.options import Options
from mitl.errors import AnnotatorError
from mitl.records import CaptionItem, ImageItem

ACTIVATIONS = ("quick_gelu", "gelu")
LARGEST = 1 << 20
"""No size of a CLIP is greater."""


@dataclass(frozen=True, slots=True)
class ClipConfig:
    """Sizes of both transformers; the defaults are those of ViT-B/32."""

    embed_dim: int = 512
    image_size: int = 224
    patch_size: int = 32
    vision_width: int = 768
    vision_layers: int = 12
    vision_heads: int = 12
    vision_mlp: int = 3072
    context_length: int = 77
    vocab_size: int = 49408
    text_width: int = 512
    text_layers: int = 12
    text_heads: int = 8
    text_mlp: int = 2048
    activation: str = "quick_gelu"
    """x * sigmoid(1.702 x), which all weights of OpenAI need; ``gelu`` for those that were trained with it."""

    @property
    def name(self) -> str:
        """As the paper would call it: "ViT-B/32"."""
        size = {768: "B", 1024: "L", 1280: "H"}.get(self.vision_width, f"{self.vision_width} wide")
        return f"ViT-{size}/{self.patch_size}"

    def for_transformers(self) -> CLIPConfig:
        """The same sizes as ``transformers`` writes them."""
        vision = {
            "image_size": self.image_size,
            "patch_size": self.patch_size,
            "hidden_size": self.vision_width,
            "num_hidden_layers": self.vision_layers,
            "num_attention_heads": self.vision_heads,
            "intermediate_size": self.vision_mlp,
        }
        text = {
            "max_position_embeddings": self.context_length,
            "vocab_size": self.vocab_size,
            "hidden_size": self.text_width,
            "num_hidden_layers": self.text_layers,
            "num_attention_heads": self.text_heads,
            "intermediate_size": self.text_mlp,
            "bos_token_id": self.vocab_size - 2,
            "eos_token_id": self.vocab_size - 1,
            "pad_token_id": 0,
        }
        common = {"projection_dim": self.embed_dim, "hidden_act": self.activation, "layer_norm_eps": 1e-5}
        return CLIPConfig(
            text_config={**text, **common},
            vision_config={**vision, **common},
            projection_dim=self.embed_dim,
        )


def clip_config(sizes: Mapping[str, Any], path: Path) -> ClipConfig:
    """The sizes that a file tells, checked, with those of ViT-B/32 for what it does not tell.

    Raises:
        AnnotatorError: no CLIP has such a size.
    """
    wrong = next(_wrong_sizes(sizes), None)
    if wrong is not None:
        raise AnnotatorError(f"{str(path)!r} describes no CLIP: it has {wrong}")
    return ClipConfig(**sizes)


def _wrong_sizes(sizes: Mapping[str, Any]) -> Iterator[str]:
    known = {field.name for field in fields(ClipConfig)}
    for name, value in sizes.items():
        if name not in known:
            yield f"an unknown size {name!r}"
        elif name == "activation":
            if value not in ACTIVATIONS:
                yield f"the activation {value!r}; known: {', '.join(ACTIVATIONS)}"
        elif not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST:
            yield f"{name} {value!r}; it should be a number from 1 to {LARGEST}"
    config = ClipConfig(**sizes)
    for width, heads in ((config.vision_width, config.vision_heads), (config.text_width, config.text_heads)):
        if width % heads:
            yield f"a width of {width} for {heads} heads, which do not divide it"
    if config.image_size % config.patch_size:
        yield f"images of {config.image_size} pixels for patches of {config.patch_size}"


VERSION = 1
"""Raised when the same weights and inputs give other embeddings."""
BATCH = 64
PRECISIONS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class Clip(nn.Module):
    """Both transformers with their projections; weights go by the names of ``transformers``."""

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.config = config
        made = CLIPModel(config.for_transformers())
        self.vision_model = made.vision_model
        self.text_model = made.text_model
        self.visual_projection = made.visual_projection
        self.text_projection = made.text_projection
        self.logit_scale = made.logit_scale

    @classmethod
    def without_weights(cls, config: ClipConfig) -> Clip:
        """A network whose weights take no memory until they are loaded."""
        network = without_memory(cls, config)
        for tower in (network.vision_model, network.text_model):
            count = tower.embeddings.position_ids.shape[-1]
            tower.embeddings.position_ids = torch.arange(count).expand((1, -1))
        return network

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


def examine(path: Path) -> Examination:
    """What a weights file or a hub's folder is, held against CLIP; AnnotatorError where it cannot be read."""
    opened = open_clip_file(path)
    return _examined(opened, clip_config(opened.sizes, opened.checkpoint.path))


def load(path: Path, *, bpe: Path | None = None, activation: str | None = None) -> LoadedClip:
    """CLIP from a weights file or a hub's folder.

    Args:
        path: ``ViT-B-32.pt``, a state dict of open_clip, a folder or file of ``transformers``, our own safetensors.
        bpe: the list of merges; by default that of the folder or file itself, then that of an installed package.
        activation: of the file, where it says none: ``quick_gelu``, which OpenAI's need, or ``gelu``.

    Raises:
        AnnotatorError: a weight is missing, left over or misshapen, or there is no list of merges.
    """
    return _loaded(open_clip_file(path), bpe, activation)


def _loaded(opened: ClipFile, merges: Path | None, activation: str | None) -> LoadedClip:
    stated = opened.sizes if activation is None else {**opened.sizes, "activation": activation}
    config = clip_config(stated, opened.checkpoint.path)
    examination = _examined(opened, config)
    network = Clip.without_weights(config)
    if not examination.fits:
        load_strictly(network, {}, examination)
    ours = as_ours(opened.layout, opened.checkpoint.tensors, network.state_dict())
    load_strictly(network, ours, examination)
    return LoadedClip(network.eval(), _encoder(opened, config, merges))


def _examined(opened: ClipFile, config: ClipConfig) -> Examination:
    ours = shapes_of(Clip.without_weights(config).state_dict())
    expected, held = shapes_in(opened.layout, ours), opened.checkpoint.tensors
    masks = {name: "the causal mask" for name in held if name.endswith("attn_mask")}
    what = (
        f"CLIP {config.name} in {opened.layout.value}, {config.image_size} pixels, "
        f"{config.vocab_size:,} tokens, embeddings of {config.embed_dim}"
    )
    if "visual.layer1.0.conv1.weight" in held:
        what = "CLIP with a residual network for images, which is not read here; take one with a ViT"
    elif not held.keys() & expected.keys():
        what = "no weights of a CLIP"
    examination = compare(
        "clip",
        opened.checkpoint,
        expected,
        what=what,
        ignored={**UNNEEDED, **masks},
        settings=asdict(config),
    )
    sizes = {"input_resolution": "image_size", "context_length": "context_length", "vocab_size": "vocab_size"}
    stated = {name: held[name].item() for name in sizes if name in held and held[name].numel() == 1}
    strange = contradictions(stated, {name: asdict(config)[size] for name, size in sizes.items()})
    return replace(examination, problems=(*examination.problems, *strange))


def _encoder(opened: ClipFile, config: ClipConfig, given: Path | None) -> BytePairEncoder:
    size = config.vocab_size
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
        self._network = loaded.network.to(running.device)
        self._encoder, self._truncate = loaded.encoder, truncate

    def _encode_images(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return self._network.images(inputs["pixels"])

    def _encode_captions(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return self._network.captions(inputs["tokens"])

    def _read_image(self, item: ImageItem) -> Inputs:
        return {"pixels": pixels.clip_pixels(item, self._network.config.image_size)}

    def _tokens(self, item: CaptionItem) -> Inputs:
        tokens, most = self._encoder.encode(item.text), self._network.config.context_length
        if len(tokens) > most:
            if not self._truncate:
                raise AnnotatorError(
                    f"caption {item.external_id!r} has {len(tokens)} tokens, but {self.name!r} reads {most}; "
                    "shorten it, leave it out, or set truncate = true"
                )
            tokens = np.append(tokens[: most - 1], self._encoder.end)
        return {"tokens": tokens}


def build(options: Options) -> ClipAnnotator:
    """CLIP from ``weights``, the file or folder, and the settings below.

    ``bpe``: the list of merges (default: found beside the weights or in an installed package). ``precision``:
    float32, or float16 and bfloat16, which change the embeddings. ``truncate``: whether a caption of more than 77
    tokens is cut, as CLIP's own code does only when it is asked to; otherwise it is an error (so this setting is no
    part of the fingerprint: it changes no embedding that there was without it). ``activation``:
    gelu for weights that were trained with it. ``device``, ``threads``, ``batch``.
    """
    options.only("weights", "bpe", "precision", "truncate", "activation", "device", "threads", "batch")
    precision = options.text("precision", "float32", choices=tuple(PRECISIONS))
    truncate = options.flag("truncate", False)
    activation = options.text("activation", choices=ACTIVATIONS) if "activation" in options.values else None
    path = options.path("weights")
    merges = options.path("bpe") if "bpe" in options.values else None
    running = Running.of(options, batch=BATCH, threads=os.cpu_count())
    opened = open_clip_file(path)
    loaded = _loaded(opened, merges, activation)
    mark = fingerprint(
        network="clip",
        weights=file_sha256(opened.checkpoint.path),
        config=asdict(loaded.network.config),
        merges=loaded.encoder.sha256,
        tokens=bpe.VERSION,
        pixels=pixels.VERSION,
        precision=precision,
        version=VERSION,
    )
    loaded.network.in_precision(PRECISIONS[precision])
    return ClipAnnotator(options.annotator, loaded, mark, running, truncate=truncate)
