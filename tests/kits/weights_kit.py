"""Small weights files of the five networks, for tests that care about files and not about numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

SPECIALS = ("<pad>", "<start>", "<end>", "<unk>")
PIECES = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "a",
    "the",
    "red",
    "blue",
    "green",
    "circle",
    "square",
    "on",
    ".",
)
WORDS = (*SPECIALS, "a", "the", "red", "blue", "green", "circle", "square", "triangle", "left", "right")


def write_ours(
    path: Path,
    network: str,
    module: nn.Module,
    config: Any,
    extra: Mapping[str, torch.Tensor] | None = None,
    **metadata: str,
) -> Path:
    """A network with its sizes in our own layout; ``extra`` tensors go beside its own."""
    stated = config.to_json() if hasattr(config, "to_json") else json.dumps(asdict(config))
    tensors = {name: tensor.contiguous() for name, tensor in module.state_dict().items()} | dict(extra or {})
    save_file(tensors, path, {"format": "mitl-annotator-1", "network": network, "config": stated, **metadata})
    return path


def small_pvse(k: int = 2, words: int = len(WORDS)) -> tuple[nn.Module, Any]:
    """A PVSE of few numbers over pictures of 64 pixels."""
    from annotators.pvse import Pvse
    from annotators.sizes import PvseConfig

    config = PvseConfig(words=words, word=8, embed=8, blocks=(1, 1, 1, 1), width=4, image_size=64, k=k)
    torch.manual_seed(0)
    return Pvse(config), config


def small_clip() -> tuple[nn.Module, Any]:
    """A CLIP of few numbers that reads bytes, 80 of them."""
    from annotators.clip import Clip
    from annotators.sizes import ClipConfig

    side = {"layers": 1, "heads": 2, "width": 16, "mlp": 32}
    sizes = {f"{name}_{key}": value for name in ("vision", "text") for key, value in side.items()}
    config = ClipConfig(embed_dim=8, image_size=64, patch_size=32, context_length=80, vocab_size=514, **sizes)
    torch.manual_seed(0)
    return Clip(config), config


def small_vsrn() -> tuple[nn.Module, Any]:
    """A VSRN of few numbers over four regions."""
    from annotators.sizes import VsrnConfig
    from annotators.vsrn import Vsrn

    config = VsrnConfig(words=len(WORDS), word_width=6, region_width=8, width=8, blocks=1, regions=4)
    torch.manual_seed(0)
    return Vsrn(config), config


def small_pcme() -> tuple[nn.Module, Any]:
    """A PCME of few numbers over pictures of 64 pixels; its criterion goes beside it in a file of ours."""
    from annotators.pcme import Pcme
    from annotators.sizes import PcmeConfig

    config = PcmeConfig(words=len(WORDS), word=8, embed=8, blocks=(1, 1, 1, 1), width=4, image_size=64)
    torch.manual_seed(0)
    return Pcme(config), config


def small_vilt() -> tuple[nn.Module, Any]:
    """A ViLT of few numbers over pictures of 64 pixels and 14 word pieces."""
    from annotators.sizes import ViltConfig
    from annotators.vilt import Vilt

    config = ViltConfig(
        vocab_size=len(PIECES),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=64,
        patch_size=32,
    )
    torch.manual_seed(0)
    return Vilt(config), config


SMALL = {
    "pvse": (small_pvse, {"vocabulary": "\n".join(WORDS)}),
    "vsrn": (small_vsrn, {"vocabulary": "\n".join(WORDS)}),
    "pcme": (small_pcme, {"vocabulary": "\n".join(WORDS)}),
    "vilt": (small_vilt, {"wordpieces": "\n".join(PIECES)}),
    "clip": (small_clip, {"bpe_merges": ""}),
}
"""Of each network: what makes a small one, and what its file brings besides weights."""


def write_small(folder: Path, network: str) -> Path:
    """A small network as a file of ours, complete: it needs no other file to read captions."""
    make, metadata = SMALL[network]
    module, config = make()
    path = folder / f"small-{network}.safetensors"
    extra = {}
    if network == "pcme":
        extra = {f"criterion.{name}": torch.full((1,), 5.0) for name in ("shift", "negative_scale")}
    return write_ours(path, network, module, config, extra, **metadata)


def write_vocabulary(path: Path, words: tuple[str, ...] = WORDS) -> Path:
    """A word a line."""
    path.write_text("\n".join(words) + "\n")
    return path


def write_flat(path: Path, module: nn.Module, wrap: Mapping[str, object] | None = None) -> Path:
    """A state dict as torch.save writes it, alone or as ``model`` beside other entries."""
    state = module.state_dict()
    torch.save(state if wrap is None else {"model": state, **wrap}, path)
    return path


def full_size(network: str) -> nn.Module:
    """A network of the released sizes whose weights are zeros of half precision, made without drawing any."""
    assert network == "pvse"
    from annotators.pvse import Pvse
    from annotators.sizes import PvseConfig

    with torch.device("meta"):
        module = Pvse(PvseConfig())
    return module.half().to_empty(device="cpu").apply(_zeros)


def _zeros(module: nn.Module) -> None:
    for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
        tensor.data.zero_()
