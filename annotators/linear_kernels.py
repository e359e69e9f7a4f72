"""Affine maps and softmaxes on the kernels that are fastest where they run.

torch multiplies float32 matrices on the CPU with MKL, which takes narrow vectors on processors that are not Intel's.
Its oneDNN kernels use the widest ones on all of them, read weights that were laid out for them beforehand and apply a
GELU while the product is in registers. They know no gradients: training takes ``PlainLinear``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

MakeLinear = Callable[[Tensor, Tensor], "Linear"]
"""Weight (O, D) and bias (O,) to a map."""


class Linear(Protocol):
    """x W^T + b over the last axis of x (..., D)."""

    def __call__(self, x: Tensor) -> Tensor:
        """(..., O)."""
        ...

    def gelu(self, x: Tensor) -> Tensor:
        """The exact GELU (with erf, not tanh) of it."""
        ...


class PlainLinear:
    """torch's own kernels: differentiable, on any device."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self._weight, self._bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        """(..., O)."""
        return F.linear(x, self._weight, self._bias)

    def gelu(self, x: Tensor) -> Tensor:
        """The exact GELU of it."""
        return F.gelu(self(x))


class OneDnnLinear:
    """oneDNN's kernels on a weight in their own layout: CPU, float32 or bfloat16, no gradients."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        ops = torch.ops.mkldnn
        self._weight: Tensor = ops._reorder_linear_weight(weight.detach().contiguous(), None)
        self._bias = bias.detach()

    def __call__(self, x: Tensor) -> Tensor:
        """(..., O)."""
        return self._map(x, "none")

    def gelu(self, x: Tensor) -> Tensor:
        """The exact GELU of it."""
        return self._map(x, "gelu")

    def _map(self, x: Tensor, then: str) -> Tensor:
        mapped: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, then, [], "none")
        return mapped


@cache
def fastest_linear(dtype: torch.dtype, device: torch.device) -> MakeLinear:
    """Which kernels a network should use for inference: oneDNN's on the CPU, where they are there.

    Another kernel sums in another order, so no stopwatch decides: workers on machines of one kind give the same bits.
    """
    if device.type != "cpu" or dtype not in (torch.float32, torch.bfloat16) or not _has_onednn(dtype):
        return PlainLinear
    return OneDnnLinear


def _has_onednn(dtype: torch.dtype) -> bool:
    """Whether this torch has the operators and they compute what they should: they are not part of its interface."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]  # torch's
        return False
    x = torch.linspace(-1, 1, 12).view(3, 4).to(dtype)
    weight, bias = torch.linspace(-1, 1, 8).view(2, 4).to(dtype), torch.tensor([0.5, -0.25], dtype=dtype)
    plain, near = PlainLinear(weight, bias), 1e-6 if dtype == torch.float32 else 0.05
    try:
        with torch.inference_mode():
            packed = OneDnnLinear(weight, bias)
            pairs = (
                (packed(x), plain(x)),
                (packed.gelu(x), plain.gelu(x)),
                (x.to_mkldnn().softmax(-1).to_dense(), x.softmax(-1)),
            )
            return all(bool((a.float() - b.float()).abs().max() <= near) for a, b in pairs)
    except (AttributeError, NotImplementedError, RuntimeError):
        return False


def has_tiles() -> bool:
    """Whether torch multiplies on the tiles of AMX here."""
    return bool(getattr(torch.cpu, "_is_amx_tile_supported", bool)())


def softmax(x: Tensor) -> Tensor:
    """Over the last axis; oneDNN's takes half the time that torch's takes of bfloat16, copies included (measured)."""
    if fastest_linear(x.dtype, x.device) is PlainLinear:
        return x.softmax(-1)
    return x.to_mkldnn().softmax(-1).to_dense()
