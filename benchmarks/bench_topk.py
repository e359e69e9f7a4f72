"""Seconds of our exact top-k against named baselines of the same run, interleaved, the best of several.

The limit is the machine's own float32 product of the same shape, which finds nothing yet. Our times include
everything: checking the embeddings, the error bound, rescoring in float64 and sorting.

    python benchmarks/bench_topk.py --queries 1261 --gallery 25000 --width 384
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from annotators.base import Encoded
from mitl.records import AnnotatorKind
from mitl.retrieval.topk import top_k

PAPER_SHAPES = ((1261, 25_000, 384), (1332, 5_000, 384))
"""The query samples of ECCV Caption against its galleries, at the width of a small sentence encoder."""


class InnerProduct:
    """Stands for an annotator whose similarity is the inner product."""

    name = "bench"
    kind = AnnotatorKind.INNER_PRODUCT
    fingerprint = "bench"


def unit_vectors(count: int, width: int, seed: int) -> np.ndarray:
    """Unit vectors of 128 effective dimensions, a tenth of them copies, as captions repeat."""
    rng = np.random.default_rng(seed)
    low = rng.standard_normal((count, min(width, 128)), dtype=np.float32)
    array = low @ rng.standard_normal((low.shape[1], width), dtype=np.float32)
    array /= np.linalg.norm(array, axis=1, keepdims=True)
    array[: count // 10] = array[rng.integers(count // 10, count, count // 10)]
    return array


def contestants(queries: np.ndarray, gallery: np.ndarray, k: int) -> dict[str, Callable[[], object]]:
    """What is timed, by name; the first is the limit."""
    left = Encoded("image", np.arange(len(queries)), {"embedding": queries})
    right = Encoded("caption", np.arange(len(gallery)), {"embedding": gallery})
    out = np.empty((len(queries), len(gallery)), np.float32)

    def product() -> object:
        return np.matmul(queries, gallery.T, out=out)

    def argsort() -> object:
        return np.argsort(-(queries @ gallery.T), axis=1, kind="stable")[:, :k]

    def argpartition() -> object:
        similarity = queries @ gallery.T
        part = np.argpartition(similarity, -k, axis=1)[:, -k:]
        order = np.argsort(-np.take_along_axis(similarity, part, 1), axis=1)
        return np.take_along_axis(part, order, 1)

    timed: dict[str, Callable[[], object]] = {
        "limit: fp32 product only (numpy)": product,
        "naive: numpy, full argsort": argsort,
        "naive: numpy, argpartition": argpartition,
        "mitl top_k, numpy": lambda: top_k(InnerProduct(), left, right, k, backend="numpy"),
    }
    try:
        import torch
    except ImportError:
        print("torch is not installed: its rows are left out")
        return timed
    tensors = torch.from_numpy(queries), torch.from_numpy(gallery)

    def blocked_topk() -> object:
        found = []
        for start in range(0, len(queries), 512):
            best = torch.empty(0)
            ids = torch.empty(0, dtype=torch.int64)
            for at in range(0, len(gallery), 8192):
                similarity = tensors[0][start : start + 512] @ tensors[1][at : at + 8192].T
                value, place = similarity.topk(min(k, similarity.shape[1]), dim=1)
                best = torch.cat([best, value], 1) if at else value
                ids = torch.cat([ids, place + at], 1) if at else place
                best, order = best.topk(min(k, best.shape[1]), dim=1)
                ids = ids.gather(1, order)
            found.append(ids)
        return found

    timed["baseline: torch.topk, blocked"] = blocked_topk
    timed["mitl top_k, torch"] = lambda: top_k(InnerProduct(), left, right, k, backend="torch")
    return timed


def describe_machine() -> None:
    """Print the BLAS kernels in use: without them a ratio to the product says little."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        print("threadpoolctl is not installed: BLAS kernels unknown")
        return
    for pool in threadpool_info():
        if pool["user_api"] == "blas":
            kernel = pool.get("architecture", "unknown")
            print(
                f"BLAS {pool['internal_api']} {pool['version']}, kernel {kernel}, {pool['num_threads']} threads"
            )


def run(queries: int, gallery: int, width: int, k: int, runs: int) -> None:
    """Time one shape and print a table."""
    timed = contestants(unit_vectors(queries, width, 1), unit_vectors(gallery, width, 2), k)
    times: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(runs):
        for name, function in timed.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    limit, ours = (min(times[name]) for name in ("limit: fp32 product only (numpy)", "mitl top_k, numpy"))
    speed = 2 * queries * gallery * width / limit / 1e9
    print(f"\n{queries:,} x {gallery:,} x {width}, k = {k}, best of {runs}; limit {speed:,.0f} GFLOP/s")
    print(f"{'':34}{'seconds':>9}{'median':>9}{'/ limit':>9}{'/ ours':>9}")
    for name, values in times.items():
        best = min(values)
        print(f"{name:34}{best:9.3f}{np.median(values):9.3f}{best / limit:9.2f}{best / ours:9.2f}")


def main() -> None:
    """Read the options and time each shape."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, help="one shape of your own instead of the paper's two")
    parser.add_argument("--gallery", type=int)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--k", type=int, default=25)
    parser.add_argument("--runs", type=int, default=5, help="at least 5")
    options = parser.parse_args()
    if (options.queries is None) != (options.gallery is None):
        parser.error("--queries and --gallery go together")
    shapes = PAPER_SHAPES if options.queries is None else ((options.queries, options.gallery, options.width),)
    describe_machine()
    for shape in shapes:
        run(*shape, options.k, max(5, options.runs))


if __name__ == "__main__":
    main()
