"""How good and how different the small annotators are: ``python -m annotators.minis.measure``.

Prints, for a world that no training has seen, precision in the top 5 of both directions against the known truth
(yes or weak yes), the share of all true pairs that the top 5 reach, alone and together, and the overlap of the
top-5 sets (Jaccard) of every two annotators.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from annotators import registry
from annotators.base import RankingSource
from mitl.datasets.scenes import World, generate, truth_matrix, write_world
from mitl.records import CaptionItem, ImageItem, Label

K = 5
Tops = dict[str, NDArray[np.bool_]]
"""Annotator -> which pairs (images, captions) one direction proposes."""


def proposals(world: World, folder: Path) -> tuple[Tops, Tops]:
    """The top-5 pairs of each annotator, for images as queries and for captions as queries."""
    write_world(world, folder)
    images = [ImageItem(int(i), i, folder / "images" / f"{i}.png") for i in world.scenes]
    captions = [CaptionItem(int(i), i, int(c.image_id), c.text) for i, c in world.captions.items()]
    i2t, t2i = {}, {}
    for name in registry.BUILDERS:
        annotator = registry.build(name)
        assert not isinstance(annotator, RankingSource)
        found = annotator.similarities(annotator.encode_images(images), annotator.encode_captions(captions))
        i2t[name], t2i[name] = _top(found), _top(found.T).T
    return i2t, t2i


def table(truth: NDArray[np.bool_], i2t: Tops, t2i: Tops) -> list[str]:
    """The lines of the report."""
    lines = [f"{'annotator':10} {'P@5 i2t':>8} {'P@5 t2i':>8} {'reached':>8}"]
    for name in i2t:
        both = i2t[name] | t2i[name]
        precision = [(truth & top[name]).sum() / top[name].sum() for top in (i2t, t2i)]
        lines.append(f"{name:10} {precision[0]:8.3f} {precision[1]:8.3f} {_reached(truth, both):8.3f}")
    together = np.any([*i2t.values(), *t2i.values()], axis=0)
    lines.append(
        f"{'together':10} {'':8} {'':8} {_reached(truth, together):8.3f}  of {truth.sum()} true pairs"
    )
    for label, top in (("i2t", i2t), ("t2i", t2i)):
        for a, b in combinations(top, 2):
            axis = 1 if label == "i2t" else 0
            shared = (top[a] & top[b]).sum(axis) / (top[a] | top[b]).sum(axis)
            lines.append(f"overlap {label} {a:10} {b:10} {shared.mean():.3f}")
    return lines


def _top(similarities: NDArray[np.float32]) -> NDArray[np.bool_]:
    order = np.argsort(-similarities, axis=1, kind="stable")[:, :K]
    chosen = np.zeros(similarities.shape, dtype=np.bool_)
    np.put_along_axis(chosen, order, True, axis=1)
    return chosen


def _reached(truth: NDArray[np.bool_], proposed: NDArray[np.bool_]) -> float:
    return float((truth & proposed).sum() / truth.sum())


def main() -> None:
    """Measure on the world of the command line."""
    parser = argparse.ArgumentParser(prog="python -m annotators.minis.measure", description=__doc__)
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--split", default="demo")
    arguments = parser.parse_args()
    world = generate(arguments.images, seed=arguments.seed, split=arguments.split)
    truth = truth_matrix(world, list(world.scenes), list(world.captions)) <= Label.WEAK_YES.code
    with tempfile.TemporaryDirectory() as folder:
        i2t, t2i = proposals(world, Path(folder))
    print("\n".join(table(truth, i2t, t2i)))


if __name__ == "__main__":
    main()
