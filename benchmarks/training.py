"""Whether an annotator that learns from people's answers ranks better: mAP@R of held-out queries, before and after.

Four of the small networks propose on a world of scenes (the best five of each query, both ways), scripted workers
answer each proposed pair once, and a network learns from the answers and the originals. A part of the images teaches
nothing, they, their captions and all pairs with either: these are the queries, which search the whole world; the
truth of all pairs says what is right. Each seed is another world, another crowd and another training.

    python benchmarks/training.py
    python benchmarks/training.py --network pvse-mini clip-mini --labels binary graded --seeds 1 2 3 4 5 6
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.stats
import torch
from crowd_answers import Crowd
from numpy.typing import NDArray
from shared_kit import parser_of

from annotators.training.learners import load
from annotators.training.reading import Reader, map_at_r, similarities_of
from annotators.training.recipe import KEPT, LabelKind, Recipe
from annotators.training.taught import Lessons
from annotators.training.training import train
from mitl.core.arrays import contains, distinct, pack_ids, unpack_ids
from mitl.datasets.scenes.files import write_items
from mitl.datasets.scenes.world import generate, truth_matrix
from mitl.records import CaptionItem, ImageItem
from mitl.records.frames import frame
from mitl.records.rounds import TEACHING

PROPOSERS = ("pvse-mini", "vsrn-mini", "pcme-mini", "clip-mini")
TOP_K = 5
TESTED = 0.3
"""Share of the images whose queries are scored, and which teach nothing."""


@dataclass(frozen=True, eq=False)
class Study:
    """A world whose proposed pairs are answered."""

    images: Sequence[ImageItem]
    captions: Sequence[CaptionItem]
    truth: NDArray[np.bool_]
    """(images, captions)."""
    teaching: pd.DataFrame
    tested: NDArray[np.int64]
    """Rows of images."""
    answers: int


def study(folder: Path, images: int, seed: int, population: str) -> Study:
    """A world of so many images, proposed on and answered."""
    world = generate(images, seed=seed, split="training-study")
    pictures, captions = write_items(world, folder, by_place=True)
    codes = truth_matrix(world, list(world.scenes), list(world.captions))
    every = np.arange(len(pictures)), np.arange(len(captions))
    proposed = []
    for name in PROPOSERS:
        learner = load(name)
        found = similarities_of(learner, Reader(learner, pictures, captions), *every)
        by_image = np.argsort(-found, axis=1)[:, :TOP_K]
        by_caption = np.argsort(-found, axis=0)[:TOP_K].T
        proposed.append(pack_ids(np.repeat(every[0], TOP_K), by_image.ravel()))
        proposed.append(pack_ids(by_caption.ravel(), np.repeat(every[1], TOP_K)))
    rng = np.random.default_rng((seed, 1))
    own = np.array([caption.image_id for caption in captions])
    tested = np.sort(rng.permutation(every[0])[: round(TESTED * len(pictures))])
    originals = pack_ids(own, every[1])
    pairs = distinct(np.concatenate([*proposed, originals]))
    asked = contains(distinct(np.concatenate(proposed)), pairs)
    left, right = unpack_ids(pairs)
    teaches = ~np.isin(left, tested) & ~np.isin(own[right], tested)
    asked &= teaches
    crowd = Crowd((codes[left, right] - 1).astype(np.int8), population, rng)
    label = np.zeros(len(pairs), np.int8)
    label[asked] = crowd.ask(np.flatnonzero(asked))[0]
    table = frame(
        TEACHING,
        {
            "pair": pairs,
            "grade": 1 - label / 3,
            "positive": label <= 1,
            "n": asked.astype(np.int32),
            "original": contains(np.sort(originals), pairs),
        },
    )
    kept = table[teaches & (asked | table["original"].to_numpy())].reset_index(drop=True)
    return Study(pictures, captions, codes <= 2, kept, tested, crowd.answered)


def scored(found: Study, similarities: NDArray[np.float32]) -> float:
    """mAP@R of the tested images and of their captions, averaged, against the truth."""
    own = np.array([caption.image_id for caption in found.captions])
    captions = np.flatnonzero(np.isin(own, found.tested) & found.truth.any(0))
    i2t = map_at_r(similarities[found.tested], found.truth[found.tested])
    return (i2t + map_at_r(similarities.T[captions], found.truth.T[captions])) / 2


def interval(gains: NDArray[np.float64]) -> tuple[float, float]:
    """Student's 95 % interval of a mean."""
    if len(gains) < 2:
        return np.nan, np.nan
    half = scipy.stats.t.ppf(0.975, len(gains) - 1) * gains.std(ddof=1) / np.sqrt(len(gains))
    return gains.mean() - half, gains.mean() + half


def main() -> None:
    """Print a line for each training and one for each recipe."""
    parser = parser_of(__doc__)
    parser.add_argument("--network", nargs="+", default=["clip-mini"])
    parser.add_argument("--loss", nargs="+", default=[Recipe().loss])
    parser.add_argument("--labels", nargs="+", default=[LabelKind.GRADED.value], choices=list(LabelKind))
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="a world, crowd and training each")
    parser.add_argument("--steps", type=int, default=Recipe().steps)
    parser.add_argument("--rate", type=float, default=Recipe().rate)
    parser.add_argument("--head-steps", type=int, default=Recipe().head_steps)
    parser.add_argument("--batch", type=int, default=Recipe().batch)
    parser.add_argument("--keep", default=Recipe().keep, choices=KEPT, help="which weights are scored")
    parser.add_argument("--population", default="careful", help="as mitl simulate takes it")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for seed in asked.seeds:
        with tempfile.TemporaryDirectory() as folder:
            found = study(Path(folder), asked.images, seed, asked.population)
            lessons = Lessons.of(found.teaching, found.images, found.captions)
            print(
                f"seed {seed}: {lessons.judged.sum():,} pairs judged, {found.answers:,} answers, "
                f"{lessons.positive[lessons.judged].mean():.0%} matches",
                flush=True,
            )
            for network in asked.network:
                for loss in asked.loss:
                    for labels in asked.labels:
                        recipe = Recipe(
                            loss=loss,
                            labels=LabelKind(labels),
                            steps=asked.steps,
                            rate=asked.rate,
                            head_steps=asked.head_steps,
                            batch=asked.batch,
                            keep=asked.keep,
                            seed=seed,
                        )
                        began = time.process_time()
                        key = network, loss, labels
                        results.setdefault(key, []).append(trained(found, lessons, network, recipe))
                        before, after = results[key][-1]
                        print(
                            f"  {' '.join(key)}: {before:.4f} -> {after:.4f}, {time.process_time() - began:.0f} s",
                            flush=True,
                        )
    for key, pairs in results.items():
        before, after = np.array(pairs).T
        low, high = interval(after - before)
        print(
            f"{' '.join(key)}: mAP@R {before.mean():.4f} -> {after.mean():.4f}, {(after - before).mean():+.4f} "
            f"({low:+.4f} to {high:+.4f}) over {len(before)} seeds"
        )


def trained(found: Study, lessons: Lessons, network: str, recipe: Recipe) -> tuple[float, float]:
    """mAP@R of the tested queries before and after a training."""
    learner = load(network)
    reader = Reader(learner, found.images, found.captions)
    every = np.arange(len(found.images)), np.arange(len(found.captions))
    before = scored(found, similarities_of(learner, reader, *every))
    done = train(learner, lessons, recipe, reader)
    print(
        "   ", *(f"{row.step}:{row.map_at_r:.3f}" for row in done.rows), f"best {done.best.step}", flush=True
    )
    return before, scored(found, similarities_of(learner, reader, *every))


if __name__ == "__main__":
    main()
