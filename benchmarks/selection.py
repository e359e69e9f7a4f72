"""Whose texts to collect next: Jo et al.'s scenario on generated scenes, its Algorithm 2 against Core-set and chance.

Of a world's images 30 % have their five captions, the others have none. A network learns from the former; three times
then a strategy names 5 % of the images, people give their captions, and the network is trained anew from the same
untrained weights. All strategies share the first training, the budget, the start and the order of batches. Scores are
on another world, over all its queries both ways: R@1 by originals, mAP@R by the known truth (yes or weak yes). A seed
is two worlds, a first 30 %, a start and an order of batches.

    python benchmarks/selection.py --seeds 3 --images 600 --steps 100

Intervals are 95 % ones of Student's t over seeds; differences are paired by seed.
Source: Jo et al., "Active Learning for Finely-Categorized Image-Text Retrieval by Selecting Hard Negative Unpaired
Samples", Algorithms 1 and 2.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import t as student
from shared_kit import parser_of

from annotators.minis.train import HELD_OUT, TRAINING, Training, TrainingPairs, pairs_of, recalls
from annotators.minis.twin import Twin
from annotators.minis.twins import TWINS, TwinRecipe
from annotators.training.reading import map_at_r
from mitl.core.arrays import Ints
from mitl.datasets.scenes import World, generate, truth_matrix
from mitl.datasets.scenes.world import CAPTIONS_PER_IMAGE
from mitl.records import Label
from mitl.selection.choice import draws
from mitl.selection.coreset import core_set
from mitl.selection.hard_negatives import (
    HardNegatives,
    Unpaired,
    hard_share,
    hardest,
    of_array,
    unpaired_scores,
)

FIRST, EACH, EPOCHS = 0.3, 0.05, 3
"""Shares of the images that have captions at first, and that get them at each of the epochs (the paper's)."""
SAMPLE = 2560 / 29_000
"""Of the images, what the paper's mini-batch is of Flickr30K's."""
N_UNSEEN, N_WORDS = 200, 60
"""Images of the world that scores, and of the one whose captions the network's words are taken from."""
BATCH, RATE, CAPTIONS = 32, 3e-3, 2
NETWORKS = [name for name in TWINS if name != "vilt-mini"]
MEASURES = {
    "r1": "R@1 sum, %",
    "map_at_r": "mAP@R, %",
    "full": "hard, full batch, %",
    "mini": "hard, mini-batch, %",
}


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What a strategy may look at: the trained network's view of all images and of the captions that are there."""

    unpaired: Unpaired
    vectors: NDArray[np.float32]
    """(N, D) of all images."""
    sample: int
    seed: int
    """Of all that is drawn; another one for each epoch."""

    @property
    def full_batch(self) -> HardNegatives:
        """Thresholds over all paired images, surplus."""
        return HardNegatives(seed=self.seed)

    @property
    def mini_batch(self) -> HardNegatives:
        """Thresholds over a part of them, surplus."""
        return HardNegatives(sample=self.sample, seed=self.seed)


def _by_chance(seen: Seen, n: int) -> Ints:
    rows = seen.unpaired.rows
    return rows[np.argsort(draws(rows, seen.seed, "images by chance"), kind="stable")[:n]]


STRATEGIES: dict[str, Callable[[Seen, int], Ints]] = {
    "random": _by_chance,
    "Core-set": lambda seen, n: core_set(seen.vectors, seen.unpaired.paired, n)[0],
    "full batch": lambda seen, n: hardest(seen.unpaired, n, seen.full_batch)[0],
    "mini-batch": lambda seen, n: hardest(seen.unpaired, n, seen.mini_batch)[0],
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything."""

    network: str
    images: int
    steps: int

    @property
    def first(self) -> int:
        """Images that have captions at first."""
        return round(FIRST * self.images)

    @property
    def each(self) -> int:
        """Images that get captions at each epoch."""
        return round(EACH * self.images)


class Scenario:
    """One seed's worlds, read once, and what trainings on parts of the first one come to."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self._plan, self._seed = plan, seed
        # Words of a third world: the untrained network is the same whatever has captions.
        self._words = generate(N_WORDS, seed=seed, split="words")
        twin = self._untrained().twin
        unseen = generate(N_UNSEEN, seed=seed, split=HELD_OUT)
        self._all = pairs_of(generate(plan.images, seed=seed, split=TRAINING), twin)
        self._unseen, self._truth = pairs_of(unseen, twin), _matches(unseen)
        order = np.random.default_rng((seed, 1)).permutation(plan.images)
        self.first: Ints = np.sort(order[: plan.first])

    def trained(self, paired: Ints) -> Twin[Any]:
        """A network that learnt from these images and their captions."""
        training = self._untrained()
        # What a training says on the way is of no use here: it measures itself on a single image.
        single, training.pairs = _part(training.pairs, np.arange(1)), _part(self._all, paired)
        training.run(single, lambda _: None)
        return training.twin

    def scores(self, twin: Twin[Any]) -> dict[str, float]:
        """R@1 of both directions and their sum, and mAP@R, on the unseen world; %."""
        found = _similarities(twin, self._unseen)
        i2t, _, _, t2i, _, _ = recalls(found, CAPTIONS_PER_IMAGE)
        captions = self._truth.any(0)
        by_truth = [
            map_at_r(found, self._truth),
            map_at_r(found.T[captions], self._truth.T[captions]),
        ]
        return {
            "i2t_r1": 100 * i2t,
            "t2i_r1": 100 * t2i,
            "r1": 100 * (i2t + t2i),
            "map_at_r": 100 * float(np.mean(by_truth)),
        }

    def seen(self, twin: Twin[Any], paired: Ints, epoch: int) -> Seen:
        """What strategies may look at once these images have captions."""
        part = _part(self._all, paired)
        with torch.inference_mode():
            images = twin.images(self._all.batch(np.arange(self._plan.images)))
            found = twin.compare(images, twin.captions(part.captions)).numpy()
        vectors = images["mean" if "mean" in images else "embedding"].flatten(1).numpy()
        rest = np.setdiff1d(np.arange(self._plan.images), paired)
        own = np.repeat(np.arange(len(paired)), CAPTIONS_PER_IMAGE)
        unpaired = Unpaired(of_array(found), rest, paired, own)
        return Seen(unpaired, vectors, round(SAMPLE * self._plan.images), 100 * self._seed + epoch)

    def _untrained(self) -> Training:
        recipe = TwinRecipe(self._plan.steps, BATCH, RATE, CAPTIONS)
        return Training(self._plan.network, self._words, recipe, seed=self._seed)


def run(plan: Plan, seed: int) -> list[dict[str, Any]]:
    """A row for each strategy and epoch: scores, and the share of images without captions that are hard negatives."""
    scenario = Scenario(plan, seed)
    start = scenario.trained(scenario.first)
    rows = []
    for name, strategy in STRATEGIES.items():
        began = time.process_time()
        twin, paired = start, scenario.first
        for epoch in range(EPOCHS + 1):
            seen = scenario.seen(twin, paired, epoch)
            row = {"seed": seed, "strategy": name, "epoch": epoch, **scenario.scores(twin)}
            for column, rule in (("full", seen.full_batch), ("mini", seen.mini_batch)):
                row[column] = 100 * hard_share(unpaired_scores(seen.unpaired, rule))
            rows.append(row)
            if epoch < EPOCHS:
                paired = np.sort(np.append(paired, strategy(seen, plan.each)))
                assert len(np.unique(paired)) == plan.first + (epoch + 1) * plan.each
                twin = scenario.trained(paired)
        print(
            f"seed {seed}, {name}:",
            *(f"{row['r1']:.1f}/{row['map_at_r']:.2f}/{row['full']:.0f}" for row in rows[-EPOCHS - 1 :]),
            f"{time.process_time() - began:.0f} s",
            flush=True,
        )
    return rows


def table(rows: pd.DataFrame) -> str:
    """Means over seeds by strategy and epoch, then each strategy less chance, over the epochs and at the last."""
    heads = [f"{round(100 * (FIRST + EACH * epoch))} %" for epoch in range(EPOCHS + 1)]
    lines = []
    for measure, title in MEASURES.items():
        lines += ["", f"| {title} | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
        for name in STRATEGIES:
            by_epoch = _by_epoch(rows, name, measure)
            lines.append(f"| {name} | {' | '.join(_with_interval(column) for column in by_epoch.T)} |")
    lines += ["", "| less chance | R@1 sum, mean | R@1 sum, last | mAP@R, mean | mAP@R, last |"]
    lines.append(f"|---|{'---:|' * 4}")
    for name in list(STRATEGIES)[1:]:
        cells = []
        for measure in ("r1", "map_at_r"):
            gains = (_by_epoch(rows, name, measure) - _by_epoch(rows, "random", measure))[:, 1:]
            cells += [_with_interval(gains.mean(axis=1), "+"), _with_interval(gains[:, -1], "+")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _by_epoch(rows: pd.DataFrame, name: str, measure: str) -> NDArray[np.float64]:
    """(seeds, epochs)"""
    return rows[rows["strategy"] == name].pivot(index="seed", columns="epoch", values=measure).to_numpy()


def _with_interval(values: NDArray[np.float64], sign: str = "") -> str:
    """Mean and half width of its interval."""
    if len(values) < 2:
        return f"{values.mean():{sign}.1f}"
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():{sign}.1f} ± {half:.1f}"


def _matches(world: World) -> NDArray[np.bool_]:
    """(I, C)"""
    return truth_matrix(world, list(world.scenes), list(world.captions)) <= Label.WEAK_YES.code


def _part(pairs: TrainingPairs, rows: Ints) -> TrainingPairs:
    """These pictures and their captions."""
    each = pairs.captions_per_image
    captions = (rows[:, None] * each + np.arange(each)).ravel()
    return TrainingPairs(pairs.pixels[rows], pairs.captions.rows(torch.from_numpy(captions)))


def _similarities(twin: Twin[Any], pairs: TrainingPairs) -> NDArray[np.float32]:
    """(I, C) of all of these."""
    with torch.inference_mode():
        found: NDArray[np.float32] = twin.similarities(
            pairs.batch(np.arange(len(pairs.pixels))), pairs.captions
        ).numpy()
    return found


def main() -> None:
    """Print a line for each seed and strategy, and after each seed the tables of what is done."""
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--images", type=int, default=600, help="of the world that is chosen from")
    parser.add_argument("--steps", type=int, default=100, help="of a training")
    parser.add_argument("--network", default="pvse-mini", choices=NETWORKS)
    asked = parser.parse_args()
    plan = Plan(asked.network, asked.images, asked.steps)
    if plan.first < BATCH:
        parser.error(f"{plan.first} of {asked.images} images are paired at first, and a batch has {BATCH}")
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for seed in range(asked.seeds):
        rows += run(plan, seed)
        print(f"\nafter {seed + 1} of {asked.seeds} seeds:\n{table(pd.DataFrame(rows))}\n", flush=True)


if __name__ == "__main__":
    main()
