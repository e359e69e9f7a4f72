"""Answers that machine labels save on generated worlds, and how often their bound is broken by the known truth.

A project of a generated world with proposals is asked once in full, and once in part: a random pilot (some pairs of it
twice), the pairs of which fused probabilities are least sure, a random sample that bounds machine labels, two more
answers where the sample contradicts the machine, labels by machine, and people for the rest; at last two more answers
on the pairs whose answer the probabilities contradict most. Every answer counts, controls and failed pages too.

    mitl init W1 --dataset scenes --seed 1
    mitl propose --project W1 --image-queries 200 --caption-queries 500
    python benchmarks/machine_labels.py ask W1 --workers careful       (minutes; W1/machine-labels.careful.npz)
    python benchmarks/machine_labels.py table W1/*.npz W2/*.npz [--figure FILE.svg]
    python benchmarks/machine_labels.py held-out W1/*.npz W2/*.npz --fresh W3/*.npz W4/*.npz
    python benchmarks/machine_labels.py coverage [W1/*.npz] --draws 40

``held-out`` chooses a plan on some worlds and scores it on others. ``coverage`` adds 24 campaigns with made up scores,
of 5, 20 and 58 % matches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from crowd_answers import Crowd, Ints, Places
from numpy.typing import NDArray
from shared_kit import parser_of

from mitl.audits.machine_labels import SIDING_SHARE, MachineLabels, Promise, label_pairs, siding_upper
from mitl.core.arrays import distinct, places, unpack_ids
from mitl.core.statistics import clopper_pearson
from mitl.records import AuditPurpose
from mitl.records.audits import AUDITED, AuditDesign, Stratum
from mitl.records.frames import NONE, frame

PILOT, BAND = 0.12, 0.13
"""Shares of the candidates that are asked before the sample: at random, and the least sure ones."""
MADE = 6000
"""Candidates of a campaign with made up scores."""
TWICE = 150
"""Pairs of the pilot that a second worker answers."""
FOLDS = 3
"""Of fusion, fewer than its own five, which take three times as long."""
PLANS: tuple[tuple[float, float | None, int], ...] = (
    (0.02, None, 0),
    (0.05, None, 0),
    (0.06, 0.10, 0),
    (0.07, 0.12, 80),
    (0.075, 0.13, 120),
    (0.08, 0.12, 80),
    (0.08, 0.14, 0),
    (0.10, 0.14, 0),
    (0.12, 0.16, 0),
)
"""Tolerated share of wrong matches, of lost ones (None: the same), and pairs that are asked again at the end."""


@dataclass(frozen=True, eq=False)
class State:
    """A campaign right before its sample is drawn."""

    name: str
    population: str
    truth: Places
    """(n,) of the candidates."""
    probability: NDArray[np.float64]
    rows: Ints
    """(a,) the candidates that were answered, in order."""
    labels: Places
    """(a,)"""
    answered: int
    """Answers so far, controls and failed pages among them."""
    first: Places
    """(r,) the first answers on the pairs of the pilot that were asked twice."""
    second: Places
    area: float
    """Under the curve, of the pairs that are open."""
    who: Ints
    """(a,) who gave each answer."""

    @property
    def match(self) -> NDArray[np.bool_]:
        """(n,)"""
        return self.truth < 2

    @property
    def open(self) -> Ints:
        """The candidates that nobody has answered."""
        return np.setdiff1d(np.arange(len(self.truth)), self.rows)

    def save(self, path: Path) -> None:
        """All arrays and numbers."""
        np.savez_compressed(path, **self.__dict__)

    @classmethod
    def load(cls, path: Path) -> State:
        """What `save` wrote."""
        with np.load(path) as kept:
            return cls(**{name: kept[name] if kept[name].ndim else kept[name].item() for name in kept.files})


@dataclass(frozen=True)
class Outcome:
    """What a way of asking brings."""

    answers: int
    recall: float
    """Of the candidates' matches."""
    precision: float
    machine: float = 0.0
    """Share of the candidates that a machine labelled."""
    broken: tuple[bool, ...] = ()
    """By stratum whether more labels are wrong in truth than was promised."""
    wrong: float = 0.0
    """Share of the machine labels that are wrong in truth."""


def ask(project: Path, population: str, seed: int, shares: Sequence[float] = (PILOT, PILOT + BAND)) -> State:
    """A random pilot, then the least sure pairs, on a project that has proposals; fuses after each of ``shares``.

    Args:
        shares: of the candidates that are asked by the end of each step, rising.
    """
    from mitl.crowd.context import open_context
    from mitl.datasets.scenes.files import read_world
    from mitl.datasets.scenes.world import truth_matrix
    from mitl.db.store import columns
    from mitl.db.store import items as item_store
    from mitl.fusion.evidence import ANSWERED
    from mitl.fusion.fusing import fuse
    from mitl.fusion.models import area
    from mitl.settings import WORLD_FOLDER, load
    from mitl.stages.fusing.gathering import evidence

    settings = load(project, environ={})
    world = read_world(project / WORLD_FOLDER)
    with open_context(settings, read_only=True) as context:
        pairs = distinct(columns.proposal_columns(context.session)["pair"].to_numpy())
        maps = item_store.id_maps(context.session, item_store.dataset(context.session).id)
        nothing = frame(ANSWERED, dict.fromkeys(ANSWERED, ()))
        known = evidence(context, nothing)
    at = []
    for ids, of in zip(unpack_ids(pairs), maps, strict=True):
        names = list(of)
        at.append((names, places(np.array([of[name] for name in names]), ids)))
    codes = truth_matrix(world, at[0][0], at[1][0])
    truth = (codes[at[0][1], at[1][1]] - 1).astype(np.int8)
    n, images = len(pairs), unpack_ids(pairs)[0]
    rng = np.random.default_rng([seed, 1])
    crowd = Crowd(truth, population, rng)
    rows = rng.choice(n, int(shares[0] * n), replace=False)
    labels, who = crowd.ask(rows)
    twice = rng.choice(len(rows), TWICE, replace=False)
    first = labels[twice]
    second, others = crowd.ask(rows[twice], who[twice][:, None])
    rows, labels = np.concatenate([rows, rows[twice]]), np.concatenate([labels, second])
    who = np.concatenate([who, others])
    for share, following in zip(shares, (*shares[1:], None), strict=True):
        votes = pd.DataFrame({"pair": pairs[rows], "yes": 1.0 * (labels < 2), "no": 1.0 * (labels >= 2)})
        summed = votes.groupby("pair").sum().reset_index()
        answers = frame(ANSWERED, {name: summed[name] for name in ANSWERED})
        fused = fuse(_with(known, answers), seed=seed, count=FOLDS).fused
        probability = fused["probability"].to_numpy()[places(fused["pair"].to_numpy(), pairs)]
        left = np.setdiff1d(np.arange(n), rows)
        if following is not None:
            unsure = np.argsort(-np.minimum(probability, 1 - probability)[left], kind="stable")
            chosen = left[unsure[: int(following * n) - int(share * n)]]
            said, by = crowd.ask(chosen)
            rows, labels, who = np.append(rows, chosen), np.append(labels, said), np.append(who, by)
    found = area(probability[left], truth[left] < 2, images[left]).value
    return State(
        project.name, population, truth, probability, rows, labels, crowd.answered, first, second, found, who
    )


def _with(known: Any, answers: pd.DataFrame) -> Any:
    from dataclasses import fields

    values = {field.name: getattr(known, field.name) for field in fields(known)}
    return type(known)(**{**values, "answers": answers})


def made(seed: int, population: str, share: float) -> State:
    """A campaign of 6,000 candidates with this share of matches, whose scores are made up: AUC 0.9 to 0.98.

    Scores are worse on pairs that match in part, which workers err on more often too.
    """
    rng = np.random.default_rng([seed, 7])
    chances = np.array([0.6 * share, 0.4 * share, 0.4 * (1 - share), 0.6 * (1 - share)])
    truth = rng.choice(4, MADE, p=chances).astype(np.int8)
    apart = rng.uniform(1.0, 1.6)
    logit = (
        apart * np.array([2.2, 1.0, -1.0, -2.2])[truth]
        + rng.normal(size=MADE)
        + np.log(share / (1 - share)) / 2
    )
    probability = 1 / (1 + np.exp(-2 * logit))
    crowd = Crowd(truth, population, rng)
    rows = rng.choice(MADE, MADE // 5, replace=False)
    labels, who = crowd.ask(rows)
    second, _ = crowd.ask(rows[:TWICE], who[:TWICE, None])
    return State(
        f"made {seed}",
        population,
        truth,
        probability,
        rows,
        labels,
        crowd.answered,
        labels[:TWICE],
        second,
        0.0,
        who,
    )


def in_full(state: State, seed: int) -> Outcome:
    """Every candidate is asked once."""
    crowd = Crowd(state.truth, state.population, np.random.default_rng([seed, 9]))
    labels, _ = crowd.ask(np.arange(len(state.truth)))
    return Outcome(crowd.answered, *scores(state, labels < 2))


def in_part(
    state: State,
    sample: int,
    promise: Promise,
    seed: int,
    *,
    again: int = 0,
    siding: float | None = None,
    rest: bool = True,
) -> Outcome:
    """The sample, labels by machine, and people for what is left.

    Args:
        again: pairs to ask twice more at the end.
        siding: share of siding workers; None as measured.
        rest: whether what is left is asked.
    """
    rng = np.random.default_rng([seed, sample])
    crowd = Crowd(state.truth, state.population, rng, answered=state.answered)
    found, answers, drawn, _ = labelled(state, crowd, sample, promise, siding)
    said = _answered(state)
    said[drawn] = np.where(answers[:, 2] != NONE, (answers < 2).sum(axis=1) >= 2, answers[:, 0] < 2)
    machine = found.labels["pair"].to_numpy()
    called = found.labels["label"].to_numpy() < 2
    said[machine] = called
    wrong = called != state.match[machine]
    broken = tuple(
        bool(
            wrong[(found.labels["stratum"] == part.name).to_numpy()].sum()
            > tolerated(part.name, promise) * part.threshold.pairs
        )
        for part in found.strata
    )
    if not rest:
        return Outcome(
            crowd.answered,
            0.0,
            0.0,
            len(machine) / len(said),
            broken,
            float(wrong.mean()) if len(wrong) else 0.0,
        )
    left = np.flatnonzero(said < 0)
    said[left] = crowd.ask(left)[0] < 2
    people = np.setdiff1d(np.arange(len(said)), np.append(machine, drawn))
    doubtful = people[np.argsort(-np.abs(state.probability - said)[people], kind="stable")[:again]]
    if again:
        second, who = crowd.ask(doubtful)
        third, _ = crowd.ask(doubtful, who[:, None])
        said[doubtful] = (said[doubtful] + (second < 2) + (third < 2)) >= 2
    share = float(wrong.mean()) if len(wrong) else 0.0
    return Outcome(crowd.answered, *scores(state, said > 0), len(machine) / len(said), broken, share)


def tolerated(stratum: str, promise: Promise) -> float:
    """What the promise allows of a stratum's open pairs."""
    return promise.error if stratum == "match" or promise.lost is None else promise.lost


def labelled(
    state: State, crowd: Crowd, sample: int, promise: Promise, siding: float | None
) -> tuple[MachineLabels, Places, Ints, Ints]:
    """What stands, the sample's answers (sample, 3), which were sampled, and who answered (sample, 3).

    Pairs are places among the candidates.
    """
    drawn = crowd.rng.choice(state.open, sample, replace=False)
    answers, who = np.full((sample, 3), NONE, np.int8), np.full((sample, 3), -1)
    answers[:, 0], who[:, 0] = crowd.ask(drawn)
    disputed = np.flatnonzero((answers[:, 0] < 2) != (state.probability[drawn] >= 0.5))
    for turn in (1, 2):
        answers[disputed, turn], who[disputed, turn] = crowd.ask(drawn[disputed], who[disputed, :turn])
    columns = dict(zip(("first", "second", "third"), answers.T, strict=True))
    audited = frame(
        AUDITED,
        {
            "pair": drawn,
            "place": np.arange(1, sample + 1),
            "stratum": np.zeros(sample),
            "inclusion": np.full(sample, sample / len(state.open)),
            "recheck": np.zeros(sample, np.bool_),
            "known": np.zeros(sample, np.bool_),
            **columns,
        },
    )
    design = AuditDesign(AuditPurpose.LABELS, 0, (Stratum("open", len(state.open), sample, 0.0, 0.5),))
    scored = pd.DataFrame({"pair": state.open, "probability": state.probability[state.open], "stratum": 0})
    if siding is None:
        siding = siding_upper(state.first, state.second, (1 - promise.confidence) * SIDING_SHARE)
    return label_pairs(scored, audited, design, promise, siding=siding), answers, drawn, who


def _answered(state: State) -> Ints:
    """(n,) 1 where people said yes first, 0 no, -1 where nobody was asked."""
    said = np.full(len(state.truth), -1)
    rows, labels = state.rows[::-1], state.labels[::-1]
    said[rows] = labels < 2  # the first answer is written last
    return said


def scores(state: State, said: NDArray[np.bool_]) -> tuple[float, float]:
    """Recall and precision of the candidates that were called a match."""
    hits = int((said & state.match).sum())
    return hits / int(state.match.sum()), hits / int(said.sum())


def print_table(
    states: Sequence[State], sample: int, seeds: int
) -> list[tuple[str, list[tuple[float, float, float]]]]:
    """A line for each plan and population; returns the curves of the figure."""
    curves = []
    for population in dict.fromkeys(state.population for state in states):
        own = [state for state in states if state.population == population]
        full = [[in_full(state, seed) for seed in range(seeds)] for state in own]
        n = sum(len(state.truth) for state in own)
        print(
            f"{population}: {len(own)} worlds, {n:,} candidates, "
            f"{sum(state.match.sum() for state in own) / n:.0%} matches; "
            f"asked once: recall {_mean(full, 'recall'):.4f}, precision {_mean(full, 'precision'):.4f}; "
            f"AUC where open {np.mean([state.area for state in own]):.3f}; sample {sample}"
        )
        print("  wrong  lost  again   answers  recall  precision   by machine  wrong of these")
        curve = []
        for error, lost, again in PLANS:
            promise = Promise(error, lost)
            part = [
                [in_part(s, sample, promise, seed, again=again, siding=0.0) for seed in range(seeds)]
                for s in own
            ]
            share = _mean(part, "answers") / _mean(full, "answers")
            recall, precision = (_mean(part, name) - _mean(full, name) for name in ("recall", "precision"))
            print(
                f"  {error:5.1%} {error if lost is None else lost:5.1%} {again:6}   {share:7.2f} {recall:+7.4f} "
                f"{precision:+10.4f} {_mean(part, 'machine'):12.2f} {_mean(part, 'wrong'):15.4f}"
            )
            curve.append((share, recall, precision))
        curves.append((population, curve))
    return curves


def print_held_out(states: Sequence[State], fresh: Sequence[State], sample: int, seeds: int) -> None:
    """The plan within half of the answers and 0.01 of precision that recalls most, and its outcome elsewhere."""
    for siding, words in ((0.0, "siding 0"), (None, "siding as measured")):
        for population in dict.fromkeys(state.population for state in states):
            known, others = (
                [state for state in some if state.population == population] for some in (states, fresh)
            )
            tried = {plan: _differences(known, plan, sample, seeds, siding) for plan in PLANS}
            means = {plan: rows.mean(axis=(0, 1)) for plan, rows in tried.items()}
            allowed = [plan for plan, mean in means.items() if mean[0] <= 0.5 and mean[2] >= -0.01]
            if not allowed:
                least = min(mean[0] for mean in means.values())
                print(f"{population}, {words}: no plan is within both; the fewest answers are {least:.2f}")
                continue
            plan = max(allowed, key=lambda one: float(means[one][1]))
            for where, rows in (
                ("chosen on", tried[plan]),
                ("fresh", _differences(others, plan, sample, seeds, siding)),
            ):
                share, recall, precision = rows.mean(axis=(0, 1))
                spread = 1.96 * rows.std(axis=(0, 1), ddof=1) / (rows.shape[0] * rows.shape[1]) ** 0.5
                by_world = ", ".join(f"{one:+.4f}" for one in rows.mean(axis=1)[:, 1])
                print(
                    f"{population}, {words}, plan {plan}, {where}: answers {share:.3f}, recall {recall:+.4f} "
                    f"({recall - spread[1]:+.4f} to {recall + spread[1]:+.4f}; by world {by_world}), precision "
                    f"{precision:+.4f} ({precision - spread[2]:+.4f} to {precision + spread[2]:+.4f})"
                )


def _differences(
    states: Sequence[State],
    plan: tuple[float, float | None, int],
    sample: int,
    seeds: int,
    siding: float | None,
) -> NDArray[np.float64]:
    """(states, seeds, 3) the share of a full round's answers, and recall and precision less those of a full round."""
    error, lost, again = plan
    rows = []
    for state in states:
        for seed in range(seeds):
            full = in_full(state, seed)
            part = in_part(state, sample, Promise(error, lost), seed, again=again, siding=siding)
            rows.append(
                (
                    part.answers / full.answers,
                    part.recall - full.recall,
                    part.precision - full.precision,
                )
            )
    return np.array(rows).reshape(len(states), seeds, 3)


def _mean(outcomes: Sequence[Sequence[Outcome]], name: str) -> float:
    return float(np.mean([[getattr(one, name) for one in row] for row in outcomes]))


def print_coverage(states: Sequence[State], sample: int, draws: int) -> None:
    """How often any stratum holds more wrong labels, by the truth, than was promised."""
    for siding, words in ((0.0, "errors that asking shows"), (None, "siding workers measured")):
        for error in (0.02, 0.05):
            for population in dict.fromkeys(state.population for state in states):
                own = [state for state in states if state.population == population]
                found = [
                    in_part(state, sample, Promise(error), draw, siding=siding, rest=False)
                    for state in own
                    for draw in range(draws)
                ]
                broken = sum(any(one.broken) for one in found)
                low, high = clopper_pearson(broken, len(found), 0.95)
                machine = np.mean([one.machine for one in found])
                print(
                    f"{population:8} tolerated {error:.0%}, {words:26} broken in {broken:4} of {len(found):,} draws: "
                    f"{broken / len(found):.4f} [{low:.4f}, {high:.4f}], by machine {machine:.2f}"
                )


def draw_figure(curves: Sequence[tuple[str, list[tuple[float, float, float]]]], path: Path) -> None:
    """Recall and precision against those of a full round, by the share of its answers."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "mitl", "svg.fonttype": "none"})
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True)
    for axis, place, name in ((axes[0], 1, "recall"), (axes[1], 2, "precision")):
        for population, curve in curves:
            points = sorted((one[0], one[place]) for one in curve)
            axis.plot(*zip(*points, strict=True), marker="o", markersize=4, label=population)
        axis.axhline(0, color="black", linewidth=0.8)
        axis.axhline(-0.01, color="gray", linewidth=0.8, linestyle=":")
        axis.axvline(0.5, color="gray", linewidth=0.8, linestyle=":")
        axis.set_xlabel("answers, as a share of a full round's")
        axis.set_title(f"{name}, less that of a full round")
    axes[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """One of four steps."""
    parser = parser_of(__doc__)
    parser.add_argument("step", choices=("ask", "table", "held-out", "coverage"))
    parser.add_argument("paths", type=Path, nargs="*", help="projects for ask, else what ask wrote")
    parser.add_argument("--workers", default="careful")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=5, help="crowds per world in the table")
    parser.add_argument("--draws", type=int, default=40, help="samples per campaign in the coverage")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--fresh", type=Path, nargs="*", default=[], help="worlds on which no plan is chosen")
    given = parser.parse_args()
    if not given.paths and given.step != "coverage":
        parser.error(f"{given.step} needs paths")
    if given.step == "ask":
        for project in given.paths:
            state = ask(project, given.workers, given.seed)
            state.save(project / f"machine-labels.{given.workers}.npz")
            print(f"{project.name}, {given.workers}: AUC of the open pairs {state.area:.4f}")
        return
    states = [State.load(path) for path in given.paths]
    if given.step == "coverage":
        populations, shares = ("careful", "mixed", "hasty"), (0.05, 0.2, 0.58)
        states += [made(seed, who, shares[seed % 3]) for who in populations for seed in range(8)]
        print_coverage(states, given.sample, given.draws)
        return
    if given.step == "held-out":
        fresh = [State.load(path) for path in given.fresh]
        print_held_out(states, fresh, given.sample, given.seeds)
        return
    curves = print_table(states, given.sample, given.seeds)
    if given.figure is not None:
        draw_figure(curves, given.figure)


if __name__ == "__main__":
    main()
