"""The sizes of a CLIP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mitl.errors import AnnotatorError

if TYPE_CHECKING:
    from transformers import CLIPConfig

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
        from transformers import CLIPConfig

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
    known = {field.name for field in fields(ClipConfig)}
    for name, value in sizes.items():
        if name not in known:
            raise _wrong(path, f"an unknown size {name!r}")
        if name == "activation":
            if value not in ACTIVATIONS:
                raise _wrong(path, f"the activation {value!r}; known: {', '.join(ACTIVATIONS)}")
        elif not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST:
            raise _wrong(path, f"{name} {value!r}; it should be a number from 1 to {LARGEST}")
    config = ClipConfig(**sizes)
    for width, heads in ((config.vision_width, config.vision_heads), (config.text_width, config.text_heads)):
        if width % heads:
            raise _wrong(path, f"a width of {width} for {heads} heads, which do not divide it")
    if config.image_size % config.patch_size:
        raise _wrong(path, f"images of {config.image_size} pixels for patches of {config.patch_size}")
    return config


def _wrong(path: Path, what: str) -> AnnotatorError:
    return AnnotatorError(f"{str(path)!r} describes no CLIP: it has {what}")
