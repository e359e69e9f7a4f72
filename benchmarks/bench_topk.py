"""Seconds of our exact top-k against the machine's own float32 product and named baselines, interleaved.

The limit is the faster of numpy's and torch's product of the same shape, which finds nothing yet. Our times include
everything: checking the embeddings, converting them, bounds, rescoring in float64 and sorting. faiss runs in a
process of its own whose BLAS kernel was chosen before it was loaded. Minima of several runs; random unit embeddings.

    python benchmarks/bench_topk.py
    python benchmarks/bench_topk.py --full
    python benchmarks/bench_topk.py --products
    python benchmarks/bench_topk.py --queries 1261 --gallery 25000 --width 384
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from shared_kit import parser_of
from topk_kit import (
    FaissApart,
    Space,
    Work,
    clocked,
    contest,
    describe_machine,
    encoded,
    fastest_faiss,
    peak_beyond_embeddings,
    print_times,
    products,
    unit_vectors,
)

from mitl.errors import RetrievalError
from mitl.retrieval.choosing import SearchTask, choose
from mitl.retrieval.processor import about_to_search
from mitl.retrieval.topk import top_k
from mitl.retrieval.vectors import Vectors

SHAPES = ((1333, 5_000), (5_000, 25_000), (2_000, 616_767))
"""ECCV Caption's image queries; the COCO 5K test split; a block of all of COCO."""
FULL_QUERIES = 20_000
WIDTHS = (512, 1024)
LARGE = 100_000
"""Items of a gallery from which slow baselines are left out."""
K = 25


def torch_topk(queries: np.ndarray, gallery: np.ndarray, k: int) -> Work:
    """Blocks of products and ``torch.topk``, merged."""
    import torch

    left, right = torch.from_numpy(queries), torch.from_numpy(gallery)

    def run() -> object:
        found = []
        for start in range(0, len(left), 512):
            best, ids = torch.empty(0), torch.empty(0, dtype=torch.int64)
            for at in range(0, len(right), 8192):
                similarity = left[start : start + 512] @ right[at : at + 8192].T
                value, place = similarity.topk(min(k, similarity.shape[1]), dim=1)
                best = torch.cat([best, value], 1) if at else value
                ids = torch.cat([ids, place + at], 1) if at else place + at
                best, order = best.topk(min(k, best.shape[1]), dim=1)
                ids = ids.gather(1, order)
            found.append(ids)
        return found

    return run


def torch_amax(queries: np.ndarray, gallery: np.ndarray, k: int) -> Work:
    """Items of several vectors as the public PVSE code compares them: all products, ``amax``, then ``topk``."""
    import torch

    left, right = torch.from_numpy(queries), torch.from_numpy(gallery)

    def run() -> object:
        found = []
        for start in range(0, len(left), 256):
            part = left[start : start + 256]
            similarity = part.flatten(0, 1) @ right.flatten(0, 1).T
            best = similarity.view(len(part), left.shape[1], len(right), right.shape[1]).amax((1, 3))
            found.append(best.topk(k, dim=1))
        return found

    return run


def argpartition(queries: np.ndarray, gallery: np.ndarray, k: int) -> Work:
    """Numpy alone, the whole matrix at once."""

    def run() -> object:
        similarity = queries @ gallery.T
        part = np.argpartition(similarity, -k, axis=1)[:, -k:]
        order = np.argsort(-np.take_along_axis(similarity, part, 1), axis=1)
        return np.take_along_axis(part, order, 1)

    return run


def ours(queries: np.ndarray, gallery: np.ndarray, k: int) -> dict[str, Work]:
    """Our search by each unit of the processor; the first is what everybody gets."""
    left, right = encoded(queries, "image"), encoded(gallery, "caption")
    space = Space(several=queries.ndim == 3)

    def by(backend: str) -> Work:
        return lambda: top_k(space, left, right, k, backend=backend)  # type: ignore[arg-type]

    task = SearchTask(Vectors(left), Vectors(right), k)
    about_to_search(task.work)  # starts the compiled loops, as the search itself does before it chooses
    chosen = choose("auto", task)
    taken = chosen.ladder[0].name if chosen.device is None else chosen.device
    found = {f"mitl top_k, auto (takes {taken})": by("auto"), "mitl top_k, numpy": by("numpy")}
    for backend in ("bf16", "int16", "int8"):
        try:
            choose(backend, task)
        except RetrievalError as error:
            print(f"{backend}: {error}")
        else:
            found[f"mitl top_k, {backend}"] = by(backend)
    return found


def run_shape(
    queries: int,
    gallery: int,
    width: int,
    k: int,
    runs: int,
    faiss: FaissApart | None,
    baselines: bool = True,
) -> None:
    """Time one shape, print a table and the peak memory; without ``baselines`` the products and ours alone."""
    left, right = unit_vectors((queries, width), 1), unit_vectors((gallery, width), 2)
    work: dict[str, Work] = products(left, right) | ours(left, right, k)
    if baselines and queries * gallery < LARGE * 2000:
        work["naive: numpy, argpartition"] = argpartition(left, right, k)
    if baselines and queries < FULL_QUERIES:
        work["baseline: torch.topk, blocked"] = torch_topk(left, right, k)
    timed: dict[str, Callable[[], float]] = {name: clocked(function) for name, function in work.items()}
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "queries.npy", Path(folder) / "gallery.npy"
        for file, array in zip(files, (left, right), strict=True):
            np.save(file, array)
        if faiss is not None:
            faiss.ask(queries=str(files[0]), gallery=str(files[1]))
            timed["baseline: faiss IndexFlatIP, BLAS set right"] = lambda: faiss.ask(k=k)
        for name in [name for name in timed if name.startswith("mitl")]:
            timed[name]()
        times = contest(timed, runs)
        flop = 2.0 * queries * gallery * width
        print_times(f"{queries:,} x {gallery:,} x {width}, k = {k}, best of {runs}", times, flop)
        print(f"peak memory beyond the embeddings: {peak_beyond_embeddings(*files, k):,.0f} MiB")


def run_several(queries: int, gallery: int, number: int, width: int, k: int, runs: int) -> None:
    """Time items of several vectors (PVSE) against torch's usual form."""
    left, right = unit_vectors((queries, number, width), 1), unit_vectors((gallery, number, width), 2)
    flat = left.reshape(-1, width), right.reshape(-1, width)
    work = (
        products(*flat)
        | ours(left, right, k)
        | {"baseline: torch, amax and topk": torch_amax(left, right, k)}
    )
    times = contest({name: clocked(function) for name, function in work.items()}, runs)
    title = f"{queries:,} x {gallery:,} items of {number} vectors x {width}, k = {k}, best of {runs}"
    print_times(title, times, 2.0 * queries * gallery * number**2 * width)


def main() -> None:
    """Read the options and time each shape."""
    parser = parser_of(__doc__)
    parser.add_argument("--queries", type=int, help="one shape of your own instead of all")
    parser.add_argument("--gallery", type=int)
    parser.add_argument("--width", type=int, help="one width instead of 512 and 1024")
    parser.add_argument("--vectors", type=int, default=1, help="vectors of an item of your own shape")
    parser.add_argument("--k", type=int, default=K)
    parser.add_argument("--runs", type=int, default=5, help="at least 5, but for --full")
    parser.add_argument(
        "--products", action="store_true", help="the machine's products and ours, no other library"
    )
    parser.add_argument(
        "--full", action="store_true", help=f"{FULL_QUERIES:,} queries for all of COCO, one run"
    )
    options = parser.parse_args()
    if (options.queries is None) != (options.gallery is None):
        parser.error("--queries and --gallery go together")
    runs, widths = max(5, options.runs), (options.width,) if options.width else WIDTHS
    describe_machine()
    if options.vectors > 1:
        shape = (options.queries or 1000, options.gallery or 25_000)
        run_several(*shape, options.vectors, widths[-1], options.k, runs)
        return
    faiss = None if options.products else fastest_faiss()
    if options.full:
        run_shape(FULL_QUERIES, SHAPES[-1][1], widths[0], options.k, 1, faiss)
        return
    shapes = SHAPES if options.queries is None else ((options.queries, options.gallery),)
    for queries, gallery in shapes:
        for width in widths:
            run_shape(queries, gallery, width, options.k, runs, faiss, not options.products)
    if options.queries is None and not options.products:
        run_several(1000, 25_000, 2, 1024, options.k, runs)


if __name__ == "__main__":
    main()
