"""Whether a card computes what the processor does, and how near its search comes to its own matrix product.

Checked are the error bound, on embeddings that lose as much as a sum can; rankings, to the byte; PCME's probabilities;
the five networks on pictures of `scenes`, ranking and a few
steps learning. The last line says how the search compares with the card's product. The exit
status is 1 where a check fails, and where there is no card: then nothing is checked.

    make gpu-check
    python benchmarks/gpu_check.py --device cpu --items 3000
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from bench_topk_gpu import WIDTH, K, measured_rate, peak_flops
from topk_kit import Space, encoded, unit_vectors

from annotators import registry
from annotators.match_probability import Odds, SampleSet, match_probabilities
from annotators.training.learners import load as load_learner
from annotators.training.reading import Reader
from annotators.training.recipe import Recipe
from annotators.training.taught import Lessons
from annotators.training.training import train
from mitl.core.packed import pack_ids
from mitl.datasets.scenes import generate, write_world
from mitl.datasets.scenes.world import truth_matrix
from mitl.records import CaptionItem, ImageItem
from mitl.retrieval import choosing
from mitl.retrieval.products import Buffers
from mitl.retrieval.topk import top_k, top_k_both
from mitl.retrieval.torch_products import DeviceProduct
from mitl.retrieval.vectors import Vectors

NEAR = {"pvse": 1e-4, "vsrn": 1e-4, "pcme": 1e-3, "vilt": 1e-4, "clip": 1e-4}
"""How far similarities of the small networks may be off: float32 in another order."""

Check = tuple[str, float, float]
"""What was checked, how far it was off, and how far it may be."""


def bound(device: str) -> Iterator[Check]:
    """Products against float64, in shares of their bound: random ones, and chains of which running sums lose all."""
    for name, sides in (
        ("random vectors", [unit_vectors((512, WIDTH), seed) for seed in (1, 2)]),
        *((f"sums of {lanes} lanes", _chains(lanes)) for lanes in (1, 2, 8, 32)),
    ):
        product = DeviceProduct(device)
        one, other = (
            product.load(Vectors(encoded(side, "image")), slice(0, len(side)), where)
            for side, where in zip(sides, ("left", "right"), strict=True)
        )
        near = product.near(product.multiply(one, other, Buffers()), slice(None), slice(None))
        off = np.abs(near - sides[0].astype(np.float64) @ sides[1].T.astype(np.float64))
        allowed = product.errors(one, other)[:, None] + product.rounding * np.abs(near)
        yield f"bound, {name}", float((off / allowed).max()), 1.0


def _chains(lanes: int) -> list[np.ndarray]:
    left = np.full((64, lanes * 128), 2.0**-12, np.float32)
    right = np.full((64, lanes * 128), 2.0**-13, np.float32)
    left[:, :lanes] = left[:, -lanes:] = right[:, :lanes] = 1
    right[:, -lanes:] = -1
    return [left, right]


def rankings(device: str, items: int) -> Iterator[Check]:
    """Both ways, of embeddings with copies among them, against numpy's: rows of other bytes."""
    makers = choosing._makers
    choosing._makers = lambda task: makers(task) | {"cuda": lambda: DeviceProduct(device)}
    sides = (
        encoded(unit_vectors((items // 8, WIDTH), 1), "image"),
        encoded(unit_vectors((items, WIDTH), 2), "caption"),
    )
    sides[1].arrays["embedding"][::7] = sides[1].arrays["embedding"][0]
    by_numpy = top_k_both(Space(), *sides, K, K, backend="numpy")
    for name, found, wanted in (
        ("rankings", (top_k(Space(), *sides, K, backend="cuda"),), by_numpy[:1]),
        ("rankings both ways", top_k_both(Space(), *sides, K, K, backend="cuda"), by_numpy),
    ):
        other = sum(
            int((a.item_ids != b.item_ids).any(1).sum())
            + int((a.similarities != b.similarities).any(1).sum())
            for a, b in zip(found, wanted, strict=True)
        )
        yield name, float(other), 0.0
    choosing._makers = makers


def networks(device: str) -> Iterator[Check]:
    """PCME's probabilities on coinciding and other samples, and all networks' similarities."""
    samples = unit_vectors((40, 7, 1024), 3)
    gallery = np.concatenate([samples, unit_vectors((400, 7, 1024), 4)])
    sides, odds = [SampleSet.of(side) for side in (samples, gallery)], Odds(1, 15)
    there = match_probabilities(*sides, odds, device=torch.device(device))
    yield "probabilities", float(np.abs(there - match_probabilities(*sides, odds)).max()), 1e-5
    with tempfile.TemporaryDirectory() as folder:
        world = generate(20, seed=5, split="check")
        write_world(world, Path(folder))
        images = [ImageItem(int(i), i, Path(folder) / "images" / f"{i}.png") for i in world.scenes]
        captions = [CaptionItem(int(i), i, int(c.image_id), c.text) for i, c in world.captions.items()]
        for name, near in NEAR.items():
            found = []
            for where in ("cpu", device):
                annotator = registry.build(f"{name}-mini", {"device": where})
                sides = annotator.encode_images(images), annotator.encode_captions(captions)
                found.append(annotator.similarities(*sides))
            yield f"{name}-mini", float(np.abs(found[0] - found[1]).max()), near


def trainings(device: str) -> Iterator[Check]:
    """A few steps of each network: losses of the first as on the processor, and of all precisions some number."""
    with tempfile.TemporaryDirectory() as folder:
        world = generate(16, seed=6, split="check")
        write_world(world, Path(folder))
        pictures = [
            ImageItem(row, i, Path(folder) / "images" / f"{i}.png") for row, i in enumerate(world.scenes)
        ]
        row_of = {item.external_id: item.id for item in pictures}
        captions = [
            CaptionItem(row, i, row_of[str(c.image_id)], c.text)
            for row, (i, c) in enumerate(world.captions.items())
        ]
        label = truth_matrix(world, list(world.scenes), list(world.captions)).ravel() - 1
        pairs = pack_ids(*np.indices((len(pictures), len(captions))).reshape(2, -1))
        columns = {"pair": pairs, "grade": 1 - label / 3, "positive": label <= 1, "n": 1, "original": False}
        lessons = Lessons.of(pd.DataFrame(columns), pictures, captions)
        for name, near in NEAR.items():
            losses = []
            for where, precision in (("cpu", "float32"), (device, "float32"), (device, "bfloat16")):
                learner = load_learner(f"{name}-mini", device=where)
                recipe = Recipe(steps=4, head_steps=2, batch=8, looks=4, precision=precision, patience=0)
                rows = train(learner, lessons, recipe, Reader(learner, pictures, captions)).rows
                losses.append([row.loss for row in rows[1:]])
            yield f"{name}-mini, loss of the first step", abs(losses[1][0] - losses[0][0]), 10 * near
            yield (
                f"{name}-mini, steps in bfloat16 without a loss",
                float(4 - np.isfinite(losses[2]).sum()),
                0.0,
            )


def main() -> None:
    """Check, print a line for each, and leave with 1 where one fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--items", type=int, default=100_000, help="of the gallery that is ranked and timed")
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit("torch sees no CUDA device here, so nothing was checked")
    failed = 0
    device = options.device
    for checks in (bound(device), rankings(device, options.items), networks(device), trainings(device)):
        for name, off, most in checks:
            failed += not off <= most
            print(
                f"{'ok    ' if off <= most else 'FAILED'} {name}: {off:.3g} of at most {most:g}", flush=True
            )
    peak = peak_flops(options.device, min(8192, options.items))
    rate = measured_rate(options.device, options.items // 8, options.items, 2)
    print(
        f"search at {100 * 2 * WIDTH * rate / peak:.0f} % of this device's product, {peak / 1e12:.2f} TFLOP/s"
    )
    sys.exit(f"{failed} of the checks failed" if failed else 0)


if __name__ == "__main__":
    main()
