"""VSRN checkpoints from the key lists of its authors with weights by a rule, and VSRN computed step by step."""

from __future__ import annotations

import argparse
import math
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from annotators.inputs.vocabularies import SPECIALS, Vocabulary

SMALL = {"words": 23, "word_width": 7, "region_width": 10, "width": 12}
FULL = {"words": 10_006, "word_width": 300, "region_width": 2048, "width": 2048}
VOCABULARY = Vocabulary(
    (*SPECIALS, *"a the man dog cat horse street red green two riding on of 's n't . , is tree".split())  # noqa: SIM905
)

Shapes = dict[str, tuple[int, ...]]
State = dict[str, Tensor]


def norm_shapes(name: str, width: int) -> Shapes:
    """The entries of a batch norm."""
    shapes: Shapes = {
        f"{name}.{part}": (width,) for part in ("weight", "bias", "running_mean", "running_var")
    }
    return {**shapes, f"{name}.num_batches_tracked": ()}


def gru_shapes(name: str, inside: int, width: int) -> Shapes:
    """The entries of a one-layer GRU."""
    return {
        f"{name}.weight_ih_l0": (3 * width, inside),
        f"{name}.weight_hh_l0": (3 * width, width),
        f"{name}.bias_ih_l0": (3 * width,),
        f"{name}.bias_hh_l0": (3 * width,),
    }


def image_shapes(region_width: int, width: int, *, flickr: bool = False, **_: int) -> Shapes:
    """The image encoder's state dict."""
    shapes: Shapes = {"fc.weight": (width, region_width), "fc.bias": (width,)}
    shapes |= gru_shapes("img_rnn", width, width)
    for block in range(1, 5):
        for part in ("g", "W.0", "theta", "phi"):
            shapes |= {
                f"Rs_GCN_{block}.{part}.weight": (width, width, 1),
                f"Rs_GCN_{block}.{part}.bias": (width,),
            }
        shapes |= norm_shapes(f"Rs_GCN_{block}.W.1", width)
    return shapes | (norm_shapes("bn", width) if flickr else {})


def text_shapes(words: int, word_width: int, width: int, **_: int) -> Shapes:
    """The text encoder's state dict."""
    return {"embed.weight": (words, word_width), **gru_shapes("rnn", word_width, width)}


_WAVE = torch.sin(torch.arange(10_007, dtype=torch.float64) ** 1.3).float()


def by_rule(name: str, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """Numbers that anybody can make again, of a size that keeps the network from saturating."""
    if name.endswith("num_batches_tracked"):
        return torch.tensor(1000 + seed)
    start, count = zlib.crc32(f"{seed}:{name}".encode()) % len(_WAVE), math.prod(shape)
    wave = _WAVE.roll(-start).repeat(count // len(_WAVE) + 1)[:count]
    if name.endswith("running_var"):
        wave = 1 + 0.5 * wave
    elif len(shape) > 1:
        wave = wave / math.sqrt(math.prod(shape[1:]))
    elif "W.1" in name:
        wave = wave / 10  # a block is of third order in what it is given
    return wave.view(shape)


def states(sizes: Mapping[str, int] = SMALL, *, flickr: bool = False, seed: int = 0) -> list[State]:
    """[image encoder, text encoder] as in a checkpoint."""
    both = (image_shapes(**sizes, flickr=flickr), text_shapes(**sizes))
    return [OrderedDict((name, by_rule(name, shape, seed)) for name, shape in one.items()) for one in both]


def checkpoint(model: list[State], **options: Any) -> dict[str, Any]:
    """What the training script saves."""
    shapes = {name.removeprefix("module."): tensor.shape for part in model for name, tensor in part.items()}
    (width, img_dim), word_dim = shapes["fc.weight"], shapes["embed.weight"][1]
    opt = {
        "data_name": "coco_precomp", "embed_size": width, "img_dim": img_dim, "word_dim": word_dim, "num_layers": 1,
        "no_imgnorm": False, "use_abs": False, "measure": "cosine", "max_len": 60, "vocab_path": "./vocab/",
    }  # fmt: skip
    return {
        "epoch": 12,
        "model": model,
        "best_rsum": 413.25,
        "opt": argparse.Namespace(**{**opt, **options}),
        "Eiters": 56_650,
    }


def saved(path: Path, model: list[State] | None = None, **options: Any) -> Path:
    """A checkpoint in torch 0.4's serialisation."""
    torch.save(checkpoint(model or states(), **options), path, _use_new_zipfile_serialization=False)
    return path


# VSRN step by step, in float64


def unit(x: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    return x / np.sqrt((x**2).sum(axis, keepdims=True))


def gru(state: State, name: str, inputs: NDArray[np.float64]) -> NDArray[np.float64]:
    """The last state of a GRU over (L, inside)."""
    w_i, w_h, b_i, b_h = (
        state[f"{name}.{part}_l0"].double().numpy()
        for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    h = np.zeros(w_h.shape[1])
    for x in inputs:
        r_i, z_i, n_i = np.split(w_i @ x + b_i, 3)
        r_h, z_h, n_h = np.split(w_h @ h + b_h, 3)
        r, z = 1 / (1 + np.exp(-(r_i + r_h))), 1 / (1 + np.exp(-(z_i + z_h)))
        h = (1 - z) * np.tanh(n_i + r * n_h) + z * h
    return h


def norm(state: State, name: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """A batch norm with its running statistics."""
    scale, shift, mean, variance = (
        state[f"{name}.{part}"].double().numpy() for part in ("weight", "bias", "running_mean", "running_var")
    )
    return (x - mean) / np.sqrt(variance + 1e-5) * scale + shift


def image_embedding(
    state: State, regions: NDArray[Any], *, flickr: bool = False, axis: int = 0
) -> NDArray[np.float64]:
    """(D,) of the regions (N, region_width) of one image; the authors normalise over axis 0, the regions."""

    def linear(name: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
        weight = state[f"{name}.weight"].double().numpy()
        return x @ weight.reshape(weight.shape[0], -1).T + state[f"{name}.bias"].double().numpy()

    x = linear("fc", regions.astype(np.float64))
    x = x if flickr else unit(x, axis)
    for block in (f"Rs_GCN_{number}" for number in range(1, 5)):
        affinity = linear(f"{block}.theta", x) @ linear(f"{block}.phi", x).T / len(x)
        x = x + norm(state, f"{block}.W.1", linear(f"{block}.W.0", affinity @ linear(f"{block}.g", x)))
    last = gru(state, "img_rnn", unit(x, axis))
    return unit(norm(state, "bn", last) if flickr else last, 0)


def caption_embedding(state: State, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """(D,) of the tokens (L,) of one caption."""
    return unit(gru(state, "rnn", state["embed.weight"].double().numpy()[tokens]), 0)
