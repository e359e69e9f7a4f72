"""How far the probabilities of the three aggregators can be trusted: Brier scores, calibration errors, curves.

The crowds are real ones with worker ids and truth (public sets, `--data`), and scripted ones on `scenes`, whose truth
is known for every pair. An item counts once for each step of its scale: the event is "at this level or better",
so that a set of two labels has one event an item and a scale of three levels two. On scenes the event is the one
that a release is about, match or no match.

Two sets have labels beside their scale: `Relevance` a "broken link", the weather tweets "not about weather" and
"cannot tell". `ordered` leaves those answers out, and the items whose truth is one of them.

    python benchmarks/reliability.py --data DIR [--figure docs/figures/reliability.svg]
    python benchmarks/reliability.py --simulated
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from shared_kit import GREY, existing, find_file, grey_frame, save_svg, svg_plots

from mitl.crowd.populations import CHARACTERS, PRESETS, parse_population
from mitl.datasets.scenes.world import generate, truth_matrix
from mitl.judgements.aggregators import fit_dawid_skene
from mitl.judgements.answer_table import (
    POSITIVE_LABELS,
    UNKNOWN,
    AnswerTable,
    answer_table,
    codes,
    majority_table,
)
from mitl.judgements.calibration import Calibration, calibration
from mitl.judgements.ordinal import fit_ordinal

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

REAL = {
    # name: (file, labels on the scale, None where all are)
    "bluebird": ("SpectralMethodsMeetEM__bluebird", None),
    "rte": ("SpectralMethodsMeetEM__rte", None),
    "trec": ("SpectralMethodsMeetEM__trec", None),
    "Duck": ("crowd_truth_inference__d_Duck_Identification", None),
    "web": ("SpectralMethodsMeetEM__web", None),
    "CF": ("active-crowd-toolkit__CF", None),
    "CF_amt": ("active-crowd-toolkit__CF_amt", None),
    "MS": ("active-crowd-toolkit__MS", None),
    "Face": ("crowd_truth_inference__s4_Face_Sentiment_Identification", None),
    "fact_eval": ("crowdscale2013__fact_eval", None),
    "SP": ("active-crowd-toolkit__SP", None),
    "SP_amt": ("active-crowd-toolkit__SP_amt", None),
    "ZenCrowd_all": ("active-crowd-toolkit__ZenCrowd_all", None),
    "ZenCrowd_in": ("active-crowd-toolkit__ZenCrowd_in", None),
    "ZenCrowd_us": ("active-crowd-toolkit__ZenCrowd_us", None),
    "jn-product": ("crowd_truth_inference__d_jn-product", None),
    "sentiment": ("crowd_truth_inference__d_sentiment", None),
    "Relevance": ("crowd_truth_inference__s4_Relevance", None),
    "Relevance, ordered": ("crowd_truth_inference__s4_Relevance", 3),
    "CF, ordered": ("active-crowd-toolkit__CF", 3),
    "CF_amt, ordered": ("active-crowd-toolkit__CF_amt", 3),
}
SHOWN = (
    "web",
    "jn-product",
    "ZenCrowd_all",
    "trec",
    "scenes, 1.2 answers",
    "scenes, 3 answers",
)
"""The panels of the figure: the larger sets."""
SIMULATED = {
    "normal": "normal matches and biases",
    "wide": "the same, biases twice as wide",
    "rare": "four fifths of the items are of the worst label",
    "lapses": "blind answers, mostly of the worst label",
    "off": "a third of the workers a level off, nearly all to one side",
    "clusters off": "the same, matches gathered about the middle of each level",
    "spam": "a third answer blindly, each by a habit",
    "yes-sayers": "a third nearly always give the best label",
    "common": "the same where two thirds of the items are of that label, gathered",
    "few careful": "twelve busy workers are careful, a hundred are not",
    "matrices": "a true label and a confusion matrix each, no match in degrees",
}
"""Simulated crowds of 3,000 items with six answers, of 120 workers of uneven diligence."""
_SHARES = [0.15, 0.2, 0.25, 0.4]
"""Of the labels among the items of most simulated crowds, the best first."""
FEWEST = 15
"""Cases of a bin that is drawn; a share of fewer says little."""
PER_WORKER = 120
"""Answers of a scripted worker, controls included."""


@dataclass(frozen=True, slots=True, eq=False)
class Crowd:
    """Answers, and the truth of some of the items."""

    table: AnswerTable
    items: Ints
    """(n,) those with a truth that are compared with it."""
    truth: Ints
    """(n,) their labels."""
    events: tuple[int, ...]
    """How many labels, counted from the best, each event takes in."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """One aggregator on one crowd."""

    accuracy: float
    """Share of the items whose most probable label is the true one."""
    reliability: Calibration


def read_crowd(folder: Path, file: str, scale: int | None) -> Crowd:
    """A real crowd; with ``scale`` what lies beyond its first so many labels is left out."""
    with gzip.open(find_file(folder, f"{file}.label.csv.gz"), "rt") as lines:
        answers = np.array(list(csv.reader(lines))[1:], dtype=np.int64)
    with find_file(folder, f"{file}.truth.csv").open() as lines:
        known = np.array(list(csv.reader(lines))[1:], dtype=np.int64)
    n_labels = scale or int(max(answers[:, 2].max(), known[:, 1].max())) + 1
    answers, known = answers[answers[:, 2] < n_labels], known[known[:, 1] < n_labels]
    item, ids = codes(answers[:, 0])
    worker, _ = codes(answers[:, 1])
    known = known[np.isin(known[:, 0], ids)]
    table = answer_table(item, worker, answers[:, 2], n_labels=n_labels)
    return Crowd(table, np.searchsorted(ids, known[:, 0]), known[:, 1], tuple(range(1, n_labels)))


def scripted_crowd(per_pair: float, *, n_pairs: int = 6000, seed: int = 0) -> Crowd:
    """Scripted workers of the usual mixture on pairs of `scenes`, two controls for 18 pairs.

    Candidates are drawn so that the four answers are about as common as among proposals (a quarter each).
    """
    rng = np.random.default_rng(seed)
    golds = np.repeat([0, 3], n_pairs // 60)
    known = np.concatenate([np.full(n_pairs, UNKNOWN), golds])
    truth = np.concatenate([_drawn_pairs(seed, n_pairs, rng), golds])
    again = rng.permutation(n_pairs)[: round((per_pair % 1) * n_pairs)]
    item = np.concatenate([np.repeat(np.arange(n_pairs), int(per_pair)), again])
    drawn = rng.integers(len(golds), size=max(len(item) // 9 - len(golds), 0))
    item = np.concatenate([item, n_pairs + np.arange(len(golds)), n_pairs + drawn])
    n_workers = max(len(item) // PER_WORKER, 8)
    crowd = parse_population(PRESETS["mixed"]).characters(n_workers, seed=seed)
    matrices = np.array([CHARACTERS[name].confusion for name in crowd])
    worker = rng.integers(n_workers, size=len(item))
    upper = matrices[worker, truth[item]].cumsum(axis=1)[:, :-1]
    label = (rng.random(len(item))[:, None] > upper).sum(axis=1)
    table = answer_table(item, worker, label, n_workers=n_workers, known=known)
    pairs = np.arange(n_pairs)
    return Crowd(table, pairs, truth[:n_pairs], (POSITIVE_LABELS,))


def simulated_crowd(kind: str, *, n_items: int = 3000, seed: int = 0) -> Crowd:
    """Workers of uneven diligence on a scale of matches: see ``SIMULATED`` for the kinds."""
    rng = np.random.default_rng(seed)
    shares = np.array({"rare": [0.04, 0.06, 0.1, 0.8], "common": [0.65, 0.12, 0.08, 0.15]}.get(kind, _SHARES))
    n_workers, n_labels = 120, len(shares)
    thresholds = ndtri(shares[::-1].cumsum()[:-1])
    match = rng.standard_normal(n_items)
    level = (match[:, None] >= thresholds).sum(axis=1)
    if kind in ("common", "clusters off"):
        edges = np.concatenate([[-2.2], thresholds, [2.2]])
        match = (match + (edges[1:] + edges[:-1])[level] / 2) / 2
    bias = (0.6 if kind == "wide" else 0.3) * rng.standard_normal(n_workers)
    noise = 0.5 * np.exp(0.4 * rng.standard_normal(n_workers))
    lapse, habit = np.full(n_workers, 0.03), np.full((n_workers, n_labels), 1 / n_labels)
    some = rng.random(n_workers) < 0.3
    if kind in ("off", "clusters off"):
        bias[some] += 0.7 * np.sign(rng.random(some.sum()) - 0.1)
    elif kind == "lapses":
        lapse, habit = rng.beta(1.5, 3, n_workers), rng.dirichlet([0.4, 0.4, 0.4, 3], n_workers)
    elif kind == "spam":
        lapse[some], habit[some] = 0.9, rng.dirichlet([0.2] * 4, some.sum())
    elif kind in ("yes-sayers", "common"):
        lapse[some], habit[some] = 0.85, [0.85, 0.05, 0.05, 0.05]
    elif kind == "few careful":
        careful = np.arange(n_workers) < 12
        bias = np.where(careful, 0.2 * bias, 0.4 + bias)
        noise, lapse = np.where(careful, 0.25, 0.6), np.where(careful, 0.12, rng.beta(4, 6, n_workers))
        habit = rng.dirichlet([0.5, 0.5, 0.5, 2], n_workers)
    load = np.arange(1, n_workers + 1) ** -0.9
    item = np.repeat(np.arange(n_items), 6)
    worker = rng.choice(n_workers, size=len(item), p=load / load.sum())
    if kind == "matrices":
        scale = np.arange(n_labels)
        near = np.exp(-1.2 * np.abs(scale[:, None] - scale))
        near /= near.sum(axis=1, keepdims=True)
        own = np.stack([rng.dirichlet(6 * row, n_workers) for row in near], axis=1)  # by true level
        drawn = (0.6 * own + 0.4 * near)[worker, level[item]]
    else:
        seen = (thresholds + bias[worker, None] - match[item, None]) / noise[worker, None]
        reached = np.column_stack([np.ones(len(item)), ndtr(-seen), np.zeros(len(item))])
        blind = lapse[worker, None]
        drawn = (1 - blind) * (reached[:, :-1] - reached[:, 1:]) + blind * habit[worker, ::-1]
    given = (rng.random(len(item))[:, None] > drawn.cumsum(axis=1)[:, :-1]).sum(axis=1)
    table = answer_table(item, worker, n_labels - 1 - given, n_labels=n_labels, n_workers=n_workers)
    return Crowd(table, np.arange(n_items), n_labels - 1 - level, tuple(range(1, n_labels)))


def _drawn_pairs(seed: int, n_pairs: int, rng: np.random.Generator) -> Ints:
    """True labels of pairs of the world, equally many of each."""
    world = generate(300, seed=seed)
    items = world.retrieval_set
    images, captions = ([item.external_id for item in side] for side in (items.images, items.captions))
    every = truth_matrix(world, images, captions).ravel().astype(np.int64) - 1
    parts = [rng.choice(np.flatnonzero(every == label), n_pairs // 4, replace=False) for label in range(4)]
    return rng.permutation(every[np.concatenate(parts)])


def _shares(table: AnswerTable) -> Floats:
    counts = table.counts().astype(np.float64)
    found: Floats = counts / counts.sum(axis=1, keepdims=True)
    return found


METHODS: Mapping[str, Callable[[AnswerTable], Floats]] = {
    "majority": _shares,
    "Dawid-Skene": lambda table: fit_dawid_skene(table).posterior,
    "ordinal": lambda table: fit_ordinal(table).level.astype(np.float64),
}
"""(items, labels) probability of each label."""


def fitted(crowd: Crowd, method: str) -> Fitted:
    """How right and how well calibrated an aggregator is on a crowd."""
    probability = METHODS[method](crowd.table)[crowd.items]
    n_labels = probability.shape[1]
    if method == "majority":
        label = majority_table(crowd.table).label[crowd.items]  # its ties go to the median
    else:
        label = n_labels - 1 - probability[:, ::-1].argmax(axis=1)
    stated = np.concatenate([probability[:, :best].sum(axis=1).clip(0, 1) for best in crowd.events])
    true = np.concatenate([crowd.truth < best for best in crowd.events])
    return Fitted(float((label == crowd.truth).mean()), calibration(stated, true))


def crowds(data: Path | None) -> Iterator[tuple[str, Crowd]]:
    """Every crowd by name; the scripted ones alone without ``data``."""
    if data is not None:
        for name, (file, scale) in REAL.items():
            yield name, read_crowd(data, file, scale)
    yield "scenes, 1.2 answers", scripted_crowd(1.2)
    yield "scenes, 3 answers", scripted_crowd(3)


def draw(found: Mapping[str, Mapping[str, Fitted]], path: Path) -> None:
    """A panel for each shown set: stated probability against the share that was true, bins of a tenth.

    Greys and colours are legible on white and on dark pages, and the ground is transparent.
    """
    plt = svg_plots()
    panels = [name for name in SHOWN if name in found]
    figure, axes = plt.subplots(
        2, -(-len(panels) // 2), figsize=(7.6, 5.2), sharex=True, sharey=True, squeeze=False
    )
    marks = {"majority": ("#b07a00", "s"), "Dawid-Skene": ("#0f8a6d", "^"), "ordinal": ("#3b7dd8", "o")}
    for axis, name in zip(axes.flat, panels, strict=False):
        axis.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=":")
        for method, one in found[name].items():
            at, (colour, mark) = one.reliability, marks[method]
            drawn = at.cases >= FEWEST
            style = {"color": colour, "linewidth": 1.2, "marker": mark, "markersize": 3.5}
            axis.plot(at.stated[drawn], at.observed[drawn], label=method, **style)
        axis.set_title(name, color=GREY, fontsize=8)
        grey_frame(axis)
    axes[0, 0].legend(frameon=False, labelcolor=GREY, loc="upper left", fontsize=7)
    figure.supxlabel("stated probability", color=GREY, fontsize=9)
    figure.supylabel("share that was true", color=GREY, fontsize=9)
    save_svg(figure, path)


def main() -> None:
    """Print a Markdown table, and draw the figure where one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=existing, help="folder of NAME.label.csv.gz and NAME.truth.csv")
    parser.add_argument("--figure", type=Path, help="SVG to write")
    parser.add_argument("--simulated", action="store_true", help="simulated crowds instead of all others")
    given = parser.parse_args()
    if given.data is None and not given.simulated:
        parser.error("give --data DIR or --simulated")
    print(
        "| set | accuracy: majority / Dawid–Skene / ordinal | Brier | calibration error |\n| --- | --- | --- | --- |"
    )
    found: dict[str, dict[str, Fitted]] = {}
    simulated = ((f"{kind}: {words}", simulated_crowd(kind)) for kind, words in SIMULATED.items())
    for name, crowd in simulated if given.simulated else crowds(given.data):
        found[name] = {method: fitted(crowd, method) for method in METHODS}
        cells = (
            " / ".join(f"{value:.3f}".lstrip("0") for value in values)
            for values in (
                [one.accuracy for one in found[name].values()],
                [one.reliability.brier for one in found[name].values()],
                [one.reliability.error for one in found[name].values()],
            )
        )
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    if given.figure:
        draw(found, given.figure)


if __name__ == "__main__":
    main()
