"""What the benchmarks of the search share: embeddings, the machine's own products, faiss apart, peak memory apart."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from annotators.base import Encoded
from mitl.records import AnnotatorKind

Work = Callable[[], object]

PRODUCT_COLUMNS = 8192
"""The machine's products are timed by blocks of so many items, so that writing the results costs no page faults."""
CORE_TYPES = ("", "SkylakeX", "Haswell", "Zen", "Sandybridge")
"""What faiss's OpenBLAS is told the processor is; the fastest is taken. Nothing: its own guess."""
_LAGGARD = 1.25
_MIB = 1 << 20


class Space:
    """Stands for an annotator of vectors."""

    name = "bench"
    fingerprint = "bench"

    def __init__(self, *, several: bool = False) -> None:
        self.kind = AnnotatorKind.MULTI_VECTOR if several else AnnotatorKind.INNER_PRODUCT


def unit_vectors(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Random unit vectors, made in place."""
    rng = np.random.default_rng(seed)
    array = np.empty(shape, np.float32)
    for start in range(0, len(array), 1 << 14):
        part = array[start : start + (1 << 14)]
        rng.standard_normal(part.shape, np.float32, out=part)
        part /= np.sqrt(np.vecdot(part, part))[..., None]
    return array


def encoded(array: np.ndarray, modality: str) -> Encoded:
    """Items numbered from 0."""
    return Encoded(modality, np.arange(len(array)), {"embedding": array})


def products(queries: np.ndarray, gallery: np.ndarray) -> dict[str, Work]:
    """The machine's float32 products of all pairs, by name, and its product of as many 8-bit integers."""
    out = np.empty((len(queries), min(PRODUCT_COLUMNS, len(gallery))), np.float32)

    def blocks() -> list[tuple[slice, np.ndarray]]:
        starts = range(0, len(gallery), PRODUCT_COLUMNS)
        ends = [min(start + PRODUCT_COLUMNS, len(gallery)) for start in starts]
        sizes = zip(starts, ends, strict=True)
        return [
            (slice(start, end), out.reshape(-1)[: len(queries) * (end - start)].reshape(len(queries), -1))
            for start, end in sizes
        ]

    def by_numpy() -> None:
        for part, here in blocks():
            np.matmul(queries, gallery[part].T, out=here)

    found: dict[str, Work] = {"limit: fp32 product, numpy": by_numpy}
    try:
        import torch
    except ImportError:
        print("torch is not installed: its rows are left out")
        return found
    left, right = torch.from_numpy(queries), torch.from_numpy(gallery)

    def by_mm() -> None:
        for part, here in blocks():
            torch.mm(left, right[part].T, out=torch.from_numpy(here))

    def by_linear() -> None:
        for part, _ in blocks():
            torch.nn.functional.linear(left, right[part])

    found |= {"limit: fp32 product, torch mm": by_mm, "limit: fp32 product, torch linear": by_linear}
    if not hasattr(torch, "_int_mm"):
        return found
    rng = np.random.default_rng(0)
    bytes_ = [torch.from_numpy(rng.integers(-127, 128, side.shape, np.int8)) for side in (queries, gallery)]
    sums = torch.empty(out.size, dtype=torch.int32)

    def by_bytes() -> None:
        for part, here in blocks():
            torch._int_mm(bytes_[0], bytes_[1][part].T, out=sums[: here.size].view(here.shape))

    return found | {"peak: 8-bit product, torch": by_bytes}


def contest(timed: Mapping[str, Callable[[], float]], runs: int) -> dict[str, list[float]]:
    """Seconds of each contestant in interleaved rounds; a product clearly slower than another sits the rest out.

    Each round has an order of its own: a library's threads may keep the cores busy for a while after its turn.
    """
    times: dict[str, list[float]] = {name: [] for name in timed}
    orders, names = np.random.default_rng(0), list(timed)
    for number in range(runs):
        limits = [min(seen) for name, seen in times.items() if name.startswith("limit") and seen]
        for place in orders.permutation(len(names)) if number else range(len(names)):
            name = names[place]
            if number and name.startswith("limit") and min(times[name]) > _LAGGARD * min(limits):
                continue
            times[name].append(timed[name]())
    return times


def clocked(work: Work, clock: Callable[[], float] = time.perf_counter) -> Callable[[], float]:
    """``work`` as something that gives its seconds."""

    def run() -> float:
        start = clock()
        work()
        return clock() - start

    return run


def print_times(title: str, times: Mapping[str, Sequence[float]], flop: float) -> None:
    """A table: the best seconds, the share of the machine's best product and of its 8-bit one, and against ours."""
    best = {name: min(seen) for name, seen in times.items()}
    limit = min(seconds for name, seconds in best.items() if name.startswith("limit"))
    ours = next((best[name] for name in best if name.startswith("mitl")), limit)
    peak = min((seconds for name, seconds in best.items() if name.startswith("peak")), default=float("nan"))
    print(f"\n{title}; the best product {flop / limit / 1e9:,.0f} GFLOP/s")
    print(f"{'':44}{'seconds':>10}{'median':>10}{'limit /':>9}{'8-bit /':>9}{'/ ours':>9}")
    for name, seen in times.items():
        print(
            f"{name:44}{best[name]:10.4f}{np.median(seen):10.4f}"
            f"{limit / best[name]:9.2f}{peak / best[name]:9.2f}{best[name] / ours:9.2f}"
        )


def describe_machine() -> None:
    """Print processor, cores and BLAS kernels: without them a ratio to the product says little."""
    model = [line for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"{model[0].split(':')[1].strip() if model else 'unknown processor'}, {cores} cores")
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        print("threadpoolctl is not installed: BLAS kernels unknown")
        return
    for pool in threadpool_info():
        if pool["user_api"] == "blas":
            kernel = pool.get("architecture", "unknown")
            count = pool["num_threads"]
            print(f"BLAS {pool['internal_api']} {pool['version']}, kernel {kernel}, {count} threads")


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


class FaissApart:
    """faiss's flat index in a process of its own, whose BLAS was told the right processor before it was loaded."""

    def __init__(self, core_type: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
        if core_type:
            environment["OPENBLAS_CORETYPE"] = core_type
        self._process = subprocess.Popen(
            [sys.executable, __file__, "faiss"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **question: Any) -> Any:
        """The answer of the other process; EOFError where it has died."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        if not (answer := self._process.stdout.readline()):
            raise EOFError(f"the process of faiss ended with {self._process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        """End the other process."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def fastest_faiss() -> FaissApart | None:
    """faiss with the kernel that multiplies fastest here; None where it is not installed."""
    import importlib.util

    if importlib.util.find_spec("faiss") is None:
        print("faiss is not installed: its rows are left out")
        return None
    rates: dict[str, float] = {}
    for core_type in CORE_TYPES:
        apart = FaissApart(core_type)
        try:
            rates[core_type] = apart.ask(probe=True)
        except EOFError:
            continue  # a kernel of instructions that this processor lacks
        apart.close()
    chosen = max(rates, key=lambda name: rates[name])
    shown = ", ".join(f"{name or 'as installed'} {rate:,.0f}" for name, rate in rates.items())
    print(f"faiss, GFLOP/s by what its OpenBLAS is told: {shown}; taken: {chosen or 'as installed'}")
    return FaissApart(chosen)


def answer_for_faiss() -> None:
    """The other process: an index of a file's vectors is made once, searches are timed."""
    index: Any = None
    queries: Any = None
    for line in sys.stdin:
        question = json.loads(line)
        if question.get("probe"):
            answer = _faiss_rate()
        elif "gallery" in question:
            index, queries = _faiss_index(Path(question["gallery"])), np.load(question["queries"])
            answer = 0.0
        else:
            start = time.perf_counter()
            index.search(queries, question["k"])
            answer = time.perf_counter() - start
        print(json.dumps(answer), flush=True)


def _faiss_rate() -> float:
    """GFLOP/s of faiss's search for one neighbour."""
    import faiss

    rng = np.random.default_rng(0)
    left, right = rng.random((512, 512), np.float32), rng.random((16384, 512), np.float32)
    search = clocked(lambda: faiss.knn(left, right, 1, metric=faiss.METRIC_INNER_PRODUCT))
    return 2 * left.size * len(right) / min(search() for _ in range(5)) / 1e9


def _faiss_index(file: Path) -> Any:
    import faiss

    gallery = np.load(file, mmap_mode="r")
    index = faiss.IndexFlatIP(gallery.shape[1])
    for start in range(0, len(gallery), 1 << 16):
        index.add(np.ascontiguousarray(gallery[start : start + (1 << 16)]))
    return index


def peak_beyond_embeddings(
    left: Path, right: Path, k: int, *, both: bool = False, backend: str = "auto"
) -> float:
    """MiB that a search takes beside the embeddings, torch and its own code, measured in a fresh process."""
    command = [sys.executable, __file__, "memory", str(left), str(right), str(k), str(int(both)), backend]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def answer_for_memory(left: str, right: str, k: str, both: str, backend: str) -> None:
    """The other process: read both sides, search so much that all code is loaded, then reset the peak and search."""
    import torch  # noqa: F401 - as where embeddings have just been made

    from mitl.retrieval.topk import top_k, top_k_both

    sides = encoded(np.load(left), "image"), encoded(np.load(right), "caption")
    first = encoded(unit_vectors((4096, 512), 0), "image"), encoded(unit_vectors((50_000, 512), 1), "caption")
    count, backend_ = int(k), backend
    for pair in (first, sides):
        _give_back()
        Path("/proc/self/clear_refs").write_text("5")
        before = _status("VmRSS")
        if int(both):
            top_k_both(Space(), *pair, count, count, backend=backend_)  # type: ignore[arg-type]
        else:
            top_k(Space(), *pair, count, backend=backend_)  # type: ignore[arg-type]
    print((_status("VmHWM") - before) / _MIB)


def _give_back() -> None:
    """Memory that is free but kept goes back to the system, so that a search cannot use it uncounted."""
    with contextlib.suppress(AttributeError, OSError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


def _status(name: str) -> int:
    return next(int(line.split()[1]) * 1024 for line in _lines("/proc/self/status") if line.startswith(name))


if __name__ == "__main__":
    {"faiss": answer_for_faiss, "memory": answer_for_memory}[sys.argv[1]](*sys.argv[2:])
