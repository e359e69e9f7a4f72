"""ViLT for retrieval at any size: the module of ``transformers`` with the pair as it is scored here.

Source: Kim et al., ViLT: vision-and-language transformer without convolution or region supervision, ICML 2021.
``vilt_core`` is the computation; the parameters and their names are those of ``ViltForImageAndTextRetrieval``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

import torch
import transformers
from torch import Tensor, nn
from transformers import ViltForImageAndTextRetrieval

from annotators.networks.vilt_core import ViltCore

_LARGEST = 1_000_000


@dataclass(frozen=True, slots=True)
class ViltConfig:
    """Sizes under their names on the hub; the defaults are those of the released COCO weights."""

    vocab_size: int = 30_522
    """Word pieces."""
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    image_size: int = 384
    """The shorter side of an image, and the side of the square that positions were learnt on; pixels."""
    patch_size: int = 32
    max_position_embeddings: int = 40
    """Word pieces of a caption, [CLS] and [SEP] included; longer ones are cut."""
    modality_type_vocab_size: int = 2
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-6
    """Of the transformer's norms: 1e-6 in the authors' network, 1e-12 in the port on the hub."""
    text_layer_norm_eps: float = 1e-12
    """Of the norm of the word embeddings, BERT's own."""

    def __post_init__(self) -> None:
        sizes = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, size in sizes.items():
            if name.endswith("eps"):
                if not isinstance(size, float | int) or not 0 < size < 1:
                    raise ValueError(f"{name} is {size!r}; it should be a small positive number")
            elif not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= _LARGEST:
                raise ValueError(f"{name} is {size!r}; it should be a whole number from 1 to {_LARGEST}")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is no multiple of {self.num_attention_heads} attention heads"
            )
        if self.image_size % self.patch_size:
            raise ValueError(f"image_size {self.image_size} is no multiple of patches of {self.patch_size}")
        if self.max_position_embeddings < 2:
            raise ValueError("max_position_embeddings leaves no room for [CLS] and [SEP]")

    @property
    def grid(self) -> int:
        """Patches along the shorter side of an image."""
        return self.image_size // self.patch_size

    @property
    def most_image_tokens(self) -> int:
        """Patches of the longest image that preprocessing lets through, and the class token."""
        return self.grid * (int(1333 / 800 * self.image_size) // self.patch_size) + 1

    def to_json(self) -> str:
        """As ``from_json`` reads it."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> ViltConfig:
        """The configuration in a weights file of ours; ValueError or TypeError where it is none."""
        return cls(**json.loads(text))

    @classmethod
    def from_hub(cls, stated: Mapping[str, object]) -> ViltConfig:
        """The configuration in a ``config.json`` of the hub, whose port has one epsilon for all norms.

        What the file leaves out is as in ``transformers``.

        Raises:
            ValueError: it is of another kind of network, or asks for what is not computed here.
        """
        if stated.get("model_type", "vilt") != "vilt":
            raise ValueError(f"model_type is {stated['model_type']!r}; it should be 'vilt'")
        for key, right in (
            ("hidden_act", "gelu"),
            ("qkv_bias", True),
            ("num_channels", 3),
            ("max_image_length", -1),
        ):
            if stated.get(key, right) != right:
                raise ValueError(f"{key} is {stated[key]!r}; known is {right!r}")
        eps = stated.get("layer_norm_eps", 1e-12)
        known = {field.name for field in fields(cls)} - {"layer_norm_eps", "text_layer_norm_eps"}
        sizes = {name: value for name, value in stated.items() if name in known}
        return cls(**sizes, layer_norm_eps=eps, text_layer_norm_eps=eps)  # type: ignore[arg-type]  # checked there

    def for_transformers(self) -> transformers.ViltConfig:
        """The same for ``transformers``, which knows one epsilon."""
        sizes = asdict(self)
        del sizes["text_layer_norm_eps"]
        return transformers.ViltConfig(**sizes, max_image_length=-1)


class Vilt(ViltForImageAndTextRetrieval):  # type: ignore[no-untyped-call]  # of transformers' __init_subclass__
    """The port's module, whose ``images``, ``captions`` and ``score`` encode each item once and are differentiable."""

    def __init__(self, config: ViltConfig) -> None:
        super().__init__(config.for_transformers())
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
