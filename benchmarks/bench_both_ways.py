"""All of COCO, both directions from one pass of products, against the float32 product alone.

By default a tenth of the images and captions, a hundredth of the pairs, best of several interleaved runs. ``--full``
takes all 123,287 images and 616,767 captions once; the product alone is then timed on a share of the captions before
and after the search, and scaled. Random unit embeddings, 25 items each way.

    python benchmarks/bench_both_ways.py
    python benchmarks/bench_both_ways.py --full
    OMP_NUM_THREADS=1 python benchmarks/bench_both_ways.py --processor-time  # beside other work
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from shared_kit import parser_of
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

from annotators.base import Encoded
from mitl.progress import terminal_progress
from mitl.retrieval.topk import top_k, top_k_both

IMAGES, CAPTIONS, WIDTH, K = 123_287, 616_767, 512, 25
TENTH = 10
PRODUCT_SHARE = 40
"""With ``--full``, one of so many captions is multiplied to measure the product."""


def run_tenth(runs: int, width: int, clock: Callable[[], float], half: bool) -> None:
    """A hundredth of the pairs: one pass, two searches and the product, interleaved; with ``half`` float16 maps too."""
    images = unit_vectors((IMAGES // TENTH, width), 1)
    captions = unit_vectors((CAPTIONS // TENTH, width), 2)
    left, right = encoded(images, "image"), encoded(captions, "caption")

    def twice() -> None:
        top_k(Space(), left, right, K)
        top_k(Space(), right, left, K)

    used: set[str] = set()
    work = products(images, captions) | {
        "mitl top_k_both": lambda: top_k_both(Space(), left, right, K, K, used=used),
        "mitl top_k, twice": twice,
    }
    with tempfile.TemporaryDirectory() as folder:
        for kind in (np.float32, np.float16) if half else ():
            maps = [_mapped(side, Path(folder), kind) for side in (left, right)]
            work[f"mitl top_k_both, {kind.__name__} maps"] = partial(top_k_both, Space(), *maps, K, K)
        timed: dict[str, Callable[[], float]] = {
            name: clocked(function, clock) for name, function in work.items()
        }
        timed["mitl top_k_both"]()
        times = contest(timed, runs)
    title = f"{len(images):,} x {len(captions):,} x {width} both ways, k = {K}, best of {runs}, by {', '.join(used)}"
    print_times(title, times, 2.0 * len(images) * len(captions) * width)
    print_memory(images, captions)


def _mapped(side: Encoded, folder: Path, kind: type[np.floating]) -> Encoded:
    """The same items in a file, read as a memory map."""
    file = folder / f"{side.modality}-{kind.__name__}.npy"
    np.save(file, side.arrays["embedding"].astype(kind))
    return encoded(np.load(file, mmap_mode="r"), side.modality)


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
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=5, help="interleaved rounds")
    parser.add_argument("--full", action="store_true", help="all of COCO; some minutes, twice")
    parser.add_argument("--width", type=int, default=WIDTH, help="numbers of an embedding, without --full")
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="seconds of the processor, where other work shares it; with OMP_NUM_THREADS=1, since waiting counts too",
    )
    parser.add_argument(
        "--half", action="store_true", help="memory maps of float32 and float16 too, without --full"
    )
    options = parser.parse_args()
    describe_machine()
    if options.full:
        run_full()
    else:
        clock = time.process_time if options.processor_time else time.perf_counter
        run_tenth(options.runs, options.width, clock, options.half)


if __name__ == "__main__":
    main()
