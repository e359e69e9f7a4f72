"""Products of two blocks of vectors in float32, one class per backend, each with its own error bound.

A backend only has to be *near*: what it keeps is rescored (``mitl.retrieval.rescoring``), so a new one (a
GPU, bf16, int8) needs ``multiply`` and an honest ``input_error``, and no ranking changes by a bit.
"""

from __future__ import annotations

import sys
import time
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from mitl.errors import RetrievalError

Backend = Literal["auto", "numpy", "torch"]

_PROBE_WORK = 2e11
"""Multiply-adds from which a probe of a few milliseconds pays."""
_CLEARLY_FASTER = 1.2


class Product(Protocol):
    """Inner products of all rows of two blocks, accumulated in float32 in any order."""

    name: str
    input_error: float
    """Relative error made by rounding the inputs; 0 where they are multiplied as they are."""

    def multiply(
        self, queries: NDArray[np.float32], items: NDArray[np.float32], out: NDArray[np.float32]
    ) -> None:
        """Write the inner products of (Q, D) and (B, D) into the contiguous ``out`` (Q, B)."""
        ...


class NumpyProduct:
    """The product of numpy's BLAS."""

    name = "numpy"
    input_error = 0.0

    def multiply(
        self, queries: NDArray[np.float32], items: NDArray[np.float32], out: NDArray[np.float32]
    ) -> None:
        """Write the inner products of (Q, D) and (B, D) into ``out`` (Q, B)."""
        np.matmul(queries, items.T, out=out)


class TorchProduct:
    """The product of torch on the CPU."""

    name = "torch"

    def __init__(self) -> None:
        try:
            import torch
        except ImportError as error:
            raise RetrievalError(
                "backend 'torch' needs torch, which is not installed; use 'numpy' or install mitl[torch]"
            ) from error
        self._torch = torch
        # Below "highest", torch may round the inputs to bfloat16, which has 8 significant bits.
        exact = torch.get_float32_matmul_precision() == "highest"
        self.input_error = 0.0 if exact else 2 * 2.0**-8 + 2.0**-16

    def multiply(
        self, queries: NDArray[np.float32], items: NDArray[np.float32], out: NDArray[np.float32]
    ) -> None:
        """Write the inner products of (Q, D) and (B, D) into ``out`` (Q, B)."""
        from_numpy = self._torch.from_numpy
        # torch warns about read-only arrays, which a memory map usually is.
        left, right = (block if block.flags.writeable else block.copy() for block in (queries, items))
        self._torch.mm(from_numpy(left), from_numpy(right).T, out=from_numpy(out))


def choose_product(backend: Backend, *, work: float, width: int) -> Product:
    """The product for ``work`` multiply-adds on vectors of ``width``; torch is imported only if chosen.

    ``auto`` is numpy, unless torch is loaded anyway, the work is large and a probe shows torch clearly
    faster.

    Raises:
        RetrievalError: the backend is unknown or not installed.
    """
    if backend == "numpy":
        return NumpyProduct()
    if backend == "torch":
        return TorchProduct()
    if backend != "auto":
        raise RetrievalError(f"no top-k backend called {backend!r}; known: auto, numpy, torch")
    if work < _PROBE_WORK or "torch" not in sys.modules:
        return NumpyProduct()
    candidates: tuple[Product, Product] = (NumpyProduct(), TorchProduct())
    with_numpy, with_torch = (_probe_s(product, width) for product in candidates)
    return candidates[1] if with_torch * _CLEARLY_FASTER < with_numpy else candidates[0]


def _probe_s(product: Product, width: int) -> float:
    queries, items = np.ones((256, width), np.float32), np.ones((2048, width), np.float32)
    out = np.empty((256, 2048), np.float32)
    times = []
    for _ in range(4):
        start = time.perf_counter()
        product.multiply(queries, items, out)
        times.append(time.perf_counter() - start)
    return min(times)
