"""How large an audit must be to order models rightly, if it is drawn as well as can be, as Markdown.

    python benchmarks/fair_limit.py [--worlds 10] [--first 30] [--images 150]

Worlds, models and judged pairs of `fair_comparison.py`, one company of two proposers each. Reckoned, not simulated: the
chances of a match and the effects of a label on each model's mAP@R are those by which `mitl audit draw --compare`
draws. An audit of n pairs gives each a probability in proportion to the spread that its label brings into the
differences (Neyman's allocation, at most 1). All answers are right, only listed pairs can match, and corrected
differences are normal around the true ones, so this is about the best that an unbiased correction can do. The chance of
the exact order is taken as the product over neighbours by the truth.
"""

from __future__ import annotations

import numpy as np
from fair_comparison import METRICS, TWINS, Floats, judged_pool, ranked, true_scores, twins_of_world
from numpy.typing import NDArray
from scipy.stats import norm
from shared_kit import parser_of

from mitl.metrics.rank_groups import influence
from mitl.metrics.ranks import ArrayRankings
from mitl.metrics.table import asked_metrics
from mitl.stages.auditing.comparing import METRIC

SIZES = (300, 600, 1200, 3000, 6000, 12000)
_LEAST = 1e-9


def allocated(weights: Floats, size: int) -> Floats:
    """(P,) probabilities in proportion to the weights, at most 1, that sum to the size."""
    sure: NDArray[np.bool_] = np.zeros(len(weights), np.bool_)
    while True:
        share = np.where(sure, 1.0, (size - sure.sum()) * weights / weights[~sure].sum())
        if not (share[~sure] > 1).any():
            return np.maximum(share, _LEAST)
        sure |= share > 1


def limits_of(seed: int, images: int, direction: str) -> tuple[float, Floats, Floats, int]:
    """The least gap of neighbours in points, (sizes,) chances of the exact order and standard errors, listed pairs."""
    truth, originals, similarities = twins_of_world(images, seed)
    turned = direction == "t2i"
    truth, originals = (each.T if turned else each for each in (truth, originals))
    rankings = ranked({name: each.T if turned else each for name, each in similarities.items()})
    pool = judged_pool(truth, originals, rankings, TWINS[:2], np.random.default_rng([seed, 0, turned]))
    pool = pool.kept(np.asarray((pool.judged & pool.answers).any(axis=1) & pool.truth.any(axis=1)))
    place_of = [one.name for one in METRICS].index(METRIC)
    scores = np.array([each[place_of] for each in true_scores(pool).values()])
    order = np.argsort(-scores)
    rows = np.arange(len(pool.truth))
    models = [ArrayRankings(rows, each) for each in pool.rankings.values()]
    known = influence(pool.labels, models, asked_metrics([METRIC])[0])
    gaps = -np.diff(scores[order])
    variances = np.diff(known.effects[order], axis=0) ** 2 * known.doubt  # (neighbours, P)
    chances, errors = np.ones(len(SIZES)), np.zeros(len(SIZES))
    for place, size in enumerate(SIZES):
        if size < variances.shape[1]:
            best = (variances * (1 / allocated(np.sqrt(known.spread), size) - 1)).sum(axis=1) ** 0.5
            errors[place] = best.mean()
            chances[place] = norm.cdf(gaps / best).prod()
    return 100 * float(gaps.min()), chances, 100 * errors, variances.shape[1]


def main() -> None:
    """Print a table for each direction."""
    parser = parser_of(__doc__)
    parser.add_argument("--worlds", type=int, default=10)
    parser.add_argument("--first", type=int, default=30)
    parser.add_argument("--images", type=int, default=150)
    given = parser.parse_args()
    for direction in ("i2t", "t2i"):
        found = [
            limits_of(seed, given.images, direction)
            for seed in range(given.first, given.first + given.worlds)
        ]
        gaps = sorted(gap for gap, *_ in found)
        chances = np.mean([each for _, each, _, _ in found], axis=0)
        errors = np.mean([each for _, _, each, _ in found], axis=0)
        print(f"### {direction}, {len(found)} worlds\n")
        print(f"Smallest gap of neighbours, points: {', '.join(f'{gap:.2f}' for gap in gaps)}")
        print(f"Listed pairs: {np.mean([listed for *_, listed in found]):,.0f}\n")
        print("| audited pairs | exact order | standard error of neighbours' difference, points |")
        print("| ---: | ---: | ---: |")
        for size, chance, error in zip(SIZES, chances, errors, strict=True):
            print(f"| {size:,} | {100 * chance:.0f} % | {error:.1f} |")
        print()


if __name__ == "__main__":
    main()
