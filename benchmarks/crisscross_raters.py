"""How well ratings of likeness, taken together, follow a known truth: by raters, by scale, by aggregation.

Pairs of `scenes` are chosen as the crisscrossed mode chooses them, with the truth of one modality in place of an
encoder: captions of like images, images of like captions, captions of one image, images with captions of their
neighbours and with their own. Scripted raters answer pages of ten with three controls, ten raters a page; each rates
some dozen pages. Truth, pages, raters and ways to a score are mitl's own.

    python benchmarks/crisscross_raters.py [--pairs 900] [--figure docs/figures/crisscross-raters.svg]

Intervals are 95 % percentiles of bootstrap samples of pairs, the same pairs for what is compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata
from shared_kit import GREY, grey_frame, save_svg, svg_plots

from mitl.campaign.kinds.similarity.answers import check_ratings
from mitl.campaign.kinds.similarity.packing import RatingControls, pack_ratings
from mitl.crowd.populations import CHARACTERS, PRESETS, PlayedHit, parse_population
from mitl.crowd.raters import LikenessTruth, answer_ratings
from mitl.datasets.scenes.similarity import graded_similarity
from mitl.datasets.scenes.world import World, generate
from mitl.judgements.similarity import Aggregation, aggregate, counting
from mitl.records import Page
from mitl.records.frames import frame
from mitl.records.similarity import RATINGS, SIMILARITY_ROLES, TASKS, Likeness, SimilarityQuestion

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Correlation = Callable[[Floats, Floats], float]

N_IMAGES = 300
N_NEIGHBOURS = 5
N_RATERS = 10
PER_HIT = 10
HITS_PER_WORKER = 12
SAMPLES = 500
POPULATIONS = {
    "careful": "careful",
    "mixed": PRESETS["mixed-raters"],
    "poor": "careful:0.35,hasty:0.2,yes-sayer:0.1,random:0.1,one-number:0.1,straight-liner:0.05,drifter:0.1",
}
STEPS = {"0.01": 0.01, "0.5": 0.5, "1 (six steps)": 1.0}


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """What one population gave on one task."""

    truth: Floats
    """(P,) of the pairs, in their order."""
    ratings: pd.DataFrame
    """``RATINGS``; ``pair`` counts the pairs from 0, ``usable`` is true, submissions are in random order."""
    passed: NDArray[np.bool_]
    """Whether the page of each rating passed its controls."""
    n_pages: Mapping[str, tuple[int, int]]
    """Character → pages, and those of them that a person is to look at."""


def pairs_of(world: World, task: Likeness, n_pairs: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Different pairs of a task, by the items' places in the world."""
    images, captions = np.array(list(world.scenes)), np.array(list(world.captions))
    image_of = np.searchsorted(np.arange(len(images)), [int(c.image_id) - 1 for c in world.captions.values()])
    n, each = len(images), len(captions) // len(images)
    rows, columns = np.triu_indices(n, 1)
    own = np.arange(len(captions)).reshape(n, each)
    by_text = task is not Likeness.STS
    scorer = Likeness.STS if by_text else Likeness.SIS
    items = captions[own[:, 0]] if by_text else images
    likeness = np.zeros((n, n))
    likeness[rows, columns] = graded_similarity(world, scorer, items[rows].tolist(), items[columns].tolist())
    near = np.argsort(-(likeness + likeness.T) - 9e-9 * np.arange(n), axis=1)[:, :N_NEIGHBOURS]
    chosen = [(image, int(other)) for image in range(n) for other in near[image] if other != image]
    if task is Likeness.SIS:
        pairs = chosen
    elif task is Likeness.STS:
        pairs = [(int(rng.choice(own[a])), int(rng.choice(own[b]))) for a, b in chosen]
        pairs += [pair for group in own.tolist() for pair in list(combinations(group, 2))[::2]]
    else:
        pairs = [(a, int(rng.choice(own[b]))) for a, b in chosen]
        pairs += list(zip(image_of.tolist(), range(len(captions)), strict=True))
    if task is not Likeness.SITS:
        pairs = [(min(pair), max(pair)) for pair in pairs]
    distinct = sorted(set(pairs))
    return [distinct[place] for place in rng.permutation(len(distinct))[:n_pairs]]


def rated(world: World, task: Likeness, population: str, *, n_pairs: int, seed: int) -> Study:
    """Ten raters a page on pairs of a task."""
    rng = np.random.default_rng(seed)
    pairs = pairs_of(world, task, n_pairs, rng)
    sides = {"image": list(world.scenes), "caption": list(world.captions)}
    left, right = (sides[side] for side in task.sides)

    def truth_of(asked: Sequence[tuple[int, int]]) -> Floats:
        return graded_similarity(world, task, [left[a] for a, _ in asked], [right[b] for _, b in asked])

    alike = (
        [(int(caption.image_id) - 1, place) for place, caption in enumerate(world.captions.values())]
        if task is Likeness.SITS
        else [(place, place) for place in range(len(left))]
    )
    drawn = [
        (int(a), int(b))
        for a, b in zip(*(rng.integers(len(s), size=900) for s in (left, right)), strict=True)
    ]
    apart = [pair for pair, score in zip(drawn, truth_of(drawn), strict=True) if score < 1]
    pages = pack_ratings(pairs, task, RatingControls(alike, apart), seed=seed, per_hit=PER_HIT)
    number = {pair: place for place, pair in enumerate(pairs)}
    scores = dict(zip(pairs, truth_of(pairs), strict=True))
    controls = {item.pair for page in pages for item in page.items} - scores.keys()
    scores |= dict(zip(sorted(controls), truth_of(sorted(controls)), strict=True))
    work = list(_work(pages, population, rng, seed))
    counts: dict[str, list[int]] = {}
    columns: dict[str, list[object]] = {name: [] for name in RATINGS}
    passed = []
    for order, (page, worker, character, turn) in enumerate(work):
        truths = {
            item.place: LikenessTruth(float(scores[item.pair]), task, str(item.pair)) for item in page.items
        }
        who = CHARACTERS[character]
        given = answer_ratings(PlayedHit(who, seed, worker, str(page.number), turn), truths)
        passes = not check_ratings(page.items, given)
        tally = counts.setdefault(character, [0, 0])
        tally[0], tally[1] = tally[0] + 1, tally[1] + (not passes)
        for item, answer in zip(page.items, given, strict=True):
            columns["pair"].append(number.get(item.pair, -1))
            columns["worker"].append(worker)
            columns["score"].append(answer.score)
            columns["role"].append(SIMILARITY_ROLES.index(item.role))
            columns["swapped"].append(item.swapped)
            columns["hit"].append(page.number)
            columns["assignment"].append(order)
            columns["place"].append(item.place)
            columns["active_ms"].append(answer.active_ms)
            passed.append(passes)
    n = len(passed)
    columns |= {"task": [TASKS.index(task)] * n, "outcome": [0] * n, "usable": [True] * n}
    truth = np.array([scores[pair] for pair in pairs])
    n_pages = {name: (total, failed) for name, (total, failed) in sorted(counts.items())}
    return Study(truth, frame(RATINGS, columns), np.array(passed), n_pages)


def _work(
    pages: Sequence[Page[SimilarityQuestion]], population: str, rng: np.random.Generator, seed: int
) -> Iterator[tuple[Page[SimilarityQuestion], str, str, int]]:
    """Who rates which page, in order of arrival, and how many pages they did before; nobody one page twice."""
    n_workers = max(len(pages) * N_RATERS // HITS_PER_WORKER, N_RATERS)
    characters = parse_population(population).characters(n_workers, seed=seed)
    done = [0] * n_workers
    # The workers stand in a circle, which is turned by a tenth from round to round.
    for turn in range(N_RATERS):
        for place in rng.permutation(len(pages)).tolist():
            worker = (place + turn * (n_workers // N_RATERS)) % n_workers
            yield pages[place], f"w{worker}", characters[worker], done[worker]
            done[worker] += 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def correlations(truth: Floats, scores: Floats, samples: Ints) -> tuple[Estimate, Estimate]:
    """Spearman's and Pearson's correlation of scores with the truth.

    Args:
        samples: (S, P) places of pairs, a bootstrap sample a row.
    """
    return _estimate(_spearman, truth, scores, samples), _estimate(_pearson, truth, scores, samples)


def _estimate(kind: Correlation, truth: Floats, scores: Floats, samples: Ints) -> Estimate:
    low, high = np.quantile([kind(truth[at], scores[at]) for at in samples], [0.025, 0.975])
    return Estimate(kind(truth, scores), float(low), float(high))


def gain(truth: Floats, scores: Floats, beside: Floats, samples: Ints) -> Estimate:
    """By how much Spearman's correlation of ``scores`` with the truth is higher than that of ``beside``."""

    def difference(at: Ints | slice) -> float:
        return _spearman(truth[at], scores[at]) - _spearman(truth[at], beside[at])

    low, high = np.quantile([difference(at) for at in samples], [0.025, 0.975])
    return Estimate(difference(slice(None)), float(low), float(high))


def _pearson(one: Floats, other: Floats) -> float:
    return float(np.corrcoef(one, other)[0, 1])


def _spearman(one: Floats, other: Floats) -> float:
    return _pearson(rankdata(one), rankdata(other))


def scored(ratings: pd.DataFrame, n_pairs: int, method: Aggregation = Aggregation.MEAN) -> Floats:
    """(P,) scores of the pairs; NaN for one without a rating."""
    scores = np.full(n_pairs, np.nan)
    table = aggregate(counting(ratings), method).scores
    scores[table["pair"].to_numpy()] = table["score"].to_numpy()
    return scores


def first_raters(ratings: pd.DataFrame, n: int) -> pd.DataFrame:
    """The ratings of the pairs that are asked by the first n raters of each page."""
    asked = ratings[ratings["role"] == 0]
    order = asked.groupby("hit")["assignment"].rank(method="dense")
    return asked[order <= n]


def between_raters(ratings: pd.DataFrame, samples: Ints) -> Estimate:
    """Mean correlation (Pearson) of one rater's number with another's of the same pair, over all twos of ten."""
    asked = ratings[ratings["role"] == 0].sort_values(["pair", "assignment"])
    table = asked["score"].to_numpy().reshape(-1, N_RATERS)

    def mean(rows: Floats) -> float:
        return float(np.corrcoef(rows.T)[np.triu_indices(N_RATERS, 1)].mean())

    low, high = np.quantile([mean(table[at]) for at in samples], [0.025, 0.975])
    return Estimate(mean(table), float(low), float(high))


def by_raters(study: Study, samples: Ints) -> list[tuple[Estimate, Estimate]]:
    """Spearman and Pearson of the mean of 1, 2, … 10 raters with the truth."""
    return [
        correlations(study.truth, scored(first_raters(study.ratings, n), len(study.truth)), samples)
        for n in range(1, N_RATERS + 1)
    ]


def in_steps(ratings: pd.DataFrame, step: float) -> pd.DataFrame:
    """The same ratings on a scale with steps of this size."""
    return ratings.assign(score=(ratings["score"] / step).round() * step)


def _row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def _head(*cells: str) -> None:
    print()
    _row(*cells)
    _row(*("---" for _ in cells))


def _tell(studies: Mapping[tuple[str, Likeness], Study], samples: Ints) -> dict[tuple[str, Likeness], Floats]:
    """Print the tables; returns (10, 3) Spearman with its ends by population and task."""
    curves: dict[tuple[str, Likeness], Floats] = {}
    _head("population", "task", "raters", "Spearman", "Pearson")
    for (name, task), study in studies.items():
        each = by_raters(study, samples)
        curves[name, task] = np.array([[one.value, one.low, one.high] for one, _ in each])
        for n, (spearman, pearson) in enumerate(each, 1):
            _row(name, task.upper(), n, spearman, pearson)
    _tell_steps(studies, samples)
    _tell_aggregations(studies, samples)
    _head("population", "task", "character", "pages", "of them to a person")
    for (name, task), study in studies.items():
        for character, (total, failed) in study.n_pages.items():
            _row(name, task.upper(), character, total, f"{failed / total:.1%}")
    return curves


def _tell_steps(studies: Mapping[tuple[str, Likeness], Study], samples: Ints) -> None:
    """A continuous scale beside coarser ones: the same ratings, rounded."""
    columns = ("one rater with another", "Spearman, mean of 5", "less than continuous, of 1", "of 5")
    _head("population", "task", "steps", *columns)
    for (name, task), study in studies.items():
        n_pairs = len(study.truth)
        fine = [scored(first_raters(study.ratings, n), n_pairs) for n in (1, 5)]
        for label, step in STEPS.items():
            stepped = in_steps(study.ratings, step)
            coarse = [scored(first_raters(stepped, n), n_pairs) for n in (1, 5)]
            spearman, _ = correlations(study.truth, coarse[1], samples)
            less = [gain(study.truth, *both, samples) for both in zip(fine, coarse, strict=True)]
            told = ("–", "–") if step == min(STEPS.values()) else less
            _row(name, task.upper(), label, between_raters(stepped, samples), spearman, *told)


def _tell_aggregations(studies: Mapping[tuple[str, Likeness], Study], samples: Ints) -> None:
    """Ways from five ratings to a score, with all pages and with those alone that pass their controls."""
    columns = ("Spearman, all pages", "above the mean's", "Spearman, pages that pass", "Pearson, all pages")
    _head("population", "task", "aggregation", *columns)
    for (name, task), study in studies.items():
        five, n_pairs = first_raters(study.ratings, 5), len(study.truth)
        kept = five[study.passed[five.index]]
        left = np.sort(kept["pair"].unique())
        among = np.random.default_rng(0).integers(len(left), size=(len(samples), len(left)))
        mean = scored(five, n_pairs)
        for method in Aggregation:
            scores = scored(five, n_pairs, method)
            spearman, pearson = correlations(study.truth, scores, samples)
            passing, _ = correlations(study.truth[left], scored(kept, n_pairs, method)[left], among)
            above = "–" if method is Aggregation.MEAN else gain(study.truth, scores, mean, samples)
            _row(name, task.upper(), method.value, spearman, above, f"{passing} of {len(left):,}", pearson)


def draw(curves: Mapping[tuple[str, Likeness], Floats], path: Path) -> None:
    """A panel for each task: Spearman with the truth by raters, a line a population, intervals as bands.

    Greys and colours are legible on white and on dark pages, and the ground is transparent.
    """
    plt = svg_plots()
    colours = ("#3b7dd8", "#0f8a6d", "#b07a00")
    marks = dict(zip(POPULATIONS, zip(colours, "o^s", strict=True), strict=True))
    figure, axes = plt.subplots(1, len(Likeness), figsize=(7.6, 2.9), sharey=True)
    raters = np.arange(1, N_RATERS + 1)
    for (name, task), curve in curves.items():
        axis, (colour, mark) = axes[list(Likeness).index(task)], marks[name]
        axis.fill_between(raters, curve[:, 1], curve[:, 2], color=colour, alpha=0.15, linewidth=0)
        axis.plot(raters, curve[:, 0], color=colour, marker=mark, markersize=3.5, linewidth=1.2, label=name)
        axis.set_title(task.upper(), color=GREY, fontsize=9)
        axis.set_xticks(raters)
        grey_frame(axis)
    axes[0].set_ylabel("Spearman with the truth", color=GREY)
    axes[0].legend(frameon=False, labelcolor=GREY, loc="lower right", fontsize=7)
    figure.supxlabel("raters of a pair", color=GREY, fontsize=8)
    save_svg(figure, path)


def main() -> None:
    """Print Markdown tables, and draw the figure where one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=900, help="pairs of each task")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="bootstrap samples")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figure", type=Path, help="SVG to write")
    given = parser.parse_args()
    world = generate(N_IMAGES, seed=given.seed)
    studies = {
        (name, task): rated(world, task, population, n_pairs=given.pairs, seed=given.seed)
        for name, population in POPULATIONS.items()
        for task in Likeness
    }
    places = np.random.default_rng(given.seed).integers(given.pairs, size=(given.samples, given.pairs))
    curves = _tell(studies, places)
    if given.figure:
        draw(curves, given.figure)


if __name__ == "__main__":
    main()
