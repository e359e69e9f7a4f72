"""Rates of this machine, measured in a few seconds and without writing anything."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from mitl.retrieval.estimates import Hardware

_SIDE = 1536
"""Of the square matrices: some 7 GFLOP a product."""
_COPIED = 1 << 27
_READ = 1 << 26
_LEAST_FILE = 1 << 20
_UNKNOWN_DISK = 5e8
"""Bytes a second, where no file is large enough to measure with."""
_PROBE_S = 0.4


def here(files: Iterable[Path] = (), *, seconds: float = _PROBE_S) -> Hardware:
    """This machine: matrix products in float32 and bfloat16, memory, disk, and decoding of pictures.

    Args:
        files: candidates for measuring the disk, the largest of which is read; torch's own library is one more.
        seconds: how long each rate is measured.
    """
    disk = _disk([*files, *_installed()])  # before torch is loaded, whose library must not be in use
    float32, low = _products(seconds)
    cores = os.cpu_count() or 1
    said = "measured now" if disk else "measured now; disk assumed"
    return Hardware(
        "here",
        float32,
        low,
        _memory(seconds),
        disk or _UNKNOWN_DISK,
        cores * _pictures(seconds),
        said,
    )


def _best(work: Callable[[], Any], seconds: float) -> float:
    """The least time of one call, in seconds, over calls for so long; at least two."""
    best, calls, end = float("inf"), 0, time.perf_counter() + seconds
    while calls < 2 or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        best, calls = min(best, time.perf_counter() - start), calls + 1
    return best


def _products(seconds: float) -> tuple[float, float]:
    """FLOP a second in float32, by the fastest of numpy and torch, and in bfloat16 where that is faster."""
    flop = 2.0 * _SIDE**3
    square = np.random.default_rng(0).random((_SIDE, _SIDE), np.float32)
    out = np.empty_like(square)
    with_numpy = flop / _best(lambda: np.matmul(square, square, out=out), seconds)
    if find_spec("torch") is None:
        return with_numpy, with_numpy
    import torch

    given = torch.from_numpy(square).to(_device())

    def product(matrix: torch.Tensor) -> Callable[[], None]:
        into = torch.empty_like(matrix)
        return lambda: _finished(torch.mm(matrix, matrix, out=into))

    float32 = max(with_numpy, flop / _best(product(given), seconds))
    return float32, max(float32, flop / _best(product(given.to(torch.bfloat16)), seconds))


def _memory(seconds: float) -> float:
    """Bytes a second of copying, read and written, in the memory that products are made from."""
    if find_spec("torch") is None:
        source = np.ones(_COPIED // 8)
        target = np.empty_like(source)
        return 2 * _COPIED / _best(lambda: np.copyto(target, source), seconds)
    import torch

    given = torch.ones(_COPIED // 8, dtype=torch.float64, device=_device())
    copy = torch.empty_like(given)
    return 2 * _COPIED / _best(lambda: _finished(copy.copy_(given)), seconds)


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _finished(computed: Any) -> None:
    """Wait for what a card was asked."""
    if computed.is_cuda:
        import torch

        torch.cuda.synchronize()


def _pictures(seconds: float) -> float:
    """Pictures of 640 x 480 decoded and scaled to 224 a second, by one core."""
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 255, (60, 80, 3), np.uint8)
    picture = Image.fromarray(noise).resize((640, 480), Image.Resampling.BICUBIC)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=90)

    def decode() -> None:
        with Image.open(io.BytesIO(file.getvalue())) as found:
            np.asarray(found.convert("RGB").resize((298, 224), Image.Resampling.BICUBIC))

    return 1 / _best(decode, seconds)


def _disk(files: Iterable[Path]) -> float | None:
    """Bytes a second of reading a file that the system has been asked to forget; None without a large one."""
    sizes = {path: path.stat().st_size for path in files if path.is_file()}
    path = max(sizes, key=lambda one: min(sizes[one], _READ), default=None)
    if path is None or sizes[path] < _LEAST_FILE:
        return None
    with path.open("rb", buffering=0) as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        start, got = time.perf_counter(), 0
        while got < _READ and (block := file.read(1 << 22)):
            got += len(block)
        return got / (time.perf_counter() - start)


def _installed() -> list[Path]:
    found = find_spec("torch")
    if found is None or found.origin is None:
        return []
    return list((Path(found.origin).parent / "lib").glob("libtorch_c*.so"))
