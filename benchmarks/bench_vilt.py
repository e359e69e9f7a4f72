"""Seconds a pair of ViLT-B/32 at full size: ours against the usual padded call of ``transformers``, interleaved.

The usual call takes 16 pairs at a time in float32, captions padded to 40 word pieces, pictures to the largest of
the batch. Weights are random, which changes no time. Two workloads: one picture with many captions, as an image
query meets them; pictures and captions in the mixture of sizes of the COCO test split, as a shortlist holds them.
The limit is the machine's own matrix product, measured in the same run.

    python benchmarks/bench_vilt.py --pairs 16 --runs 5
    python benchmarks/bench_vilt.py --device cuda
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from shared_kit import parser_of
from torch import Tensor

from annotators.base import Encoded
from annotators.devices import inference
from annotators.linear_kernels import OneDnnLinear, PlainLinear, fastest_linear
from annotators.sizes import ViltConfig
from annotators.vilt import Vilt
from annotators.vilt_core import ViltCore
from annotators.vilt_scorer import PairScorer, default_kept_bytes

USUAL_BATCH, USUAL_BATCH_CUDA = 16, 128
"""Pairs that the usual call takes at a time, on the processor and on a card."""
REFERENCES = 64
"""Pairs of a card's workload that the processor scores too."""
GRIDS = (
    ((16, 12), 24),
    ((12, 16), 18),
    ((18, 12), 22),
    ((12, 18), 8),
    ((17, 12), 9),
    ((12, 12), 6),
    ((15, 12), 5),
)
"""Patches across and down, and how many in a hundred pictures of the COCO test split have so many."""
LENGTHS = ((11, 15), (12, 21), (13, 21), (14, 16), (15, 11), (16, 7), (18, 6), (22, 3))
"""Word pieces, [CLS] and [SEP] included, and how many in a hundred captions of that split have so many."""


CAPTIONS = 16
"""Captions of each picture of a card's workload."""


@dataclass(frozen=True, slots=True)
class Work:
    """Pairs to score: pixels of each pair's picture, word pieces of each pair's caption."""

    pixels: list[Tensor]
    tokens: list[Tensor]


def one_picture(pairs: int, config: ViltConfig) -> Work:
    """A picture of 512 x 384 and captions of 14 word pieces."""
    picture = torch.randn(3, 384, 512)
    return Work([picture] * pairs, [_caption(14, config) for _ in range(pairs)])


def mixed(pairs: int, config: ViltConfig, *, captions: int = 1) -> Work:
    """Another caption for every pair, and another picture for each so many captions."""
    rng = np.random.default_rng(0)

    def draw(table: tuple[tuple[object, int], ...]) -> list[int]:
        weights = np.array([weight for _, weight in table], float)
        return rng.choice(len(table), size=pairs, p=weights / weights.sum()).tolist()

    grids = [GRIDS[place][0] for place in draw(GRIDS)]
    lengths = [LENGTHS[place][0] for place in draw(LENGTHS)]
    side = config.patch_size
    pictures = [torch.randn(3, side * down, side * across) for across, down in grids[: -(-pairs // captions)]]
    return Work(
        [pictures[pair // captions] for pair in range(pairs)],
        [_caption(length, config) for length in lengths],
    )


def _caption(length: int, config: ViltConfig) -> Tensor:
    return torch.randint(1000, config.vocab_size, (length,))


def usual_call(
    network: Vilt, work: Work, device: torch.device | None = None, dtype: torch.dtype = torch.float32
) -> Callable[[], Tensor]:
    """The module's forward on padded batches; padding, and the way to a card, are done before and not timed."""
    batches, size_of_batch = [], USUAL_BATCH if device is None else USUAL_BATCH_CUDA
    for start in range(0, len(work.pixels), size_of_batch):
        pictures, captions = (
            work.pixels[start : start + size_of_batch],
            work.tokens[start : start + size_of_batch],
        )
        size = max(p.shape[1] for p in pictures), max(p.shape[2] for p in pictures)
        pixels, pixel_mask = torch.zeros(len(pictures), 3, *size), torch.zeros(len(pictures), *size).long()
        ids = torch.zeros(len(captions), network.sizes.max_position_embeddings).long()
        words = torch.zeros_like(ids)
        for row, (picture, caption) in enumerate(zip(pictures, captions, strict=True)):
            pixels[row, :, : picture.shape[1], : picture.shape[2]] = picture
            pixel_mask[row, : picture.shape[1], : picture.shape[2]] = 1
            ids[row, : len(caption)], words[row, : len(caption)] = caption, 1
        batch = {"input_ids": ids, "attention_mask": words, "pixel_values": pixels, "pixel_mask": pixel_mask}
        batches.append({name: part.to(device or "cpu") for name, part in batch.items()})

    def call() -> Tensor:
        with torch.inference_mode():
            if device is None:
                return torch.cat([network(**batch).logits[:, 0] for batch in batches])
            with torch.autocast(device.type, dtype):
                return torch.cat([network(**batch).logits[:, 0].float() for batch in batches]).cpu()

    return call


def encoded(core: ViltCore, work: Work, config: ViltConfig) -> tuple[Encoded, Encoded, np.ndarray]:
    """The distinct pictures and the captions as the annotator keeps them, and each pair's picture."""
    distinct = list({id(picture): picture for picture in work.pixels}.values())
    place = {id(picture): row for row, picture in enumerate(distinct)}
    state = np.zeros((len(distinct), config.most_image_tokens, config.hidden_size), np.float32)
    lengths = np.empty(len(distinct), np.int64)
    with inference(torch.get_num_threads()):
        for row, picture in enumerate(distinct):
            found = core.images(picture[None])["state"][0].numpy()
            state[row, : len(found)], lengths[row] = found, len(found)
    tokens = np.zeros((len(work.tokens), config.max_position_embeddings), np.int32)
    for row, caption in enumerate(work.tokens):
        tokens[row, : len(caption)] = caption.numpy()
    captions = Encoded(
        "caption",
        np.arange(len(tokens)),
        {"tokens": tokens, "length": np.array([len(caption) for caption in work.tokens])},
    )
    images = Encoded("image", np.arange(len(distinct)), {"state": state, "length": lengths})
    return images, captions, np.array([place[id(picture)] for picture in work.pixels])


def peak_gflops(dtype: torch.dtype, device: torch.device, runs: int) -> float:
    """The best rate of the machine's matrix products on this network's widest map, in 1e9 operations a second."""
    rows = 3312 if device.type == "cpu" else 1 << 16
    x, weight = torch.randn(rows, 768).to(device, dtype), torch.randn(3072, 768).to(device, dtype)
    bias = torch.zeros(3072, device=device, dtype=dtype)
    makes = [PlainLinear] + ([OneDnnLinear] if device.type == "cpu" else [])
    contestants: list[Callable[[], object]] = []
    with torch.inference_mode():
        contestants += [partial(make(weight, bias), x) for make in makes]
        if device.type == "cpu" and dtype == torch.float32:
            left, right, out = x.numpy(), weight.numpy(), np.empty((rows, 3072), np.float32)
            contestants.append(lambda: np.matmul(left, right.T, out=out))
        # A first call prepares kernels, and a few that another process disturbs are no peak.
        best = min(_seconds(call, device) for _ in range(max(8, runs)) for call in contestants)
    return 2 * rows * 768 * 3072 / best / 1e9


def _seconds(call: Callable[[], object], device: torch.device) -> float:
    start = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def operations(work: Work, config: ViltConfig) -> float:
    """Multiplications and additions that our pairs take, by their shapes; those done once an item left out."""
    width, total = config.hidden_size, 0.0
    for picture, caption in zip(work.pixels, work.tokens, strict=True):
        own = len(caption) + 1 + picture.shape[1] * picture.shape[2] // config.patch_size**2
        layer = 2 * own * width * (4 * width + 2 * config.intermediate_size) + 4 * own**2 * width
        total += (config.num_hidden_layers - 1) * layer - 2 * own * width * 3 * width
    return total


def run(name: str, work: Work, network: Vilt, device: torch.device, runs: int, threads: int) -> None:
    """Time one workload and print a table."""
    config, pairs = network.sizes, len(work.pixels)
    network.to("cpu")
    timed: dict[str, Callable[[], object]] = {}
    dtypes = (torch.float32, torch.bfloat16) if device.type == "cpu" else (torch.bfloat16, torch.float16)
    images, captions, rows = encoded(ViltCore(network), work, config)
    if device.type == "cpu":
        timed["transformers, float32, padded to 40"] = usual = usual_call(network, work)
        reference = usual().numpy()
    else:
        reference = usual_call(network, Work(work.pixels[:REFERENCES], work.tokens[:REFERENCES]))().numpy()
        for dtype in dtypes:
            label = f"transformers, autocast to {str(dtype).removeprefix('torch.')}, padded to 40"
            timed[label] = usual_call(network, work, device, dtype)
    network.to(device)
    for dtype in dtypes:
        with torch.inference_mode():
            core = ViltCore(network, dtype, fastest_linear(dtype, device))
        scorer = PairScorer(core, device, threads=threads, kept_bytes=default_kept_bytes(device))
        label = f"mitl, {str(dtype).removeprefix('torch.')}"
        timed[label] = lambda scorer=scorer: scorer.scores(images, captions, rows, np.arange(pairs))
    found = {label: np.asarray(call()) for label, call in timed.items()}  # and warm up
    times: dict[str, list[float]] = {label: [] for label in timed}
    for _ in range(runs):
        for label, call in timed.items():
            times[label].append(_seconds(call, device))
    peaks = {dtype: peak_gflops(dtype, device, runs) for dtype in (torch.float32, *dtypes)}
    print(f"\n{name}: {pairs} pairs, {operations(work, config) / pairs / 1e9:.1f} GFLOP each without padding")
    print("| | ms a pair | pairs/s | ratio | share of the product's rate | largest difference |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    first = min(next(iter(times.values())))
    for label, seconds in times.items():
        best = min(seconds)
        own = next((dtype for dtype in dtypes if str(dtype).removeprefix("torch.") in label), torch.float32)
        off = np.abs(found[label][: len(reference)] - reference).max()
        share = (
            operations(work, config) / best / 1e9 / peaks[own] if label.startswith("mitl") else float("nan")
        )
        print(
            f"| {label} | {best / pairs * 1e3:.3g} | {pairs / best:.1f} | {first / best:.2f} "
            f"| {'' if share != share else f'{share:.2f}'} | {off:.1e} |"
        )
    print(
        "products: " + ", ".join(f"{str(d).removeprefix('torch.')} {p:.0f} GFLOP/s" for d, p in peaks.items())
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--device", choices=["all", "cpu", "cuda"], default="all")
    parser.add_argument("--pairs", type=int, default=16, help="pairs of each workload (CPU)")
    parser.add_argument("--cuda-pairs", type=int, default=2048, help="the same on CUDA")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    network = Vilt(ViltConfig())
    network.train(False)
    kernels = torch.backends.cpu.get_cpu_capability()
    print(f"torch {torch.__version__}, {platform.machine()}, {kernels}, {given.threads} threads")
    for name, make in (("one picture, many captions", one_picture), ("mixed pictures and captions", mixed)):
        if given.device == "cuda":
            break
        work = make(given.pairs, network.sizes)
        run(name, work, network, torch.device("cpu"), given.runs, given.threads)
    if given.device == "cpu":
        return
    if not torch.cuda.is_available():
        print("\nno CUDA device: the same path in half precision is not timed here")
        return
    work = mixed(given.cuda_pairs, network.sizes, captions=CAPTIONS)
    name = f"on {torch.cuda.get_device_name()}"
    run(name, work, network, torch.device("cuda"), given.runs, given.threads)


if __name__ == "__main__":
    main()
