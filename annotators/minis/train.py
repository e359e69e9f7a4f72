"""Train the small networks on generated scenes: ``python -m annotators.minis.train NAME|all --seed 0``.

Only original pairs teach, as in the papers: an image and one of its own captions belong together, every other
pair of the batch does not. So the networks make the errors of networks trained on incomplete data. One thread,
some minutes a network; the weights go to ``--out`` as NAME.safetensors.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from annotators.devices import on_threads
from annotators.minis.build import WEIGHTS
from annotators.minis.data import SPLIT, TrainingPairs, training_pairs
from annotators.minis.network import MiniNetwork
from annotators.minis.weights import NETWORKS, Trained, save

VERSION = 1


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one network is trained."""

    steps: int
    batch: int
    rate: float
    captions: int = 3
    """Captions an image in each batch."""
    weight_decay: float = 1e-4


RECIPES = {
    "pvse-mini": Recipe(steps=900, batch=96, rate=2e-3),
    "vsrn-mini": Recipe(steps=1100, batch=96, rate=1.5e-3),
    "pcme-mini": Recipe(steps=1000, batch=96, rate=2e-3),
    "vilt-mini": Recipe(steps=900, batch=64, rate=1e-3),
    "clip-mini": Recipe(steps=1500, batch=96, rate=1.2e-3),
}
N_IMAGES = 8000
SHIFT = 3
"""Pixels by which a training picture may be shifted; it must not be mirrored, left is not right."""
WARM_UP = 0.06
"""Share of the steps over which the learning rate rises before it falls along a cosine."""


def train(name: str, pairs: TrainingPairs, recipe: Recipe, *, seed: int) -> Trained:
    """A network trained from scratch; the same seed gives the same weights on one machine."""
    # On several threads gradients are summed in an order that changes from run to run.
    with on_threads(1):
        return _trained(name, pairs, recipe, seed)


def _trained(name: str, pairs: TrainingPairs, recipe: Recipe, seed: int) -> Trained:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = NETWORKS[name](len(pairs.vocabulary))
    draw = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(network.parameters(), lr=recipe.rate, weight_decay=recipe.weight_decay)
    started = time.monotonic()
    smooth = 0.0
    for step in range(recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate * _pace(step / recipe.steps)
        loss = _loss(network, pairs, recipe, draw, generator, step / recipe.steps)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 2.0)
        optimizer.step()
        smooth = loss.item() if step == 0 else 0.98 * smooth + 0.02 * loss.item()
        if (step + 1) % 100 == 0:
            spent = time.monotonic() - started
            print(f"{name} step {step + 1}/{recipe.steps} loss {smooth:.4f} {spent:.0f} s", file=sys.stderr)
    return Trained(network.eval(), pairs.vocabulary)


def _loss(
    network: MiniNetwork,
    pairs: TrainingPairs,
    recipe: Recipe,
    draw: np.random.Generator,
    generator: torch.Generator,
    progress: float,
) -> Tensor:
    rows = draw.choice(len(pairs.squares), recipe.batch, replace=False)
    images = network.images(torch.from_numpy(_shifted(pairs.squares[rows], draw)))
    # Encoding a picture costs most, so each meets several of its captions, one after the other.
    order = draw.permuted(np.tile(np.arange(pairs.tokens.shape[1]), (recipe.batch, 1)), axis=1)
    losses = [
        network.loss(
            images, network.captions(torch.from_numpy(pairs.tokens[rows, which])), progress, generator
        )
        for which in order.T[: recipe.captions]
    ]
    return torch.stack(losses).mean()


def _shifted(squares: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """The whole batch moved by a few pixels, the border repeated."""
    size = squares.shape[1]
    padded = np.pad(squares, ((0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT), (0, 0)), mode="edge")
    y, x = draw.integers(2 * SHIFT + 1, size=2)
    return np.ascontiguousarray(padded[:, y : y + size, x : x + size])


def _pace(progress: float) -> float:
    if progress < WARM_UP:
        return progress / WARM_UP + 0.01
    return 0.5 + 0.5 * math.cos(math.pi * (progress - WARM_UP) / (1 - WARM_UP))


def main() -> None:
    """Train the networks named on the command line and write their weights."""
    parser = argparse.ArgumentParser(prog="python -m annotators.minis.train", description=__doc__)
    parser.add_argument("name", choices=[*NETWORKS, "all"])
    parser.add_argument("--seed", type=int, default=0, help="of the world and the weights (default 0)")
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="folder of the weights")
    parser.add_argument("--images", type=int, default=N_IMAGES, help=f"training images (default {N_IMAGES})")
    arguments = parser.parse_args()
    print(f"drawing {arguments.images} training scenes", file=sys.stderr)
    pairs = training_pairs(
        arguments.images, seed=arguments.seed, size=MiniNetwork.image_size, length=MiniNetwork.text_length
    )
    for name in NETWORKS if arguments.name == "all" else [arguments.name]:
        recipe = RECIPES[name]
        trained = train(name, pairs, recipe, seed=arguments.seed)
        said = {
            "script": VERSION,
            "seed": arguments.seed,
            "split": SPLIT,
            "images": arguments.images,
            **asdict(recipe),
        }
        save(arguments.out / f"{name}.safetensors", name, trained, said)
        print(f"wrote {arguments.out / name}.safetensors", file=sys.stderr)


if __name__ == "__main__":
    main()
