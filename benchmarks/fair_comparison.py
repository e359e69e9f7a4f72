"""Rankings of models by naive and fair scores against the ranking by the truth, as Markdown.

    python benchmarks/fair_comparison.py scenes [--worlds 4] [--first 0] [--images 120] [--proposers 2] [--audit 600]
        [--right] [--compare] [--metric mAP@R]
    python benchmarks/fair_comparison.py captions --data DIR [--audit 600]

``scenes``: in generated worlds some of the five small twins propose, simulated workers judge what they propose, an
audit of so many pairs is drawn, and all five are compared; the truth of every pair is known. ``--compare`` draws it
where the five rank differently, as `mitl audit draw --compare` does.

``captions``: ten captioners' captions of COCO's test images as models, by TF-IDF. No audit of these data exists, so a
replay: ECCV Caption's public positives are taken as the whole truth, so all others as no match, **although nobody knows
that**. Some of the ten propose, what they do not propose is hidden, and an audit is drawn whose answers are that truth.
So it shows what the estimators make of real rankings and real positives, not how good the ten really are. DIR holds,
directly or in folders,
``captions.parquet`` and ``machine_captions.parquet``; the positives come of the package ``eccv_caption``.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau
from shared_kit import parser_of

from mitl.metrics.incomplete import AuditSample, Evidence, Fair
from mitl.metrics.partial_labels import CorrectedLabels, PartialLabels, Rates
from mitl.metrics.positives import Positives
from mitl.metrics.rank_groups import bands, influence, with_rank_chances
from mitl.metrics.ranks import ArrayRankings
from mitl.metrics.retrieval import score_metrics
from mitl.metrics.table import asked_metrics
from mitl.stages.auditing.comparing import BANDS, METRIC
from mitl.stages.auditing.comparing import SHARES as SHARES_OF_COMPARISON

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ids = NDArray[np.int64]

METRICS = list(asked_metrics(["R@1", "R@5", "R-Precision", "mAP@R"]))
TWINS = ("pvse-mini", "vsrn-mini", "pcme-mini", "vilt-mini", "clip-mini")
PROPOSED, LISTED = 5, 25
"""Ranks of a proposer that are judged, and that the sample counts as ranked."""
MOST = 8
"""Images that a caption may be true of; most captions of a world say less, and are left out."""
FALSE_NO, FALSE_YES = 0.08, 0.01
"""Of careful workers' single answers."""
STRATA = ("released", "refused", "ranked by two", "ranked by one", "remainder")
SHARES = np.array([0.12, 0.1, 0.28, 0.25, 0.25])
"""Of the audit, by stratum."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Queries by items: what is true, what is judged, what was answered there, which stratum, who ranks how."""

    truth: Flags
    judged: Flags
    answers: Flags
    strata: Ids
    rankings: Mapping[str, Ids]
    shares: Floats
    """Of the audit, by stratum."""

    @property
    def labels(self) -> PartialLabels:
        """What is judged."""
        rows, items = np.nonzero(self.judged)
        said = self.answers[rows, items].astype(np.float64)
        every = np.ones(len(rows), np.bool_)
        return PartialLabels.of(np.arange(len(self.truth)), self.truth.shape[1], (rows, items), said, every)

    def by_difference(self) -> Pool:
        """With the strata of a sample that is drawn where all of its models rank differently."""
        queries = np.arange(len(self.truth))
        found = influence(
            self.labels,
            [ArrayRankings(queries, ranked) for ranked in self.rankings.values()],
            asked_metrics([METRIC])[0],
        )
        rows, items = found.labels.rows, found.labels.items
        others = ~(self.judged & self.answers)[rows, items]
        strata = np.where(self.judged & self.answers, 0, len(SHARES_OF_COMPARISON) - 1)
        strata[rows[others], items[others]] = 1 + bands(np.sqrt(found.spread[others]), len(BANDS))
        return replace(self, strata=strata, shares=np.array(list(SHARES_OF_COMPARISON.values())))

    def kept(self, rows: Flags) -> Pool:
        """Some of its queries."""
        return Pool(
            self.truth[rows],
            self.judged[rows],
            self.answers[rows],
            self.strata[rows],
            {name: ranked[rows] for name, ranked in self.rankings.items()},
            self.shares,
        )


def answered(truth: Flags, rng: np.random.Generator) -> Flags:
    """One careful worker's answer on each pair."""
    drawn = rng.random(truth.shape)
    return np.where(truth, drawn >= FALSE_NO, drawn < FALSE_YES)


def audited(pool: Pool, size: int, rng: np.random.Generator, *, answers: bool = True) -> AuditSample:
    """A stratified sample; a pair is a match where the first and one of two more say so, released ones by majority."""
    places, inclusion, strata = [], [], []
    for stratum, share in enumerate(pool.shares):
        members = np.flatnonzero(pool.strata.ravel() == stratum)
        drawn = min(len(members), round(size * share))
        places.append(rng.choice(members, drawn, replace=False))
        inclusion.append(np.full(drawn, drawn / max(len(members), 1)))
        strata.append(np.full(drawn, stratum))
    at, of = np.concatenate(places), np.concatenate(strata)
    truth = pool.truth.ravel()[at]
    first, second, third = (answered(truth, rng) for _ in range(3))
    majority = first.astype(int) + second + third >= 2
    held = (pool.judged & pool.answers).ravel()[at]
    confirmed = np.where(held, majority, first & (second | third)) if answers else truth
    rows, items = np.divmod(at, pool.truth.shape[1])
    yes = (
        np.stack([first, second & (first | held), third & (first | held)])
        if answers
        else np.stack([truth] * 3)
    )
    reading = CorrectedLabels.of(confirmed, held, Rates.measured(yes, held, held))
    return AuditSample(rows, items, confirmed, of, np.concatenate(inclusion), reading)


def evidence(pool: Pool, sample: AuditSample) -> Evidence:
    """As `mitl evaluate --fair` makes it: judged labels, the sample, chances by the models' fused ranks elsewhere."""
    queries, judged = np.arange(len(pool.truth)), pool.labels
    rankings = [ArrayRankings(queries, ranked) for ranked in pool.rankings.values()]
    chances = with_rank_chances(judged, rankings, sample)
    return Evidence.of(judged, sample, chances=chances, draws=128)


def true_scores(pool: Pool) -> dict[str, Floats]:
    """Model → each metric by the truth."""
    positives = Positives.from_pairs(*np.nonzero(pool.truth))
    return {
        name: np.array(
            [
                one.estimate
                for one in score_metrics(ArrayRankings(np.arange(len(ranked)), ranked), positives, METRICS)
            ]
        )
        for name, ranked in pool.rankings.items()
    }


def ranked(similarities: Mapping[str, Floats]) -> dict[str, Ids]:
    """Every model's full rankings."""
    return {name: np.argsort(-sim, axis=1, kind="stable") for name, sim in similarities.items()}


def judged_pool(
    truth: Flags,
    originals: Flags,
    rankings: Mapping[str, Ids],
    proposers: Sequence[str],
    rng: np.random.Generator | None,
) -> Pool:
    """What is left when some models' first items were judged, by one worker each or rightly; originals are known."""
    places = np.stack([np.argsort(rankings[name], axis=1) for name in proposers])  # (A, Q, G) from 0
    judged = (places < PROPOSED).any(0) | (originals & truth)
    said = truth if rng is None else answered(truth, rng)
    answers = np.where(originals & truth, True, said) & judged
    by = (places < LISTED).sum(0)
    strata = np.where(judged, np.where(answers, 0, 1), np.where(by >= 2, 2, np.where(by == 1, 3, 4)))
    return Pool(truth, judged, answers, strata, rankings, SHARES)


@dataclass(frozen=True, slots=True)
class Found:
    """One metric of all models in one trial."""

    names: tuple[str, ...]
    truth: Floats
    naive: Floats
    classical: Floats
    powered: Floats
    expected: Floats
    settled: Floats
    inside: Floats
    """Of the models: whether the fair interval holds the truth."""
    pairs_inside: float
    """The share of pairs of models whose interval of the difference holds the true one."""
    told_apart: tuple[int, int]
    """Pairs of models that the audit tells apart, and those of them whose order is another."""


def compared(
    pool: Pool, size: int, rng: np.random.Generator, *, answers: bool = True, targeted: bool = False
) -> list[Found]:
    """One trial: a sample, and all models on it."""
    pool = pool.kept((pool.judged & pool.answers).any(axis=1) & pool.truth.any(axis=1))
    pool = pool.by_difference() if targeted else pool
    known = evidence(pool, audited(pool, size, rng, answers=answers))
    truth = true_scores(pool)
    rows = np.arange(len(pool.truth))
    fair: dict[str, Fair] = {
        name: known.fair(ArrayRankings(rows, ranked), METRICS) for name, ranked in pool.rankings.items()
    }
    values = np.array(known.settled(list(fair.values())))
    found = []
    for place in range(len(METRICS)):
        true = np.array([truth[name][place] for name in fair])
        powered = [one.powered[place] for one in fair.values()]
        differences = [
            (known.difference(powered[a], powered[b]), true[a] - true[b])
            for a, b in combinations(range(len(powered)), 2)
        ]
        found.append(
            Found(
                tuple(fair),
                true,
                np.array([one.naive[place] for one in fair.values()]),
                np.array([one.classical[place].value for one in fair.values()]),
                np.array([one.value for one in powered]),
                np.array([one.expected for one in powered]),
                values[:, place],
                np.array([one.holds(value) for one, value in zip(powered, true, strict=True)]),
                float(np.mean([one.holds(value) for one, value in differences])),
                (
                    sum(one.sign != 0 for one, _ in differences),
                    sum(one.sign * value < 0 or (one.sign != 0 and not value) for one, value in differences),
                ),
            )
        )
    return found


METHODS = ("naive", "classical", "expected", "powered", "settled")
NEAR = 0.03
"""Models whose true scores differ by less are near."""


def wrongly_ordered(trials: Sequence[Found]) -> str:
    """Pairs of models that naive and fair order wrongly, of so many, those near by the truth and the others."""
    counts = np.zeros((2, 3), int)
    for one in trials:
        for a, b in combinations(range(len(one.names)), 2):
            gap = one.truth[a] - one.truth[b]
            wrong = [(values[a] - values[b]) * gap <= 0 for values in (one.naive, one.settled)]
            counts[int(abs(gap) >= NEAR)] += [*wrong, 1]
    return "; ".join(f"{naive}, {fair} of {pairs}" for naive, fair, pairs in counts)


def difference_errors(trials: Sequence[Found]) -> str:
    """Root mean square error of the difference of two models in points: expected, prediction-powered, fair."""
    squares = (
        [2 * np.var(getattr(one, method) - one.truth, ddof=1) for one in trials]
        for method in ("expected", "powered", "settled")
    )
    return " / ".join(f"{100 * np.mean(each) ** 0.5:.1f}" for each in squares)


def table_of(trials: Sequence[Sequence[Found]], held_out: Sequence[Sequence[str]]) -> str:
    """Kendall's tau with the truth and the share of trials with the exact order, by metric and method."""
    lines = [
        "| metric | models | naive: tau, exact | Horvitz-Thompson | expected | prediction-powered | fair | "
        "where naive errs | mean error naive / fair | intervals hold: models, differences | "
        "pairs told apart, of them wrongly; trials without a wrong one, where naive errs | "
        "naive, fair order wrongly: near; others | differences err: expected / prediction-powered / fair |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for place, metric in enumerate(METRICS):
        for whose in ("all", "held out"):
            rows: dict[str, list[tuple[float, bool, float]]] = {method: [] for method in METHODS}
            inside, pairs = [], []
            for trial, outside in zip(trials, held_out, strict=True):
                one = trial[place]
                kept = np.array([whose == "all" or name in outside for name in one.names])
                inside.append(one.inside[kept].mean())
                pairs.append(one.pairs_inside)
                for method, known in rows.items():
                    values = getattr(one, method)[kept]
                    tau = kendalltau(values, one.truth[kept]).statistic
                    known.append((tau, bool(tau > 1 - 1e-9), float(np.abs(values - one.truth[kept]).mean())))
            means = {method: np.mean(known, axis=0) for method, known in rows.items()}
            erring = [
                fair[1] for naive, fair in zip(rows["naive"], rows["settled"], strict=True) if not naive[1]
            ]
            shown = " | ".join(f"{tau:.2f}, {100 * exact:.0f} %" for tau, exact, _ in means.values())
            errors = f"{100 * means['naive'][2]:.1f} / {100 * means['settled'][2]:.1f}"
            both = f"{np.mean(inside):.2f}" + (f", {np.mean(pairs):.2f}" if whose == "all" else "")
            apart = " |  | "
            if whose == "all":
                every = [trial[place] for trial in trials]
                told, wrong = np.sum([one.told_apart for one in every], axis=0)
                pairs = len(every) * comb(len(every[0].names), 2)
                right = [
                    one.told_apart[1] == 0
                    for one, naive in zip(every, rows["naive"], strict=True)
                    if not naive[1]
                ]
                told_of = f"{told} of {pairs}, {wrong}; {sum(right)} of {len(right)}"
                apart = f"{told_of} | {wrongly_ordered(every)} | {difference_errors(every)}"
            lines.append(
                f"| {metric.name} | {whose} | {shown} | {sum(erring)} of {len(erring)} | {errors} | {both} | {apart} |"
            )
    return "\n".join(lines)


def scenes_trials(
    worlds: range, images: int, proposers: int, size: int, *, answers: bool, targeted: bool
) -> str:
    """Five companies of proposers in each world, neighbours in a ring, with both directions' queries apart."""
    trials: dict[str, list[list[Found]]] = {"i2t": [], "t2i": []}
    outside: dict[str, list[list[str]]] = {"i2t": [], "t2i": []}
    for world in worlds:
        truth, originals, similarities = twins_of_world(images, world)
        for direction in trials:
            turned = direction == "t2i"
            rankings = ranked({name: sim.T if turned else sim for name, sim in similarities.items()})
            for number in range(len(TWINS)):
                chosen = (TWINS * 2)[number : number + proposers]
                rng = np.random.default_rng([world, number, turned])
                pool = judged_pool(
                    truth.T if turned else truth,
                    originals.T if turned else originals,
                    rankings,
                    chosen,
                    rng,
                )
                trials[direction].append(compared(pool, size, rng, answers=answers, targeted=targeted))
                outside[direction].append([name for name in TWINS if name not in chosen])
    return "\n\n".join(
        f"### {direction}, {len(trials[direction])} trials\n\n{table_of(trials[direction], outside[direction])}"
        for direction in trials
    )


def twins_of_world(images: int, seed: int) -> tuple[Flags, Flags, dict[str, Floats]]:
    """(I, C) matches, originals, and the similarities of the five twins."""
    from annotators.registry import build
    from mitl.datasets.scenes.files import write_items
    from mitl.datasets.scenes.world import generate, truth_matrix
    from mitl.records import Label

    world = generate(images, seed=seed, split="fair")
    with tempfile.TemporaryDirectory() as folder:
        pictures, captions = write_items(world, Path(folder))
        similarities = {}
        for name in TWINS:
            annotator = build(name)
            left, right = annotator.encode_images(pictures), annotator.encode_captions(captions)
            similarities[name] = np.asarray(annotator.similarities(left, right), np.float64)
    truth = truth_matrix(world, list(world.scenes), list(world.captions)) <= Label.WEAK_YES.code
    originals = np.zeros_like(truth)
    originals[[caption.image_id - 1 for caption in captions], np.arange(len(captions))] = True
    telling = truth.sum(axis=0) <= MOST
    return (
        truth[:, telling],
        originals[:, telling],
        {name: sim[:, telling] for name, sim in similarities.items()},
    )


CAPTIONERS = (
    *("PureT_SCST", "SATIC", "SparseCaption_test156000", "ShowEditTell_RL", "ShowEditTell_XE"),
    *("BERT_VR_rerank_0.4", "BRS_beam_candidate", "MAGIC_coco", "ZeroCap", "MAGIC_flickr30k"),
)
_QUERIES = 600
"""Of each direction, so that the dense arrays of this script fit."""


def captions_trials(data: Path, size: int) -> str:
    """Each pair of the five strongest captioners as proposers, both directions apart."""
    import pyarrow.parquet as pq

    from annotators.registry import build
    from mitl.datasets.official import official_positives
    from mitl.records import CaptionItem, ImageItem

    table = pq.read_table(next(data.rglob("captions.parquet")), columns=["caption_id", "image_id", "text"])
    captions = [
        CaptionItem(row["caption_id"], str(row["caption_id"]), row["image_id"], row["text"])
        for row in sorted(table.to_pylist(), key=lambda row: row["caption_id"])
    ]
    images = [ImageItem(one, str(one)) for one in sorted({caption.image_id for caption in captions})]
    machine = next(data.rglob("machine_captions.parquet"))
    encoded = {}
    for name in CAPTIONERS:
        annotator = build(f"pivot-{name}-tfidf", {"captions": str(machine)})
        encoded[name] = annotator, annotator.encode_images(images), annotator.encode_captions(captions)
    eccv, found = official_positives("eccv"), []
    for direction, positives in (("i2t", eccv.image_to_caption), ("t2i", eccv.caption_to_image)):
        turned = direction == "t2i"
        row_of = {one.external_id: row for row, one in enumerate(captions if turned else images)}
        column_of = {one.external_id: row for row, one in enumerate(images if turned else captions)}
        asked = sorted(positives, key=int)[:: max(1, len(positives) // _QUERIES)][:_QUERIES]
        rows = np.array([row_of[query] for query in asked])
        truth = np.zeros((len(asked), len(column_of)), np.bool_)
        for row, query in enumerate(asked):
            truth[row, [column_of[item] for item in positives[query]]] = True
        owners = np.array([caption.image_id for caption in captions])
        ids = np.array([image.id for image in images])
        originals = (owners[rows, None] == ids) if turned else (ids[rows, None] == owners)
        rankings = {}
        for name, (annotator, left, right) in encoded.items():
            some = annotator.similarities(*((right.rows(rows), left) if turned else (left.rows(rows), right)))
            rankings[name] = np.argsort(-some, axis=1, kind="stable").astype(np.int32)
        trials, outside = [], []
        for number, chosen in enumerate(combinations(CAPTIONERS[:5], 2)):
            rng = np.random.default_rng([7, number, turned])
            pool = judged_pool(truth, originals, rankings, chosen, None)
            trials.append(compared(pool, size, rng, answers=False))
            outside.append([name for name in CAPTIONERS if name not in chosen])
        found.append(f"### {direction}, {len(trials)} trials\n\n{table_of(trials, outside)}")
    return "\n\n".join(found)


def main() -> None:
    """Run one of the two comparisons."""
    parser = parser_of(__doc__)
    parser.add_argument("which", choices=["scenes", "captions"])
    parser.add_argument("--worlds", type=int, default=4)
    parser.add_argument("--first", type=int, default=0, help="seed of the first world")
    parser.add_argument("--images", type=int, default=120)
    parser.add_argument("--proposers", type=int, default=2)
    parser.add_argument("--audit", type=int, default=600)
    parser.add_argument("--right", action="store_true", help="nobody errs in the audit")
    parser.add_argument("--compare", action="store_true", help="draw where the models rank differently")
    parser.add_argument("--metric", action="append", help="instead of all four")
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    if given.which == "captions" and given.data is None:
        parser.error("captions needs --data DIR")
    started = time.perf_counter()
    if given.metric:
        METRICS[:] = asked_metrics(given.metric)
    if given.which == "scenes":
        worlds = range(given.first, given.first + given.worlds)
        print(
            scenes_trials(
                worlds,
                given.images,
                given.proposers,
                given.audit,
                answers=not given.right,
                targeted=given.compare,
            )
        )
    else:
        print(captions_trials(given.data, given.audit))
    print(f"\n{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
