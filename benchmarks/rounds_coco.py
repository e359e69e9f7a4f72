"""Rounds on COCO's test split, replayed from public judgements by an oracle that does not know every answer.

Five caption pivots propose for ECCV Caption's queries. The oracle says yes to the pairs that ECCV Caption released or
CxC rated 3 or above, no to those that CxC rated below; **all else is unknown, and no figure counts it as a no**. A
campaign asks a part of the pool in rounds: a pilot by chance, then what a strategy of `mitl.selection` chooses. Where
it goes by probabilities, they are those of the boosted trees of `mitl.fusion` on its features of rankings and texts,
learnt anew at each round: not cross-fitted, since open pairs alone are scored. Trees and strategies learn yes from what
is not yes, so an unknown teaches as background does (learning from positive and unlabelled examples; Elkan and Noto,
KDD 2008): CxC's noes alone are too few to learn from.

    python benchmarks/rounds_coco.py --data DIR --kept DIR [--strategy expected random] [--deepest 5] [--seeds 3]
    python benchmarks/rounds_coco.py --data DIR --kept DIR --table [--figure docs/figures/cost-curve-coco.svg]

DIR of --data is that of `coco_walk.py`; in --kept lie encodings, rankings and a file for each campaign. Campaigns that
are there are not run again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rounds_coco_replay import DEPTH, Replay, answered, coco
from shared_kit import parser_of, svg_plots

from mitl.core.arrays import Ints, contains, distinct, places, unpack_ids
from mitl.fusion.models import area
from mitl.selection.choice import TOP_K, SelectionProblem
from mitl.selection.strategies import STRATEGIES, select
from mitl.stages.rounds.choosing import pool_of

SHARES = (0.05, 0.15, 0.3, 0.5, 1.0)
"""Of a full round's pairs, asked by the end of each round; the first is the pilot."""
BY_PROBABILITY = ("expected", "uncertainty")
STEPS = np.linspace(0, 1, 26)[1:]
"""Shares of a full round at which the curve is kept."""
WANTED = (0.9, 0.95, 0.99, 1.0)
RESAMPLES = 1000
ALIKE = 0.95
"""Cosine from which on two captions say nearly the same."""


@dataclass(frozen=True)
class Campaign:
    """In which order a strategy asks."""

    strategy: str
    seed: int
    deepest: int = TOP_K
    """Ranks of the pool; more than five search deeper than a full round does."""
    shares: tuple[float, ...] = SHARES

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.strategy}.{self.deepest}.{self.seed}"


def run(replay: Replay, campaign: Campaign) -> tuple[Ints, dict[float, float]]:
    """The pairs in the order in which they are asked, and by share the area of the round's scores over open pairs.

    The pilot is of a full round's pairs, whatever the pool.
    """
    n_full = len(replay.full)
    asked = np.empty(0, np.int64)
    areas: dict[float, float] = {}
    for number, share in enumerate(campaign.shares):
        ranked = replay.pool(campaign.deepest if number else TOP_K)
        wanted = round(share * n_full) - len(asked)
        answers = answered(asked, replay.oracle)
        fused = None
        if number and campaign.strategy in BY_PROBABILITY:
            fused = replay.scored(answers)
        pool = pool_of(ranked, np.sort(asked), answers, fused)
        if fused is not None:
            left = pool[pool["open"]]
            is_yes = contains(replay.oracle.yes, left["pair"].to_numpy())
            if 0 < is_yes.sum() < len(left):
                images, _ = unpack_ids(left["pair"].to_numpy())
                areas[share] = area(left["probability"], is_yes, images).value
        if not pool["open"].any():
            break
        strategy = campaign.strategy if number or campaign.strategy == "exhaustive" else "random"
        chosen = select(strategy, SelectionProblem(pool, ranked, wanted, campaign.seed))["pair"].to_numpy()
        asked = np.append(asked, chosen)
    return asked, areas


@dataclass(frozen=True, eq=False)
class Curve:
    """What the campaigns of one strategy found, by how much they asked."""

    strategy: str
    deepest: int
    asked: Sequence[Ints]
    """One for each seed."""
    areas: Sequence[Mapping[float, float]]

    @property
    def label(self) -> str:
        """In tables and the figure."""
        return self.strategy if self.deepest == TOP_K else f"{self.strategy}, {self.deepest} deep"


def found(curve: Curve, replay: Replay, share: float) -> tuple[float, float, float]:
    """Released positives found by then, as a share of those that a full round holds: mean over seeds, 95 % interval.

    The interval is a bootstrap's over queries and, at each draw, one of the seeds.
    """
    full = replay.full
    held = full[contains(replay.oracle.yes, full)]
    known = distinct(np.concatenate([_asking(pairs, replay) for pairs in (held, *curve.asked)]))
    by_query = np.stack(
        [
            _counts(head[contains(replay.oracle.yes, head)], replay, known)
            for head in (asked[: round(share * len(full))] for asked in curve.asked)
        ]
    )
    total = _counts(held, replay, known)
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(len(known), np.full(len(known), 1 / len(known)), RESAMPLES)
    seeds = rng.integers(len(by_query), size=RESAMPLES)
    shares = (drawn * by_query[seeds]).sum(axis=1) / np.maximum((drawn * total).sum(axis=1), 1)
    low, high = np.quantile(shares, (0.025, 0.975))
    return float(by_query.sum(axis=1).mean() / total.sum()), float(low), float(high)


def needed(asked: Ints, replay: Replay, share: float) -> float:
    """How much of a full round is asked until this share of its released positives' number is found; NaN for never."""
    full = replay.full
    wanted = int(np.ceil(share * contains(replay.oracle.yes, full).sum() - 1e-9))
    at = np.flatnonzero(contains(replay.oracle.yes, asked).cumsum() >= wanted)
    return (int(at[0]) + 1) / len(full) if len(at) else float("nan")


def _asking(pairs: Ints, replay: Replay) -> Ints:
    """(n,) each pair's query: its image where that asked, else its caption, negative."""
    images, captions = unpack_ids(pairs)
    return np.where(contains(replay.image_queries, images), images, -captions)


def _counts(pairs: Ints, replay: Replay, known: Ints) -> Ints:
    return np.bincount(places(known, _asking(pairs, replay)), minlength=len(known))


def write_tables(replay: Replay, curves: Sequence[Curve], figure: Path | None) -> None:
    """A line for each strategy and round, then what is asked until enough is found."""
    full, oracle = replay.full, replay.oracle
    deep = distinct(replay.evidence.ranked["pair"].to_numpy())
    for name, pairs in (("a full round", full), (f"{DEPTH} deep", deep)):
        yes, no = (int(contains(side, pairs).sum()) for side in (oracle.yes, oracle.no))
        print(f"# {name}: {len(pairs):,} pairs; yes {yes:,}, no {no:,}, unknown {len(pairs) - yes - no:,}")
    print(
        "| strategy | seeds | asked | yes | no | unknown | released positives found (95 %) | AUC where open |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for curve in curves:
        for share in (one for one in SHARES if one < 1):
            heads = [asked[: round(share * len(full))] for asked in curve.asked]
            yes, no = (
                np.mean([contains(side, head).sum() for head in heads]) for side in (oracle.yes, oracle.no)
            )
            mean, low, high = found(curve, replay, share)
            areas = [one[share] for one in curve.areas if share in one]
            told = f"{np.mean(areas):.3f}" if areas else ""
            print(
                f"| {curve.label} | {len(heads)} | {share:.0%} | {yes:,.0f} | {no:,.0f} "
                f"| {np.mean([len(head) for head in heads]) - yes - no:,.0f} "
                f"| {mean:.1%} ({low:.1%} to {high:.1%}) | {told} |"
            )
    near, unknown = near_repeats(replay)
    print(
        f"\n# {near:,} pairs of a full round nearly repeat a yes of their image, {unknown:,} of them not yes"
    )
    held = full[contains(oracle.yes, full)]
    new = held[~_is_original(held, replay)]
    print(f"# of the {len(held):,} yes of a full round {len(new):,} are not originals")
    ends = " | ".join(f"{one:.0%}" for one in WANTED)
    print(f"\n| asked until found | {ends} | not originals, at half | of the full round's own, at half |")
    print(f"| --- |{' ---: |' * (len(WANTED) + 2)}")
    for curve in curves:
        until = [float(np.mean([needed(asked, replay, one) for asked in curve.asked])) for one in WANTED]
        heads = [asked[: len(full) // 2] for asked in curve.asked]
        fresh = np.mean([(contains(oracle.yes, head) & ~_is_original(head, replay)).sum() for head in heads])
        same = np.mean([contains(held, head).sum() / len(held) for head in heads])
        ends = " | ".join(_percent(one) for one in until)
        print(f"| {curve.label} | {ends} | {fresh:,.0f} | {same:.0%} |")
    if figure is not None:
        draw(replay, curves, figure)


def near_repeats(replay: Replay) -> tuple[int, int]:
    """How often a yes has another pair of its image beside it in a full round whose caption says nearly the same, and
    how often that other one is no yes: by the first encoder of captions, 0 without one.
    """
    if not replay.evidence.texts:
        return 0, 0
    images, captions = unpack_ids(replay.full)
    is_yes = contains(replay.oracle.yes, replay.full)
    near = unknown = 0
    for image in np.unique(images[is_yes]):
        rows = np.flatnonzero(images == image)
        vectors = replay.evidence.texts[0].of(captions[rows])
        alike = vectors @ vectors.T > ALIKE
        np.fill_diagonal(alike, False)
        near += int(alike[is_yes[rows]].sum())
        unknown += int(alike[is_yes[rows]][:, ~is_yes[rows]].sum())
    return near, unknown


def _is_original(pairs: Ints, replay: Replay) -> NDArray[np.bool_]:
    images, captions = unpack_ids(pairs)
    return np.asarray(replay.evidence.group_of(captions) == images)


def _percent(share: float) -> str:
    return "–" if np.isnan(share) else f"{share:.0%}"


def draw(replay: Replay, curves: Sequence[Curve], path: Path) -> None:
    """Released positives found by what was asked, both as shares of a full round; mean over seeds."""
    plt = svg_plots()
    n_full, n_yes = len(replay.full), int(contains(replay.oracle.yes, replay.full).sum())
    drawn, axis = plt.subplots(figsize=(6, 4))
    for curve in curves:
        hits = [contains(replay.oracle.yes, asked).cumsum() for asked in curve.asked]
        places_ = [min(int(step * n_full), min(map(len, hits))) - 1 for step in STEPS]
        mean = [np.mean([one[at] for one in hits]) / n_yes for at in places_]
        axis.plot(STEPS, mean, linewidth=1, label=curve.label)
    axis.axhline(1, color="gray", linewidth=0.8, linestyle=":")
    axis.axvline(0.5, color="gray", linewidth=0.8, linestyle=":")
    axis.set_xlabel("asked pairs, as a share of a full round's")
    axis.set_title("released positives found, as a share of a full round's")
    axis.legend(frameon=False)
    drawn.tight_layout()
    drawn.savefig(path, metadata={"Date": None, "Creator": None})


def main() -> None:
    """Run campaigns, or tell what those in the folder found."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--strategy", nargs="+", choices=list(STRATEGIES), default=list(STRATEGIES))
    parser.add_argument("--deepest", type=int, default=TOP_K, help=f"ranks of the pool, {DEPTH} at most")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    given.kept.mkdir(parents=True, exist_ok=True)
    replay = coco(given.data, given.kept)
    if given.table:
        write_tables(replay, kept_curves(given.kept), given.figure)
        return
    for seed in range(given.seeds):
        for strategy in given.strategy:
            campaign = Campaign(strategy, seed, given.deepest)
            path = given.kept / f"{campaign.name}.npz"
            if path.exists():
                continue
            began = time.process_time()
            asked, areas = run(replay, campaign)
            np.savez(path, asked=asked, shares=list(areas), areas=list(areas.values()))
            until = ", ".join(f"{one:.0%} by {_percent(needed(asked, replay, one))}" for one in WANTED)
            print(f"{campaign.name}: {until}; {time.process_time() - began:.0f} s", flush=True)


def kept_curves(kept: Path) -> list[Curve]:
    """Of all campaigns in the folder, the strategies in their order."""
    curves = []
    for deepest in sorted({int(path.stem.split(".")[1]) for path in kept.glob("*.*.*.npz")}):
        for strategy in STRATEGIES:
            files = [np.load(path) for path in sorted(kept.glob(f"{strategy}.{deepest}.*.npz"))]
            if files:
                areas = [
                    dict(zip(one["shares"].tolist(), one["areas"].tolist(), strict=True)) for one in files
                ]
                curves.append(Curve(strategy, deepest, [one["asked"] for one in files], areas))
    return curves


if __name__ == "__main__":
    main()
