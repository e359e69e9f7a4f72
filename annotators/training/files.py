"""Weights of a trained annotator on disk, and what the file says of those who taught it.

Written are the same bytes for the same weights: safetensors' own writer puts the metadata in an order that changes from
process to process, and an annotator's fingerprint is that of its file.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from annotators.checkpoints.checkpoint import OURS
from mitl.core.whole_files import whole_file
from mitl.errors import AnnotatorError

TAUGHT = "taught"
"""Key of the metadata: Parquet as base64 of ``TAUGHT_PAIRS``."""
TRAINING = "training"
"""Key of the metadata: JSON of name, base, answers and recipe."""
TAUGHT_PAIRS = {"image": "str", "caption": "str", "answers": "int32"}
"""The data set's own ids of a pair that taught, and how many of people's answers on it did; 0 for an original pair."""

_TYPES = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def write_weights(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file of ours, whole or not at all.

    Args:
        metadata: ``network``, ``config`` and whatever else its network reads, beside the ``format``.

    Raises:
        OSError: the disk is full, or the place cannot be written.
    """
    header: dict[str, Any] = {"__metadata__": dict(sorted({"format": OURS, **metadata}.items()))}
    kept, end = [], 0
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
        kept.append(tensor)
    said = json.dumps(header, separators=(",", ":")).encode()
    said += b" " * (-len(said) % 8)
    with whole_file(path) as sink:
        sink.write(len(said).to_bytes(8, "little") + said)
        for tensor in kept:
            sink.write(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())


def packed_pairs(pairs: pd.DataFrame) -> str:
    """``TAUGHT_PAIRS`` as a text for the metadata."""
    written = io.BytesIO()
    pairs[list(TAUGHT_PAIRS)].astype(TAUGHT_PAIRS).to_parquet(written, index=False, compression="zstd")
    return base64.b64encode(written.getvalue()).decode()


def metadata_of(path: Path) -> dict[str, str]:
    """What a safetensors file says beside its tensors, which are not read; AnnotatorError where it is none."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except (OSError, SafetensorError, ValueError) as error:
        raise AnnotatorError(f"{str(path)!r} is not readable as safetensors: {error}") from error


def training_of(path: Path) -> Mapping[str, Any]:
    """What a weights file says of its training: ``name``, ``base``, ``recipe``, ``answers_sha256``; empty for others.

    Raises:
        AnnotatorError: it is not a safetensors file, or what it says of its training is damaged.
    """
    try:
        said = json.loads(metadata_of(path).get(TRAINING, "{}"))
    except (ValueError, RecursionError) as error:
        raise AnnotatorError(f"what {str(path)!r} says of its training is not readable: {error}") from error
    return said if isinstance(said, dict) and "base" in said else {}


def taught_pairs_of(path: Path) -> pd.DataFrame:
    """The pairs that taught the weights of a file (``TAUGHT_PAIRS``), by the data set's own ids; none for others.

    A training on weights that were trained here adds its pairs to theirs.

    Raises:
        AnnotatorError: it is not a safetensors file, or what it says of its pairs is damaged.
    """
    said = metadata_of(path).get(TAUGHT)
    if said is None:
        return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in TAUGHT_PAIRS.items()})
    try:
        pairs = pd.read_parquet(io.BytesIO(base64.b64decode(said, validate=True)))
        return pairs[list(TAUGHT_PAIRS)].astype(TAUGHT_PAIRS)
    except (ValueError, KeyError, OSError) as error:
        raise AnnotatorError(f"the pairs that taught {str(path)!r} are not readable: {error}") from error


def joined_pairs(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Both ``TAUGHT_PAIRS``, each pair once with the most answers, by image and caption."""
    both = pd.concat([one, other], ignore_index=True)
    once = both.groupby(["image", "caption"], sort=True).agg(answers=("answers", "max")).reset_index()
    return once.astype(TAUGHT_PAIRS)
