"""Train the small twins on generated scenes: ``python -m annotators.minis.train NAME|all --seed 0``.

Only original pairs teach, as in the papers: an image and one of its own captions belong together, every other
pair of the batch does not. So the networks make the errors of networks trained on incomplete data. One thread,
some minutes a network; NAME.safetensors and NAME.log.csv go to ``--out``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from annotators.catalog import KS
from annotators.devices import on_threads
from annotators.encoding import padded
from annotators.minis.twin import Captions, Twin
from annotators.minis.twins import RECIPES, TWINS, TwinRecipe
from annotators.registry import WEIGHTS
from annotators.training.files import write_weights
from mitl.core.formats import csv_bytes
from mitl.datasets.scenes import World, draw, generate

TRAINING, HELD_OUT = "train", "held-out"
"""Splits; a demonstration has its own."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingPairs:
    """Pictures (N, 3, S, S) float16 and each one's captions, one after the other: C for each, N C in all."""

    pixels: NDArray[np.float16]
    captions: Captions

    @property
    def captions_per_image(self) -> int:
        """C."""
        return len(self.captions) // len(self.pixels)

    def batch(self, rows: NDArray[np.int64], dy: int = 0, dx: int = 0) -> Tensor:
        """(B, 3, S, S) float32: these pictures, moved by some pixels with the border repeated."""
        pixels = torch.from_numpy(self.pixels[rows]).float()
        for axis, by in ((2, dy), (3, dx)):
            size = pixels.shape[axis]
            pixels = pixels.index_select(axis, (torch.arange(size) - by).clamp(0, size - 1))
        return pixels


def texts_of(world: World) -> list[str]:
    """The captions of a world, image by image."""
    return [caption.text for caption in world.captions.values()]


def pairs_of(world: World, twin: Twin[Any]) -> TrainingPairs:
    """The world as this twin's network reads it, with the captions that the world gives, defects included."""
    pixels = np.stack([twin.pixels(draw(scene)).astype(np.float16) for scene in world.scenes.values()])
    captions = padded([twin.encode(text) for text in texts_of(world)])
    return TrainingPairs(pixels, Captions(*captions))


def recalls(similarities: NDArray[np.float32], captions_per_image: int) -> tuple[float, ...]:
    """R@1, R@5, R@10 of images as queries, then of captions as queries, from 0 to 1.

    Args:
        similarities: (N, N C); the captions of image n are the columns n C to n C + C - 1.
    """
    image_of = np.arange(similarities.shape[1]) // captions_per_image  # (N C,)
    images = np.arange(len(similarities))
    by_image = image_of[_order(similarities)] == images[:, None]  # (N, N C), best first
    by_caption = _order(similarities.T) == image_of[:, None]  # (N C, N)
    return tuple(float(hits[:, :k].any(1).mean()) for hits in (by_image, by_caption) for k in KS)


def _order(similarities: NDArray[np.float32]) -> NDArray[np.int64]:
    return np.argsort(-similarities, axis=1, kind="stable")


def save(path: Path, twin: Twin[Any], training: Mapping[str, Any]) -> None:
    """Write the tensors as float16, with the sizes, the words and what is said of the training."""
    tensors = {
        name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in twin.state().items()
    }
    said = {"network": twin.network_name, "training": json.dumps(dict(training), sort_keys=True)}
    write_weights(path, tensors, {**said, **twin.metadata()})


VERSION = 2
N_IMAGES, N_HELD_OUT = 12_000, 100
SHIFT = 3
"""Pixels by which a batch of training pictures may be moved; it must not be mirrored, left is not right."""
WARM_UP = 0.06
"""Share of the steps over which the learning rate rises before it falls along a cosine."""
LARGEST_GRADIENT = 2.0
ROWS = 10
"""Rows of the log."""


@dataclass(frozen=True, slots=True)
class LogRow:
    """How far a training is; shares from 0 to 1 on originals of held-out scenes."""

    step: int
    loss: float
    """Mean since the row before."""
    seconds: float
    """Of the processor, from the first step on, without measuring."""
    i2t_r1: float
    i2t_r5: float
    i2t_r10: float
    t2i_r1: float
    t2i_r5: float
    t2i_r10: float


class Training:
    """One network on its way; the same seed gives the same weights on one machine."""

    def __init__(self, name: str, world: World, recipe: TwinRecipe, *, seed: int) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.twin: Twin[Any] = TWINS[name](texts_of(world))
        self.pairs, self.recipe = pairs_of(world, self.twin), recipe
        self._draw = np.random.default_rng(seed)
        self._generator = torch.Generator().manual_seed(seed)
        self._optimizer = torch.optim.AdamW(
            self.twin.parameters(), lr=recipe.rate, weight_decay=recipe.weight_decay
        )

    def run(self, held_out: TrainingPairs, after: Callable[[LogRow], None]) -> list[LogRow]:
        """All steps; ``after`` is told each row of the log."""
        rows, losses, spent = [], [], 0.0
        # On several threads gradients are summed in an order that changes from run to run.
        with on_threads(1):
            marks = {math.ceil(self.recipe.steps * part / ROWS) for part in range(1, ROWS + 1)}
            started = time.process_time()
            for step in range(self.recipe.steps):
                losses.append(self._step(step / self.recipe.steps))
                if step + 1 in marks:
                    spent += time.process_time() - started
                    rows.append(self._row(step + 1, float(np.mean(losses)), spent, held_out))
                    after(rows[-1])
                    losses, started = [], time.process_time()
        self.twin.network.eval()
        return rows

    def _step(self, progress: float) -> float:
        for group in self._optimizer.param_groups:
            group["lr"] = self.recipe.rate * _pace(progress)
        loss = self.twin.loss(*self._batch(), self._generator)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.twin.parameters(), LARGEST_GRADIENT)
        self._optimizer.step()
        return loss.item()

    def _batch(self) -> tuple[torch.Tensor, Sequence[Captions]]:
        pairs, recipe, per_image = self.pairs, self.recipe, self.pairs.captions_per_image
        rows = self._draw.choice(len(pairs.pixels), recipe.batch, replace=False)
        dy, dx = self._draw.integers(-SHIFT, SHIFT + 1, size=2).tolist()
        order = self._draw.permuted(np.tile(np.arange(per_image), (recipe.batch, 1)), axis=1)
        chosen = [torch.from_numpy(rows * per_image + which) for which in order.T[: recipe.captions]]
        return pairs.batch(rows, dy, dx), [pairs.captions.rows(index) for index in chosen]

    def _row(self, step: int, loss: float, seconds: float, held_out: TrainingPairs) -> LogRow:
        self.twin.network.eval()
        with torch.inference_mode():
            similarities = self.twin.similarities(
                held_out.batch(np.arange(len(held_out.pixels))), held_out.captions
            )
        self.twin.network.train()
        found_recalls = recalls(similarities.numpy(), held_out.captions_per_image)
        return LogRow(step, round(loss, 5), round(seconds, 1), *(round(value, 4) for value in found_recalls))


def _pace(progress: float) -> float:
    if progress < WARM_UP:
        return progress / WARM_UP + 0.01
    return 0.5 + 0.5 * math.cos(math.pi * (progress - WARM_UP) / (1 - WARM_UP))


def write_log(path: Path, rows: Sequence[LogRow]) -> None:
    """The log as CSV."""
    path.write_bytes(csv_bytes([LogRow.__slots__, *(astuple(row) for row in rows)]))


def train_into(folder: Path, name: str, world: World, unseen: World, *, seed: int) -> None:
    """Train one network; its weights and log are written with each row of the log, so that little can be lost."""
    training = Training(name, world, RECIPES[name], seed=seed)
    said = {"script": VERSION, "seed": seed, "split": TRAINING, "images": len(world.scenes)}
    rows: list[LogRow] = []

    def after(row: LogRow) -> None:
        rows.append(row)
        print(f"{name}: {row}", file=sys.stderr)
        stated = {**said, **asdict(training.recipe), "trained_steps": row.step}
        save(folder / f"{name}.safetensors", training.twin, stated)
        write_log(folder / f"{name}.log.csv", rows)

    training.run(pairs_of(unseen, training.twin), after)


def main() -> None:
    """Train the networks named on the command line and write their weights and logs."""
    parser = argparse.ArgumentParser(prog="python -m annotators.minis.train", description=__doc__)
    parser.add_argument("name", choices=[*RECIPES, "all"])
    parser.add_argument("--seed", type=int, default=0, help="of the world and the weights (default 0)")
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="folder of the weights")
    parser.add_argument("--images", type=int, default=N_IMAGES, help=f"training images (default {N_IMAGES})")
    arguments = parser.parse_args()
    world = generate(arguments.images, seed=arguments.seed, split=TRAINING)
    unseen = generate(N_HELD_OUT, seed=arguments.seed, split=HELD_OUT)
    for name in RECIPES if arguments.name == "all" else [arguments.name]:
        print(f"{name}: drawing {arguments.images} training scenes", file=sys.stderr)
        train_into(arguments.out, name, world, unseen, seed=arguments.seed)


if __name__ == "__main__":
    main()
