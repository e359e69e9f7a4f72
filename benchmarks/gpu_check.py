"""Whether a card computes what the processor does, and how near its work comes to its own matrix product.

Checked are the error bound, on embeddings that lose as much as a sum can; rankings, to the byte, with the process set
to every reduced precision; PCME's probabilities; the five networks on pictures of `scenes`, ranking and a few steps
learning; and the tests that use a card. Then the searches, ViLT and PCME are timed. All of it goes into one file of
figures. The exit status is 1 where a check fails, and where there is no card: then nothing is checked.

    make gpu-check
    python benchmarks/gpu_check.py --device cpu --items 3000 --no-figures
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from bench_topk_gpu import K, measured, peak_flops
from shared_kit import parser_of
from topk_kit import Space, encoded, unit_vectors

from annotators import registry
from annotators.match_probability import Odds, SampleSet, match_probabilities
from annotators.training.learners import load as load_learner
from annotators.training.reading import Reader
from annotators.training.recipe import Recipe
from annotators.training.taught import Lessons
from annotators.training.training import train
from mitl.core.arrays import pack_ids
from mitl.datasets.scenes import generate, write_items
from mitl.datasets.scenes.world import truth_matrix
from mitl.retrieval import choosing
from mitl.retrieval.card import sieve_for
from mitl.retrieval.card_sieve import ROUNDOFF, CardBlock, Sieve, errors
from mitl.retrieval.processor import exactly
from mitl.retrieval.topk import top_k, top_k_both

WIDTH = 512
ROOT = Path(__file__).resolve().parents[1]
NEAR = {"pvse": 1e-4, "vsrn": 1e-4, "pcme": 1e-3, "vilt": 1e-4, "clip": 1e-4}
"""How far similarities of the small networks may be off: float32 in another order."""

Check = tuple[str, float, float]
"""What was checked, how far it was off, and how far it may be."""


def bound(device: str) -> Iterator[Check]:
    """Near values against float64, in shares of their bound: random ones, and chains whose running sums lose all."""
    where = torch.device(device)
    for name, sides in (
        ("random vectors", [unit_vectors((512, WIDTH), seed) for seed in (1, 2)]),
        *((f"sums of {lanes} lanes", _chains(lanes)) for lanes in (1, 2, 8, 32)),
    ):
        with exactly():
            left, right = (CardBlock.of(torch, torch.from_numpy(side[:, None]).to(where)) for side in sides)
            yield f"bound, {name}", _share_of_bound(sieve_for(torch, where), left, right), 1.0


def _share_of_bound(sieve: Sieve, left: CardBlock, right: CardBlock) -> float:
    """How far a floor may rise above each row's similarity with its own column until they are let go, by bisection.

    A floor at the similarity itself must find the pair, and only one above it by twice the bound may always lose it.
    """
    count, least = (
        len(left),
        torch.full((len(right),), torch.inf, dtype=torch.float64, device=left.exact.device),
    )
    rows = torch.arange(count, device=left.exact.device)
    exact = (left.exact[:, 0].double() * right.exact[:, 0].double()).sum(1)
    allowed = errors(left, right, unit=ROUNDOFF, losses=True)
    low, high = torch.full_like(exact, -1.0), torch.full_like(exact, 3.0)
    for _ in range(40):
        middle = (low + high) / 2
        pairs = sieve.sift(left, right, exact + (middle - 1) * allowed, least, count * len(right))
        assert pairs is not None, "there is room for all pairs"
        kept = torch.zeros(count, dtype=torch.bool, device=rows.device)
        kept[pairs[0][pairs[0] == pairs[1]]] = True
        low, high = torch.where(kept, middle, low), torch.where(kept, high, middle)
    # Kept is a pair whose near value is no more than its bound below the floor: low = 1 + (near - exact) / allowed.
    return float((low - 1).abs().max())


def _chains(lanes: int) -> list[np.ndarray]:
    left = np.full((64, lanes * 128), 2.0**-12, np.float32)
    right = np.full((64, lanes * 128), 2.0**-13, np.float32)
    left[:, :lanes] = left[:, -lanes:] = right[:, :lanes] = 1
    right[:, -lanes:] = -1
    return [left, right]


@contextmanager
def careless() -> Iterator[None]:
    """The process allows every reduced precision that torch knows of."""
    matmul, before = torch.backends.cuda.matmul, torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    for name in ("fp16", "bf16"):
        setattr(matmul, f"allow_{name}_reduced_precision_reduction", True)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def rankings(device: str, items: int) -> Iterator[Check]:
    """Both ways, of embeddings with copies among them, against numpy's: rows of other bytes."""
    choosing.CARD = device
    for several in (1, 2):
        sides = (
            encoded(unit_vectors((items // 8, several, WIDTH), 1), "image"),
            encoded(unit_vectors((items, several, WIDTH), 2), "caption"),
        )
        sides[1].arrays["embedding"][::7] = sides[1].arrays["embedding"][0]
        space, label = Space(several=several > 1), f", {several} vectors an item" if several > 1 else ""
        by_numpy = top_k_both(space, *sides, K, K, backend="numpy")
        with careless():
            one_way = (top_k(space, *sides, K, backend="cuda"),)
            both_ways = top_k_both(space, *sides, K, K, backend="cuda")
        for name, found, wanted in (
            (f"rankings{label}", one_way, by_numpy[:1]),
            (f"rankings both ways{label}", both_ways, by_numpy),
        ):
            other = sum(
                int((a.item_ids != b.item_ids).any(1).sum())
                + int((a.similarities != b.similarities).any(1).sum())
                for a, b in zip(found, wanted, strict=True)
            )
            yield name, float(other), 0.0


def networks(device: str) -> Iterator[Check]:
    """PCME's probabilities on coinciding and other samples, and all networks' similarities."""
    samples = unit_vectors((40, 7, 1024), 3)
    gallery = np.concatenate([samples, unit_vectors((400, 7, 1024), 4)])
    sides, odds = [SampleSet.of(side) for side in (samples, gallery)], Odds(1, 15)
    there = match_probabilities(*sides, odds, device=torch.device(device))
    yield "probabilities", float(np.abs(there - match_probabilities(*sides, odds)).max()), 1e-5
    with tempfile.TemporaryDirectory() as folder:
        world = generate(20, seed=5, split="check")
        images, captions = write_items(world, Path(folder))
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
        pictures, captions = write_items(world, Path(folder), by_place=True)
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


TESTS = ("tests/retrieval", "tests/annotators", "tests/training")
FIGURES = (
    ("ViLT", ("bench_vilt.py", "--device", "cuda", "--runs", "3")),
    ("PCME's match probability", ("bench_pcme.py", "--device", "cuda")),
)


def tests() -> Iterator[Check]:
    """Those that use a card where there is one."""
    run = [sys.executable, "-m", "pytest", "-q", "-k", "cuda or gpu or loops_find or loops_compile", *TESTS]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True)
    print((done.stdout + done.stderr)[-2000:], flush=True)
    yield "tests that use a card, exit status", float(done.returncode), 0.0


def figures(device: str) -> Iterator[str]:
    """The card, its own products, the searches as shares of them, and what other benchmarks print."""
    properties = torch.cuda.get_device_properties(device)
    yield f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, torch {torch.__version__}"
    for dtype in ("float16", "bfloat16", "float32"):
        side = 8192 if dtype != "float32" else 4096
        with exactly():
            peak = peak_flops(device, side, dtype)
        yield f"product of squares of {side:,} in {dtype}: {peak / 1e12:,.1f} TFLOP/s"
    yield "\n| search | queries | items | width | seconds | of the float16 product | 12.4 million², minutes |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for row in measured(device):
        yield "| " + " | ".join(str(value) for value in row.values()) + " |"
    for name, (script, *options) in FIGURES:
        run = [sys.executable, str(ROOT / "benchmarks" / script), *options]
        done = subprocess.run(run, capture_output=True, text=True)
        yield f"\n## {name}\n\n`python benchmarks/{' '.join([script, *options])}`\n\n{done.stdout}{done.stderr}"


def main() -> None:
    """Check, print a line for each, write the figures, and leave with 1 where a check fails."""
    parser = parser_of(__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--items", type=int, default=40_000, help="of the gallery that is ranked")
    parser.add_argument("--figures", type=Path, default=Path("gpu-figures.md"), help="the file of figures")
    parser.add_argument("--no-figures", action="store_true", help="check only")
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit("torch sees no CUDA device here, so nothing was checked")
    failed, lines, device = 0, ["# What `make gpu-check` found\n"], options.device

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    checks = [bound(device), rankings(device, options.items), networks(device), trainings(device)]
    for found in [*checks, tests()] if device.startswith("cuda") else checks:
        for name, off, most in found:
            failed += not off <= most
            say(f"- {'ok' if off <= most else 'FAILED'}: {name}: {off:.3g} of at most {most:g}")
    if not options.no_figures:
        say("")
        for line in figures(device):
            say(line)
            # Line by line: a run that is cut off keeps what it has.
            options.figures.write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"written to {options.figures}")
    sys.exit(f"{failed} of the checks failed" if failed else 0)


if __name__ == "__main__":
    main()
