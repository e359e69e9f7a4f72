"""What ranking a data set takes on some hardware: operations, bytes, time and money, as a pure function.

Time is a sum of what is done one after the other: pictures are read and decoded, items encoded, pairs compared,
results written; each at the hardware's rate times the share of it that programs reach. It is a plan, not a promise:
rates of named hardware are public peaks, those of ``here`` were measured just before, in a few seconds and without
writing anything.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from annotators.costs import Costs
from annotators.item_encoders import usual_device

PICTURE_BYTES = 160_000
"""A COCO picture as a file, on average."""
_SIMILARITY_BYTES = 8
"""Memory traffic of an inner product in a block: written once, read once, 4 bytes each."""
_RANKED_BYTES = 16
"""An entry of a ranking file, about."""
DEPTH = 25
_SIDE = 1536
"""Of the square matrices: some 7 GFLOP a product."""
_COPIED = 1 << 27
_READ = 1 << 26
_LEAST_FILE = 1 << 20
_UNKNOWN_DISK = 5e8
"""Bytes a second, where no file is large enough to measure with."""
_PROBE_S = 0.4


@dataclass(frozen=True, slots=True)
class Hardware:
    """Rates of one machine; ``share``s say how much of them programs reach."""

    name: str
    float32: float
    """FLOP a second of a float32 matrix product."""
    low: float
    """The same in bfloat16 or another type that halves the bytes at least."""
    memory: float
    """Bytes a second."""
    disk: float
    """Bytes a second, reading."""
    pictures: float
    """Pictures decoded and scaled a second, by all cores."""
    source: str
    """Where the rates are from: measured, or whose public figures."""
    network_share: float = 0.5
    """Of the matrix product's rate, in a network's forward pass."""
    search_share: float = 0.8
    """The same in exact search, selection and rescoring included."""


@dataclass(frozen=True, slots=True)
class SearchWorkload:
    """How much is asked: all items are encoded, the queries search."""

    images: int
    captions: int
    image_queries: int
    caption_queries: int

    def __post_init__(self) -> None:
        assert self.image_queries <= self.images, "queries are some of the images"
        assert self.caption_queries <= self.captions, "queries are some of the captions"

    @property
    def compared(self) -> int:
        """Pairs that both directions compare, each searching by itself."""
        return self.image_queries * self.captions + self.caption_queries * self.images

    @property
    def distinct(self) -> int:
        """Pairs that are compared at least once."""
        return self.compared - self.image_queries * self.caption_queries

    @property
    def results(self) -> int:
        """Queries of both directions."""
        return self.image_queries + self.caption_queries


@dataclass(frozen=True, slots=True)
class AnnotatorPlan:
    """An annotator's costs and how it is run."""

    costs: Costs
    low_precision: bool = False
    """Whether its network runs in bfloat16 or float16."""
    shortlist: int | None = None
    """Pairs scored for a query where pairs are scored one by one; all by default."""


@dataclass(frozen=True, slots=True)
class ComputeEstimate:
    """What one annotator takes on one hardware."""

    encode_flop: float
    compare_flop: float
    pairs: int
    kept_bytes: int
    """Encodings, scores of pairs and rankings on disk."""
    read_bytes: int
    """Pictures, and what is kept, read once."""
    seconds: float
    cents: float | None
    """None without a price."""

    @property
    def flop(self) -> float:
        """All operations."""
        return self.encode_flop + self.compare_flop


def estimate(
    plan: AnnotatorPlan,
    work: SearchWorkload,
    hardware: Hardware,
    *,
    machines: int = 1,
    cents_per_hour: float | None = None,
) -> ComputeEstimate:
    """What one annotator takes on ``machines`` of one hardware, which share the work evenly.

    ``cents_per_hour``: of one machine.
    """
    costs = plan.costs
    pairs = _pairs(plan, work)
    encode_flop = work.images * costs.image + work.captions * costs.caption
    compare_flop = pairs * costs.pair
    kept = work.images * costs.image_bytes + work.captions * costs.caption_bytes
    kept += pairs * costs.pair_bytes + work.results * DEPTH * _RANKED_BYTES
    pictures = work.images if costs.reads_pictures else 0
    read = pictures * PICTURE_BYTES + kept
    network = (hardware.low if plan.low_precision else hardware.float32) * hardware.network_share
    seconds = pictures / hardware.pictures + read / hardware.disk + encode_flop / network
    if costs.vectors:
        rate = max(hardware.low, hardware.float32) if costs.fast_pass else hardware.float32
        product = compare_flop / (rate * hardware.search_share)
        seconds += max(product, pairs * costs.products * _SIMILARITY_BYTES / hardware.memory)
    else:
        seconds += compare_flop / network
    seconds /= machines
    cents = None if cents_per_hour is None else seconds / 3600 * machines * cents_per_hour
    return ComputeEstimate(encode_flop, compare_flop, pairs, kept, read, seconds, cents)


def total(parts: Mapping[str, ComputeEstimate]) -> ComputeEstimate:
    """All annotators, one after the other."""
    sums = {
        field.name: sum(getattr(part, field.name) for part in parts.values())
        for field in fields(ComputeEstimate)
        if field.name != "cents"
    }
    prices = [part.cents for part in parts.values()]
    return ComputeEstimate(**sums, cents=None if None in prices or not prices else sum(filter(None, prices)))


def _pairs(plan: AnnotatorPlan, work: SearchWorkload) -> int:
    """How many pairs are compared; where each is scored and kept, no pair twice."""
    if plan.costs.vectors:
        whole = (work.image_queries, work.caption_queries) == (work.images, work.captions)
        return work.distinct if whole else work.compared  # one pass serves both directions
    if plan.shortlist is None:
        return work.distinct
    image_side = work.image_queries * min(plan.shortlist, work.captions)
    caption_side = work.caption_queries * min(plan.shortlist, work.images)
    return min(image_side + caption_side, work.distinct)


_DECODED_PER_CORE = 120.0
"""Pictures a second and core; 16 cores beside a card."""

NAMED = {
    hardware.name: hardware
    for hardware in (
        Hardware("h200", 67e12, 989e12, 4.8e12, 2e9, 16 * _DECODED_PER_CORE, "NVIDIA, H200 SXM", 0.3, 0.3),
        Hardware("h100", 67e12, 989e12, 3.35e12, 2e9, 16 * _DECODED_PER_CORE, "NVIDIA, H100 SXM", 0.3, 0.3),
        Hardware(
            "a100", 19.5e12, 312e12, 2.04e12, 2e9, 16 * _DECODED_PER_CORE, "NVIDIA, A100 80GB SXM", 0.4, 0.4
        ),
        Hardware("l40s", 91.6e12, 362e12, 0.864e12, 2e9, 16 * _DECODED_PER_CORE, "NVIDIA, L40S", 0.4, 0.4),
        Hardware(
            "rtx4090", 82.6e12, 165e12, 1.008e12, 2e9, 16 * _DECODED_PER_CORE, "NVIDIA, RTX 4090", 0.4, 0.4
        ),
        Hardware("t4", 8.1e12, 65e12, 0.3e12, 5e8, 4 * _DECODED_PER_CORE, "NVIDIA, T4 (float16)", 0.4, 0.4),
    )
}
"""Public dense peaks of one card in a machine with a fast disk, and the share of them that is reached:
by ViLT and large searches as measured on an H100 and an H200, assumed for other cards."""


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

    factor = torch.from_numpy(square).to(usual_device())

    def product(matrix: torch.Tensor) -> Callable[[], None]:
        into = torch.empty_like(matrix)
        return lambda: _finished(torch.mm(matrix, matrix, out=into))

    float32 = max(with_numpy, flop / _best(product(factor), seconds))
    return float32, max(float32, flop / _best(product(factor.to(torch.bfloat16)), seconds))


def _memory(seconds: float) -> float:
    """Bytes a second of copying, read and written, in the memory that products are made from."""
    if find_spec("torch") is None:
        source = np.ones(_COPIED // 8)
        target = np.empty_like(source)
        return 2 * _COPIED / _best(lambda: np.copyto(target, source), seconds)
    import torch

    original = torch.ones(_COPIED // 8, dtype=torch.float64, device=usual_device())
    copy = torch.empty_like(original)
    return 2 * _COPIED / _best(lambda: _finished(copy.copy_(original)), seconds)


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
        with Image.open(io.BytesIO(file.getvalue())) as image:
            np.asarray(image.convert("RGB").resize((298, 224), Image.Resampling.BICUBIC))

    return 1 / _best(decode, seconds)


def _disk(files: Iterable[Path]) -> float | None:
    """Bytes a second of reading a file that the system has been asked to forget; None without a large one."""
    sizes = {path: path.stat().st_size for path in files if path.is_file()}
    path = max(sizes, key=lambda candidate: min(sizes[candidate], _READ), default=None)
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
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return []
    return list((Path(spec.origin).parent / "lib").glob("libtorch_c*.so"))
