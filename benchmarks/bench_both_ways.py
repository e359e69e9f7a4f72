"""All of COCO, both directions from one pass of products, against the float32 product alone.

By default a tenth of the images and captions, a hundredth of the pairs, best of several interleaved runs. ``--full``
takes all 123,287 images and 616,767 captions once; the product alone is then timed on a share of the captions before
and after the search, and scaled. Random unit embeddings, 25 items each way.

    python benchmarks/bench_both_ways.py
    python benchmarks/bench_both_ways.py --full
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from topk_kit import (
    Space,
    clocked,
    contest,
    describe_machine,
    encoded,
    peak_beyond_embeddings,
    print_times,
    products,
    unit_vectors,
)

from mitl.progress import terminal_progress
from mitl.retrieval.topk import top_k, top_k_both

IMAGES, CAPTIONS, WIDTH, K = 123_287, 616_767, 512, 25
TENTH = 10
PRODUCT_SHARE = 40
"""With ``--full``, one of so many captions is multiplied to measure the product."""


def run_tenth(runs: int) -> None:
    """A hundredth of the pairs: one pass, two searches and the product, interleaved."""
    images = unit_vectors((IMAGES // TENTH, WIDTH), 1)
    captions = unit_vectors((CAPTIONS // TENTH, WIDTH), 2)
    left, right = encoded(images, "image"), encoded(captions, "caption")

    def twice() -> None:
        top_k(Space(), left, right, K)
        top_k(Space(), right, left, K)

    work = products(images, captions) | {
        "mitl top_k_both": lambda: top_k_both(Space(), left, right, K, K),
        "mitl top_k, twice": twice,
    }
    timed: dict[str, Callable[[], float]] = {name: clocked(function) for name, function in work.items()}
    timed["mitl top_k_both"]()
    times = contest(timed, runs)
    title = f"{len(images):,} x {len(captions):,} x {WIDTH} both ways, k = {K}, best of {runs}"
    print_times(title, times, 2.0 * len(images) * len(captions) * WIDTH)
    print_memory(images, captions)


def run_full() -> None:
    """All pairs once."""
    images, captions = unit_vectors((IMAGES, WIDTH), 1), unit_vectors((CAPTIONS, WIDTH), 2)
    part = products(images[: IMAGES // 8], captions[: CAPTIONS // PRODUCT_SHARE])
    scale = 8 * PRODUCT_SHARE
    timed = {name: clocked(function) for name, function in part.items()}
    before = contest(timed, 3)
    seconds = clocked(
        lambda: top_k_both(
            Space(), encoded(images, "image"), encoded(captions, "caption"), K, K, progress=terminal_progress
        )
    )()
    after = contest(timed, 3)
    times = {f"{name} (scaled)": [scale * one for one in before[name] + after[name]] for name in timed}
    title = f"all of COCO: {IMAGES:,} x {CAPTIONS:,} x {WIDTH} both ways, k = {K}, one run"
    print_times(title, times | {"mitl top_k_both": [seconds]}, 2.0 * IMAGES * CAPTIONS * WIDTH)
    print_memory(images, captions)


def print_memory(images: np.ndarray, captions: np.ndarray) -> None:
    """The peak of one more search, in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "images.npy", Path(folder) / "captions.npy"
        for file, array in zip(files, (images, captions), strict=True):
            np.save(file, array)
        peak = peak_beyond_embeddings(*files, K, both=True)
    print(f"peak memory beyond the embeddings: {peak:,.0f} MiB")


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5, help="at least 5")
    parser.add_argument("--full", action="store_true", help="all of COCO; some minutes, twice")
    options = parser.parse_args()
    describe_machine()
    if options.full:
        run_full()
    else:
        run_tenth(max(5, options.runs))


if __name__ == "__main__":
    main()
