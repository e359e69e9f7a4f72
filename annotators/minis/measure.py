"""How good and how different the small twins are: ``python -m annotators.minis.measure``.

Prints, for a world that no training has seen, precision in the top 5 of both directions against the known truth
(yes or weak yes), the share of all true pairs that the top 5 reach, alone and together, Recall@1, 5 and 10 of the
originals; and, for every two annotators, the overlap of their top-5 sets (Jaccard), Kendall's tau-b of their top-25
lists and the mean rank of the row's first item in the column's ranking, as ECCV Caption's Table A.1 has them.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from annotators import registry
from annotators.base import RankingSource
from annotators.catalog import KS
from annotators.minis.train import recalls
from annotators.minis.twins import RECIPES
from mitl.analysis.diversity import Items, mutual_rank_table, tau_table
from mitl.datasets.scenes import World, generate, truth_matrix, write_items
from mitl.datasets.scenes.world import CAPTIONS_PER_IMAGE
from mitl.records import Label

K, DEPTH = 5, 25
Similarities = Mapping[str, NDArray[np.float32]]
"""Annotator -> similarities (images, captions)."""


def similarities(world: World, folder: Path) -> Similarities:
    """What each annotator finds in the world, which is written to the folder first."""
    images, captions = write_items(world, folder)
    by_annotator = {}
    for name in RECIPES:
        annotator = registry.build(name)
        assert not isinstance(annotator, RankingSource)
        by_annotator[name] = annotator.similarities(
            annotator.encode_images(images), annotator.encode_captions(captions)
        )
    return by_annotator


def quality(truth: NDArray[np.bool_], by_annotator: Similarities, captions_per_image: int) -> list[str]:
    """Precision in the top 5, share of the true pairs reached, and recall of the originals, a line an annotator."""
    heads = [f"R@{k} {direction}" for direction in ("i2t", "t2i") for k in KS]
    lines = ["  ".join([f"{'annotator':10}", "P@5 i2t", "P@5 t2i", "reached", *(f"{h:>8}" for h in heads)])]
    proposed = {name: (_top(table), _top(table.T).T) for name, table in by_annotator.items()}
    for name, tops in proposed.items():
        precision = [(truth & top).sum() / top.sum() for top in tops]
        numbers = [f"{value:7.3f}" for value in (*precision, _reached(truth, tops[0] | tops[1]))]
        shares = [f"{value:8.3f}" for value in recalls(by_annotator[name], captions_per_image)]
        lines.append("  ".join([f"{name:10}", *numbers, *shares]))
    together = np.any([top for tops in proposed.values() for top in tops], axis=0)
    lines.append(f"together reach {_reached(truth, together):.3f} of {truth.sum():,} true pairs")
    return lines


def diversity(by_annotator: Similarities) -> list[str]:
    """The tables of how alike the annotators are, for captions and for images as queries."""
    lines: list[str] = []
    for queries, by_query in (
        ("captions", {name: table.T for name, table in by_annotator.items()}),
        ("images", dict(by_annotator)),
    ):
        rankings = [np.argsort(-table, axis=1, kind="stable") for table in by_query.values()]
        lists = [ranking[:, :DEPTH] for ranking in rankings]
        tops = [_top(table) for table in by_query.values()]
        overlap = np.array([[((a & b).sum(1) / (a | b).sum(1)).mean() for b in tops] for a in tops])
        for title, table in (
            (f"tau-b of the top {DEPTH}, items of either list", tau_table(lists)),
            (f"tau-b of the top {DEPTH}, items of both lists", tau_table(lists, Items.COMMON)),
            ("mean rank of the row's first in the column's ranking", mutual_rank_table(rankings)),
            (f"overlap of the top {K}", overlap),
        ):
            lines += ["", f"{queries} as queries: {title}", *_square(list(by_annotator), table)]
    return lines


def _square(names: list[str], table: NDArray[np.float64]) -> list[str]:
    lines = ["  ".join([" " * 10, *(f"{name:>9}" for name in names)])]
    for i, name in enumerate(names):
        cells = ["        –" if i == j else f"{value:9.3f}" for j, value in enumerate(table[i])]
        lines.append("  ".join([f"{name:10}", *cells]))
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
        by_annotator = similarities(world, Path(folder))
    print("\n".join([*quality(truth, by_annotator, CAPTIONS_PER_IMAGE), *diversity(by_annotator)]))


if __name__ == "__main__":
    main()
