"""Our retrieval metrics against the eccv_caption package, on the same full rankings in the same run.

Scores COCO 5K and CxC Recall@1, 5, 10 and ECCV mAP@R, R-Precision and Recall@1 in both directions, on
rankings of the real sizes (5,000 images, 25,000 captions). COCO 1K is left out. The two sides take turns;
the minimum of the rounds counts. ``--depth`` cuts the rankings (0 keeps them whole, for which the package's
lists need some 10 GB).

    python benchmarks/bench_metrics.py --rounds 5 --depth 100
"""

from __future__ import annotations

import argparse
import contextlib
import io
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.datasets.official import OfficialSet
from mitl.metrics.positives import Positives, locate
from mitl.metrics.retrieval import score
from mitl.positives.loading import official_positives
from mitl.records import Direction

KS = (1, 5, 10)
TARGETS = ("coco_5k_recalls", "cxc_recalls", "eccv_map_at_r", "eccv_rprecision", "eccv_r1")
Ranking = tuple[NDArray[np.int64], NDArray[np.int32]]


def main() -> None:
    """Print both sides' times, their ratio and the greatest difference."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--depth", type=int, default=100)
    arguments = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns about optional packages at import
        from eccv_caption import Metrics
    reference = Metrics()
    rankings = random_rankings(reference, arguments.depth)
    positives = official(reference)
    start = time.perf_counter()
    lists = {d: {int(q): row.tolist() for q, row in zip(*r, strict=True)} for d, r in rankings.items()}
    print(f"lists for eccv_caption  {time.perf_counter() - start:8.3f} s (ours reads the arrays)")
    theirs_s, ours_s = [], []
    for _ in range(arguments.rounds):
        start = time.perf_counter()
        with contextlib.redirect_stderr(io.StringIO()):  # a progress bar that cannot be turned off
            theirs = reference.compute_all_metrics(lists["i2t"], lists["t2i"], TARGETS, KS)
        theirs_s.append(time.perf_counter() - start)
        start = time.perf_counter()
        ours = our_scores(rankings, positives)
        ours_s.append(time.perf_counter() - start)
    shared = [(key, d) for key in theirs for d in rankings]
    worst = max(abs(theirs[key][d] - ours[key, d]) for key, d in shared)
    print(f"eccv_caption            {min(theirs_s):8.3f} s (minimum of {arguments.rounds})")
    print(f"mitl                    {min(ours_s):8.3f} s")
    print(f"ratio                   {min(theirs_s) / min(ours_s):8.1f}")
    print(f"greatest difference     {worst:8.1e} over {len(shared)} numbers")


def random_rankings(reference: Any, depth: int) -> dict[str, Ranking]:
    """Random permutations of the gallery, with about half of each query's first positives moved into its top 10."""
    rng = np.random.default_rng(0)
    captions = reference.coco_ids.astype(np.int32)
    images = np.array(sorted(reference.coco_gts["i2t"]), dtype=np.int32)
    rankings = {}
    for direction, queries, gallery in (("i2t", images, captions), ("t2i", captions, images)):
        kept = depth or len(gallery)
        place_of = {item: place for place, item in enumerate(gallery.tolist())}
        rows = np.empty((len(queries), kept), dtype=np.int32)
        for query, row in zip(queries.tolist(), rows, strict=True):
            order = rng.permutation(len(gallery))
            for item in reference.cxc_gts[direction].get(query, ())[:6]:
                old, new = np.flatnonzero(order == place_of[item])[0], rng.integers(20)
                if new < 10:
                    order[[old, new]] = order[[new, old]]
            row[:] = gallery[order[:kept]]
        rankings[direction] = (queries.astype(np.int64), rows)
    return rankings


def official(reference: Any) -> dict[tuple[str, str], Positives]:
    """The package's positives in our form, made once as the package makes its own once."""
    ids = {
        "i2t": {str(image): image for image in reference.coco_gts["i2t"]},
        "t2i": {str(caption): caption for caption in reference.coco_gts["t2i"]},
    }
    sides = {"i2t": (ids["i2t"], ids["t2i"]), "t2i": (ids["t2i"], ids["i2t"])}
    tables: dict[str, OfficialSet] = {"coco_5k": "original", "cxc": "cxc", "eccv": "eccv"}
    return {
        (name, d.value): locate(official_positives(which).by_query[d], *sides[d.value]).positives
        for name, which in tables.items()
        for d in Direction
    }


def our_scores(
    rankings: dict[str, Ranking], positives: dict[tuple[str, str], Positives]
) -> dict[tuple[str, str], float]:
    """The same numbers under the package's names."""
    numbers: dict[tuple[str, str], float] = {}
    for (name, direction), wanted in positives.items():
        by_r = name == "eccv"
        found = score(*rankings[direction], wanted, ks=(1,) if by_r else KS, by_r=by_r)
        numbers |= {(f"{name}_r{k}", direction): value for k, value in found.recall.items()}
        if found.map_at_r is not None and found.r_precision is not None:
            numbers["eccv_map_at_r", direction] = found.map_at_r
            numbers["eccv_rprecision", direction] = found.r_precision
    return numbers


if __name__ == "__main__":
    main()
