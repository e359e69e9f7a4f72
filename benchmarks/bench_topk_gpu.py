"""How near the search on a card comes to the card's own matrix product; without a card it says so.

The product is of large square matrices in float16, as the search's own. Searches are measured whole: vectors come from
the processor's memory, what is found goes back there. One way by some groups of queries against one block of a
gallery, from which the time for 12.4 million items in 12.4 million is scaled, and both ways for all of COCO.

    python benchmarks/bench_topk_gpu.py
    python benchmarks/bench_topk_gpu.py --device cpu --shrink 256
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec

from shared_kit import parser_of
from topk_kit import Space, encoded, unit_vectors

from annotators.base import Encoded
from mitl.retrieval import choosing
from mitl.retrieval.faiss_lists import searches_on_card
from mitl.retrieval.topk import top_k, top_k_both

ITEMS = 12_400_000
K = 25
SHAPES = (("one way", 65_536, 1 << 20), ("one way", 262_144, 1 << 20), ("both ways", 123_287, 616_767))
"""Queries and items."""
WITH_FAISS = ("one way", 16_384, 1 << 18)
"""What faiss searches too, where it has a card, 512 wide."""
WIDTHS = 512, 1024
_SIDE = 8192


def peak_flops(device: str, side: int = _SIDE, dtype: str = "float16") -> float:
    """FLOP a second of the device's product of two square matrices, the best of ten."""
    import torch

    if not device.startswith("cuda"):
        side, dtype = min(side, 1024), "float32"  # a look without a card

    one = torch.randn(side, side, device=device).to(getattr(torch, dtype))
    best = float("inf")
    for _ in range(10):
        _wait(device)
        start = time.perf_counter()
        one @ one
        _wait(device)
        best = min(best, time.perf_counter() - start)
    return 2.0 * side**3 / best


def seconds_of_search(
    device: str, sides: tuple[Encoded, Encoded], *, both: bool, backend: str = "cuda", runs: int = 3
) -> float:
    """The best time of ``runs`` searches, the first of which also compiles loops."""
    choosing.CARD = device
    search: Callable[[], object] = (
        (lambda: top_k_both(Space(), *sides, K, K, backend=backend))
        if both
        else (lambda: top_k(Space(), *sides, K, backend=backend))
    )
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        search()
        _wait(device)
        best = min(best, time.perf_counter() - start)
    return best


def measured(device: str, shrink: int = 1, widths: tuple[int, ...] = WIDTHS) -> Iterator[dict[str, object]]:
    """A row for each shape: seconds, and the share of the product's rate that its products ran at."""
    peak = peak_flops(device)
    for width in widths:
        pool = unit_vectors((max(max(shape[1:]) for shape in SHAPES) // shrink, width), 1)
        searches = [(*shape, "cuda") for shape in SHAPES]
        if width == WIDTHS[0] and find_spec("faiss") and searches_on_card():
            searches += [(*WITH_FAISS, backend) for backend in ("cuda", "faiss")]
        for name, queries, items, backend in searches:
            queries, items = queries // shrink, items // shrink
            sides = encoded(unit_vectors((queries, width), 2), "image"), encoded(pool[:items], "caption")
            seconds = seconds_of_search(device, sides, both=name == "both ways", backend=backend)
            rate = float(queries) * items / seconds
            yield (
                {
                    "search": name if backend == "cuda" else f"{name}, by {backend}",
                    "queries": queries,
                    "items": items,
                    "width": width,
                    "seconds": round(seconds, 4),
                    "share": round(2 * width * rate / peak, 3),
                    "minutes_of_12.4_million": round(float(ITEMS) ** 2 / rate / 60, 1),
                }
            )


def _wait(device: str) -> None:
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize()


def main() -> None:
    """Measure on the card, or say that there is none."""
    import torch

    parser = parser_of(__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--shrink", type=int, default=1, help="by how much fewer items, for a look without a card"
    )
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("torch sees no GPU here: nothing to measure; the same code runs in the tests on the processor")
        return
    name = torch.cuda.get_device_name() if options.device.startswith("cuda") else "the processor"
    print(f"{name}: product {peak_flops(options.device) / 1e12:,.2f} TFLOP/s")
    for row in measured(options.device, options.shrink, tuple(options.widths)):
        print(
            f"{row['search']}, {row['queries']:,} x {row['items']:,} x {row['width']}, k = {K}: {row['seconds']} s, "
            f"{100 * float(str(row['share'])):.0f} % of that product; {ITEMS:,} x {ITEMS:,} one way would take "
            f"{row['minutes_of_12.4_million']} minutes",
            flush=True,
        )


if __name__ == "__main__":
    main()
