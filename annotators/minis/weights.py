"""A trained twin as a weights file that the full-size network's own code loads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from annotators.checkpoints.checkpoint import OURS
from annotators.minis.twin import Twin


def save(path: Path, twin: Twin[Any], training: Mapping[str, Any]) -> None:
    """Write the tensors as float16, with the sizes, the words and what is said of the training."""
    tensors = {
        name: tensor.detach()
        .cpu()
        .to(torch.float16 if tensor.is_floating_point() else tensor.dtype)
        .contiguous()
        for name, tensor in twin.state().items()
    }
    metadata = {
        "format": OURS,
        "network": twin.network_name,
        "training": json.dumps(dict(training), sort_keys=True),
        **twin.metadata(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata)
    # safetensors leaves the file to its owner alone, but others install the package.
    path.chmod(0o644)
