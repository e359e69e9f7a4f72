"""How fast a card would search 12.4 million items in 12.4 million, from some blocks of it; without a card it says so.

The share is of the card's own measured product of bfloat16, large square matrices. Blocks are measured whole: sending
and converting the gallery's vectors, products, sifting there, rescoring here. The job is scaled from the pairs done.

    python benchmarks/bench_topk_gpu.py
    python benchmarks/bench_topk_gpu.py --device cpu --items 4000
"""

from __future__ import annotations

import argparse
import time

from topk_kit import Space, encoded, unit_vectors

from mitl.retrieval import choosing
from mitl.retrieval.topk import top_k
from mitl.retrieval.torch_products import DeviceProduct

ITEMS = 12_400_000
WIDTH, K = 512, 25
QUERIES, GALLERY = 65_536, 1 << 20
"""The measured part of the job: some groups of queries against one block of the gallery."""
_SIDE = 8192
BLOCK_BYTES = 8 << 30


def peak_flops(device: str, side: int) -> float:
    """FLOP a second of the device's product of two square bfloat16 matrices, the best of ten."""
    import torch

    one = torch.randn(side, side, device=device).to(torch.bfloat16)
    best = float("inf")
    for _ in range(10):
        _wait(device)
        start = time.perf_counter()
        one @ one
        _wait(device)
        best = min(best, time.perf_counter() - start)
    return 2.0 * side**3 / best


def measured_rate(device: str, queries: int, gallery: int, runs: int) -> float:
    """Pairs a second of our search on the device, the best of ``runs``."""
    makers = choosing._makers
    choosing._makers = lambda task: makers(task) | {"cuda": lambda: DeviceProduct(device)}
    left, right = (
        encoded(unit_vectors((queries, WIDTH), 1), "image"),
        encoded(unit_vectors((gallery, WIDTH), 2), "x"),
    )
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        top_k(Space(), left, right, K, backend="cuda", block_bytes=BLOCK_BYTES)
        _wait(device)
        best = min(best, time.perf_counter() - start)
    return queries * gallery / best


def _wait(device: str) -> None:
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize()


def main() -> None:
    """Measure on the card, or say that there is none."""
    import torch

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--items", type=int, help="fewer queries and items, for a look without a card")
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("torch sees no GPU here: nothing to measure; the same code runs in the tests on the processor")
        return
    queries, gallery = (options.items, options.items) if options.items else (QUERIES, GALLERY)
    name = torch.cuda.get_device_name() if options.device.startswith("cuda") else "the processor"
    peak = peak_flops(options.device, min(_SIDE, gallery))
    rate = measured_rate(options.device, queries, gallery, 3)
    seconds, share = float(ITEMS) ** 2 / rate, 2 * WIDTH * rate / peak
    print(f"{name}: product {peak / 1e12:,.2f} TFLOP/s in bfloat16, measured on squares of {_SIDE:,}")
    print(
        f"{queries:,} x {gallery:,} x {WIDTH}, k = {K}: {rate:,.3g} pairs/s, {100 * share:.0f} % of that product"
    )
    print(f"so {ITEMS:,} x {ITEMS:,} would take {seconds / 60:,.1f} minutes on one such device")


if __name__ == "__main__":
    main()
