"""Weights of a small network in a safetensors file, with all that is needed to build it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from annotators.minis.clip import ClipMini
from annotators.minis.network import MiniNetwork
from annotators.minis.pcme import PcmeMini
from annotators.minis.pvse import PvseMini
from annotators.minis.vilt import ViltMini
from annotators.minis.vocabulary import Vocabulary
from annotators.minis.vsrn import VsrnMini
from mitl.errors import AnnotatorError

FORMAT = "mitl-mini-1"
NETWORKS: dict[str, type[MiniNetwork]] = {
    "pvse-mini": PvseMini,
    "vsrn-mini": VsrnMini,
    "pcme-mini": PcmeMini,
    "vilt-mini": ViltMini,
    "clip-mini": ClipMini,
}


@dataclass(frozen=True, slots=True)
class Trained:
    """A network in evaluation mode with its vocabulary."""

    network: MiniNetwork
    vocabulary: Vocabulary


def save(path: Path, name: str, trained: Trained, training: Mapping[str, Any]) -> None:
    """Write the weights as float16, with the network's name, the vocabulary and what is said of its training."""
    tensors = {
        key: value.detach().cpu().to(torch.float16 if value.is_floating_point() else value.dtype).contiguous()
        for key, value in trained.network.state_dict().items()
    }
    metadata = {
        "format": FORMAT,
        "network": name,
        "vocabulary": " ".join(trained.vocabulary.words),
        "training": json.dumps(dict(training), sort_keys=True),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata)
    # safetensors leaves the file to its owner alone, but others install the package.
    path.chmod(0o644)


def load(path: Path, name: str) -> Trained:
    """The network in float32, ready to encode; AnnotatorError where the file is not this network's."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = cast("dict[str, str]", file.metadata() or {})
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError) as error:
        raise AnnotatorError(f"{str(path)!r} is not readable as safetensors: {error}") from error
    if metadata.get("format") != FORMAT or metadata.get("network") != name:
        found = f"{metadata.get('format')!r} weights of {metadata.get('network')!r}"
        raise AnnotatorError(f"{str(path)!r} holds {found}; {name!r} needs its own in the format {FORMAT!r}")
    vocabulary = Vocabulary(metadata["vocabulary"].split())
    network = NETWORKS[name](len(vocabulary))
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        first = str(error).splitlines()[-1].strip()
        raise AnnotatorError(f"the weights in {str(path)!r} do not fit {name!r}: {first}") from error
    return Trained(network.eval(), vocabulary)
