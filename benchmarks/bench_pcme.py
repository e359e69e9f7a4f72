"""Seconds of PCME's match probability: as a product, by shortlist, and as the public code evaluates it.

The public evaluation forms the differences of all 7 x 7 pairs of samples in float64, one query at a time. It is
written out here, timed on a small piece of the gallery in every round and scaled to the whole; ours are timed whole.
All are checked to give the same numbers. Embeddings are made up: unit means of 128 effective dimensions, topics of
many items, three kinds of variances. Rounds are interleaved, the best of each is kept.

    python benchmarks/bench_pcme.py
    python benchmarks/bench_pcme.py --queries 64 --gallery 5000
    python benchmarks/bench_pcme.py --device cuda
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from shared_kit import parser_of

from annotators.devices import full_precision
from annotators.match_probability import Odds, SampleSet, match_probabilities
from annotators.match_shortlist import COUNT, ShortlistSearch, shortlist

ODDS = Odds(15.0, 15.0)
SAMPLES = 7
LOG_SIGMAS = {"small": (-6.0, 0.2), "mixed": (-4.8, 0.6), "large": (-4.2, 0.2)}
"""Mean and deviation, over items, of the log-sigma."""
TOPIC_ITEMS = 250
"""Items about the same, so that more than k are near a query."""

Items = np.ndarray


def gaussians(centres: Items, width: int, log_sigma: tuple[float, float], seed: int) -> Items:
    """(N, 7, width) samples about unit means near ``centres`` (N, 128)."""
    rng = np.random.default_rng(seed)
    spread = np.random.default_rng(0).standard_normal((centres.shape[1], width), dtype=np.float32)
    mean = (centres + 0.5 * rng.standard_normal(centres.shape, dtype=np.float32)) @ spread
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    sigma = np.exp(log_sigma[0] + log_sigma[1] * rng.standard_normal((len(mean), 1, 1))).astype(np.float32)
    samples = rng.standard_normal((len(mean), SAMPLES, width), dtype=np.float32)
    samples *= sigma
    samples += mean[:, None]
    return samples


def world(queries: int, gallery: int, width: int, log_sigma: tuple[float, float]) -> tuple[Items, Items]:
    """Queries, and a gallery in which every query has five items of its own as long as there is room."""
    rng = np.random.default_rng(1)
    count = max(queries, gallery // 5 + 1)
    topics = rng.standard_normal((gallery // TOPIC_ITEMS + 1, 128), dtype=np.float32)
    centres = topics[rng.integers(0, len(topics), count)]
    centres = centres + 0.7 * rng.standard_normal(centres.shape, dtype=np.float32)
    near = np.repeat(centres, 5, axis=0)[:gallery]
    return gaussians(centres[:queries], width, log_sigma, 2), gaussians(near, width, log_sigma, 3)


def public_evaluation(query: Items, gallery: Items) -> np.ndarray:
    """(G,) probabilities of one query (7, D) with a gallery (G, 7, D), by explicit differences."""
    a, b = torch.from_numpy(query).double(), torch.from_numpy(gallery).double()
    distance = torch.sqrt(((a[None, :, None] - b[:, None]) ** 2).sum(-1) + 1e-6).float()
    logits = -ODDS.negative_scale * distance + ODDS.shift
    matching = torch.exp(logits) / (torch.exp(logits) + torch.exp(-logits))
    return matching.mean((1, 2)).numpy()


def best_seconds(timed: dict[str, Callable[[], object]], runs: int) -> dict[str, float]:
    """The best of ``runs`` rounds of each, interleaved."""
    best = dict.fromkeys(timed, float("inf"))
    for _ in range(runs):
        for name, function in timed.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def time_on(device: str, queries: int, gallery: int, width: int, runs: int) -> None:
    """Time the probabilities on a card beside its own float32 product, and print a table."""
    left, right = (SampleSet.of(side) for side in world(queries, gallery, width, LOG_SIGMAS["mixed"]))
    card = torch.device(device)
    one = torch.from_numpy(left.samples.reshape(-1, width)).to(card)
    other = torch.from_numpy(right.samples.reshape(-1, width)).to(card)
    probabilities = np.empty((queries, gallery), np.float32)

    def product() -> None:
        with full_precision():
            for part in other.split(1 << 14):
                one @ part.T
        if card.type == "cuda":
            torch.cuda.synchronize()

    def there() -> object:
        return match_probabilities(left, right, ODDS, device=card, out=probabilities)

    names = "limit: fp32 product only, vectors there", "exact, vectors brought there, probabilities back"
    best = best_seconds(dict(zip(names, (product, there), strict=True)), runs)
    speed = 2 * queries * gallery * SAMPLES**2 * width / best[names[0]] / 1e12
    print(f"\non {device}: {queries:,} x {gallery:,}, {SAMPLES} samples of {width}, best of {runs}")
    print(f"product {speed:,.1f} TFLOP/s in float32\n{'':52}{'seconds':>10}{'/ limit':>9}")
    for name, seconds in best.items():
        print(f"{name:52}{seconds:10.4f}{seconds / best[names[0]]:9.2f}")
    check(left, right, probabilities, gallery)


def describe_machine() -> None:
    """Print threads and the BLAS kernel: a ratio to a product says little without them."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; numpy {np.__version__}")
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return
    for pool in threadpool_info():
        if pool["user_api"] == "blas":
            print(
                f"BLAS {pool['internal_api']} {pool['version']}, {pool.get('architecture')}, {pool['num_threads']}"
            )


def time_shape(queries: int, gallery: int, width: int, k: int, piece: int, runs: int) -> None:
    """Time all ways on one shape and print a table."""
    left, right = (SampleSet.of(side) for side in world(queries, gallery, width, LOG_SIGMAS["mixed"]))
    out = np.empty((queries * SAMPLES, gallery), np.float32)
    probabilities = np.empty((queries, gallery), np.float32)

    def product() -> None:
        for sample in range(SAMPLES):
            np.matmul(left.samples.reshape(-1, width), right.samples[:, sample].T, out=out)

    def exact() -> object:
        return match_probabilities(left, right, ODDS, out=probabilities)

    names = (
        "public: explicit differences",
        "limit: fp32 product only",
        "exact",
        f"shortlist of {COUNT} + exact",
    )
    timed: dict[str, Callable[[], object]] = {
        names[0]: lambda: public_evaluation(left.samples[0], right.samples[:piece]),
        names[1]: product,
        names[2]: exact,
        names[3]: lambda: ShortlistSearch(left, right, k, ODDS).exact(),
    }
    best = best_seconds(timed, runs)
    best[names[0]] *= queries * gallery / piece
    speed = 2 * queries * gallery * SAMPLES**2 * width / best[names[1]] / 1e9
    print(f"\n{queries:,} x {gallery:,}, {SAMPLES} samples of {width}, k = {k}, best of {runs}")
    print(f"public evaluation scaled from 1 x {piece:,}; product {speed:,.0f} GFLOP/s")
    print(f"{'':32}{'seconds':>10}{'public /':>10}{'/ limit':>9}")
    for name, seconds in best.items():
        print(f"{name:32}{seconds:10.3f}{best[names[0]] / seconds:10,.0f}{seconds / best[names[1]]:9.2f}")
    check(left, right, probabilities, piece)


def check(left: SampleSet, right: SampleSet, probabilities: np.ndarray, piece: int) -> None:
    """Print how far our numbers are from the public evaluation's."""
    rows = np.linspace(0, len(left) - 1, 8, dtype=int)
    expected = np.stack([public_evaluation(left.samples[row], right.samples[:piece]) for row in rows])
    found = probabilities[rows, :piece]
    print(f"greatest difference on {len(rows)} x {piece:,}: {np.abs(found - expected).max():.1e}")


def measure_recall(queries: int, gallery: int, width: int, k: int) -> None:
    """Print how much of the exact top k shortlists hold, for each kind of variances."""
    print(f"\nshare of the exact top {k} of {queries} queries that shortlists hold, {gallery:,} items")
    for name, log_sigma in LOG_SIGMAS.items():
        left, right = (SampleSet.of(side) for side in world(queries, gallery, width, log_sigma))
        exact = match_probabilities(left, right, ODDS)
        top = np.argsort(-exact, axis=1, kind="stable")[:, :k]
        shares = []
        for count in (k, 2 * k, COUNT):
            places = shortlist(left, right, count)
            share = np.mean([np.isin(t, p).mean() for t, p in zip(top, places, strict=True)])
            shares.append(f"{count}: {share:.4f}")
        best, last = exact[:, top[:, 0]].diagonal().mean(), np.take_along_axis(exact, top, 1)[:, -1].mean()
        print(f"{name:6} variances (best {best:.2f}, {k}th {last:.2f})  {'  '.join(shares)}")
        print(f"       {ShortlistSearch(left, right, k, ODDS).measured()}")


def main() -> None:
    """Read the options, time and measure."""
    parser = parser_of(__doc__)
    parser.add_argument("--device", help="a card, in place of the processor")
    parser.add_argument("--queries", type=int, default=128)
    parser.add_argument("--gallery", type=int, default=25_000)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--k", type=int, default=25)
    parser.add_argument("--piece", type=int, default=1000, help="gallery items of the public evaluation")
    parser.add_argument("--runs", type=int, default=5, help="at least 5")
    options = parser.parse_args()
    describe_machine()
    piece = min(options.piece, options.gallery)
    if options.device:
        for queries in (options.queries, 16 * options.queries):
            time_on(options.device, queries, options.gallery, options.width, max(5, options.runs))
        return
    time_shape(options.queries, options.gallery, options.width, options.k, piece, max(5, options.runs))
    measure_recall(min(64, options.queries), options.gallery, options.width, options.k)


if __name__ == "__main__":
    main()
