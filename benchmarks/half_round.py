"""A full round's recall for half of its answers: rounds of least sure pairs, labels under a bound, doubts asked again.

Beside the two steps of ``machine_labels.py`` stands a campaign of five rounds: a random pilot of a tenth of the
candidates, then four times the pairs of which new fused probabilities are least sure. A sample of 300 then bounds
machine labels, and people answer what is left. At last workers may answer once more where the answers so far and the
probability together say that the present call is wrong, until a budget is spent. A machine label that people answer is
withdrawn, which leaves fewer wrong ones than were bounded; a third worker decides between two, and the probabilities
only order the pairs. Nothing reads the truth or, before the bound, the sample.

    mitl init W --dataset scenes --seed 1
    mitl propose --project W --image-queries 200 --caption-queries 500
    python benchmarks/half_round.py ask W --workers careful mixed hasty [--without-trees]
    python benchmarks/half_round.py table W/half.*.npz W2/half.*.npz
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from crowd_answers import Crowd, Ints, Places
from machine_labels import State, ask, in_full, labelled, scores, tolerated
from numpy.typing import NDArray
from rounds_table import interval

from mitl.audits.machine_labels import Promise
from mitl.fusion import fusing
from mitl.records.frames import NONE

Floats = NDArray[np.float64]

TWO, FIVE = "two", "five"
SHARES = {TWO: (0.12, 0.25), FIVE: (0.10, 0.18, 0.26, 0.34, 0.38)}
"""Of the candidates, asked by the end of each round."""
SAMPLE = 300
STEP = 100
"""Pairs that are asked again at a time."""
FALSE_MATCH = 0.5
"""What a false match counts beside a lost one, where the doubtful are asked again."""
CERTAIN = 2e-3
"""Nearer to 0 and 1 no probability is believed."""


@dataclass(frozen=True)
class Plan:
    """What is tolerated of machine labels, and what is asked again at the end."""

    name: str
    way: str
    promise: Promise
    again: float = 0.0
    """Share of the candidates."""


PLANS = (
    Plan("two steps (6 %, 10 %)", TWO, Promise(0.06, 0.10, siding=0.0)),
    Plan("two steps (10 %, 14 %)", TWO, Promise(0.10, 0.14, siding=0.0)),
    Plan("five rounds (12 %, 10 %)", FIVE, Promise(0.12, 0.10, siding=0.0)),
    Plan("five rounds (12 %, 12 %), 3 % again", FIVE, Promise(0.12, 0.12, siding=0.0), 0.03),
    Plan("the same, siding measured", FIVE, Promise(0.12, 0.12), 0.03),
)


@dataclass(eq=False)
class Judged:
    """Every pair with its answers or its machine label."""

    rows: Ints
    """Of the answers, the pair of each."""
    labels: Places
    machine: Ints
    called: NDArray[np.bool_]
    """(machine,) whether the machine calls them a match."""

    def votes(self, n: int) -> tuple[Ints, Ints]:
        """(n,) how many said yes and no."""
        yes = self.labels < 2
        return np.bincount(self.rows[yes], minlength=n), np.bincount(self.rows[~yes], minlength=n)

    def joined(self, rows: Ints, labels: Places) -> Judged:
        """With more answers."""
        return replace(self, rows=np.append(self.rows, rows), labels=np.append(self.labels, labels))


def weights(probability: Floats, rows: Ints, labels: Places) -> Floats:
    """(4,) log-odds of a match that each of the four answers adds.

    Dawid and Skene's expectation maximisation, with each pair's cross-fitted probability as its prior.
    """
    prior = _log_odds(probability)[rows]
    found = np.zeros(4)
    for _ in range(6):
        match = 1 / (1 + np.exp(-prior - found[labels]))
        of_each = [1 + np.bincount(labels, weight, 4) for weight in (match, 1 - match)]
        found = np.log(of_each[0] / of_each[0].sum()) - np.log(of_each[1] / of_each[1].sum())
    return found


def _log_odds(probability: Floats) -> Floats:
    kept = probability.clip(CERTAIN, 1 - CERTAIN)
    found: Floats = np.log(kept / (1 - kept))
    return found


def ask_again(state: State, judged: Judged, crowd: Crowd, budget: int) -> Judged:
    """One more answer where the present call costs most in expectation, and a third wherever two differ."""
    n = len(state.truth)
    weight = weights(state.probability, state.rows, state.labels)
    while True:
        yes, no = judged.votes(n)
        tied = np.flatnonzero((yes == no) & (yes > 0))
        if budget <= 0:
            break
        odds = _log_odds(state.probability) + np.bincount(judged.rows, weight[judged.labels], n)
        match = 1 / (1 + np.exp(-odds))
        cost = np.where(_called(state, judged), FALSE_MATCH * (1 - match), match)
        cost[np.abs(yes - no) >= 2] = 0.0  # two who agree
        cost[yes + no >= 3] = 0.0
        cost[tied] = 1.0
        chosen = np.argsort(-cost, kind="stable")[: min(STEP, budget)]
        chosen = chosen[cost[chosen] > 0]
        if not len(chosen):
            break
        judged = judged.joined(chosen, crowd.ask(chosen)[0])
        budget -= len(chosen)
    return judged.joined(tied, crowd.ask(tied)[0])


def _called(state: State, judged: Judged) -> NDArray[np.bool_]:
    """(n,) people's majority, the machine where nobody answered; two who differ call it no match."""
    yes, no = judged.votes(len(state.truth))
    called = yes > no
    alone = (yes + no)[judged.machine] == 0
    called[judged.machine[alone]] = judged.called[alone]
    return called


def outcome(state: State, plan: Plan, seed: int) -> tuple[float, ...]:
    """What a plan brings, and what it takes, by the truth.

    Returns:
        Share of a full round's answers; recall and precision less its own; share of the pairs labelled by machine, of
        these the wrong ones; of all matches those that the machine loses, and that one worker would lose on the same
        pairs; whether a bound is broken.
    """
    crowd = Crowd(
        state.truth, state.population, np.random.default_rng([seed, SAMPLE]), answered=state.answered
    )
    bounded, answers, drawn = labelled(state, crowd, SAMPLE, plan.promise, plan.promise.siding)
    machine = bounded.labels["pair"].to_numpy()
    called = bounded.labels["label"].to_numpy() < 2
    wrong = called != state.match[machine]
    stratum = bounded.labels["stratum"].to_numpy()
    broken = any(
        wrong[stratum == part.name].sum() > tolerated(part.name, plan.promise) * part.threshold.pairs
        for part in bounded.strata
    )
    matches = state.match[machine]
    worker = Crowd(state.truth, state.population, np.random.default_rng([seed, 8])).ask(machine)[0] < 2
    left = np.setdiff1d(np.arange(len(state.truth)), np.concatenate([state.rows, drawn, machine]))
    # Of a pilot's pair that two workers answered the first answer counts, as in a full round.
    firsts = np.unique(state.rows, return_index=True)[1]
    given = answers != NONE
    judged = Judged(
        np.concatenate([state.rows[firsts], np.repeat(drawn, given.sum(axis=1)), left]),
        np.concatenate([state.labels[firsts], answers[given], crowd.ask(left)[0]]),
        machine,
        called,
    )
    if plan.again:
        judged = ask_again(state, judged, crowd, int(plan.again * len(state.truth)))
    recall, precision = scores(state, _called(state, judged))
    full = in_full(state, seed)
    yes, no = judged.votes(len(state.truth))
    by_machine = float(((yes + no)[machine] == 0).sum() / len(state.truth))
    return (
        crowd.answered / full.answers,
        recall - full.recall,
        precision - full.precision,
        by_machine,
        float(wrong.mean()) if len(wrong) else 0.0,
        float((matches & ~called).sum() / state.match.sum()),
        float((matches & ~worker).sum() / state.match.sum()),
        float(broken),
    )


def print_table(states: Sequence[tuple[str, State]], draws: int) -> None:
    """A line for each crowd and plan: means over worlds of the mean over draws, with intervals of Student's t."""
    print(
        "| workers | plan | AUC where open | answers | recall | precision | by machine | wrong of these "
        "| lost by it | by a worker | broken |"
    )
    print(f"| --- | --- {'| ---: ' * 9}|")
    for population in dict.fromkeys(state.population for _, state in states):
        for plan in PLANS:
            own = [state for way, state in states if way == plan.way and state.population == population]
            if not own:
                continue
            rows = np.array([[outcome(state, plan, seed) for seed in range(draws)] for state in own])
            forms = (".3f", "+.4f", "+.4f", ".2f", ".3f", ".3f", ".3f")
            told = [_told(rows[:, :, at].mean(axis=1), form) for at, form in enumerate(forms)]
            area = _told(np.array([state.area for state in own]), ".3f")
            broken = f"{int(rows[:, :, -1].sum())} of {rows[:, :, -1].size}"
            print(f"| {population} | {plan.name} | {area} | {' | '.join(told)} | {broken} |", flush=True)


def _told(values: Floats, form: str) -> str:
    mean, half = interval(values.tolist())
    return format(mean, form) + ("" if np.isnan(half) else f" ± {half:{form.lstrip('+')}}")


def main() -> None:
    """One of two steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", choices=("ask", "table"))
    parser.add_argument("paths", type=Path, nargs="+", help="projects for ask, else what ask wrote")
    parser.add_argument("--workers", nargs="+", default=["careful"])
    parser.add_argument("--ways", nargs="+", default=[TWO, FIVE], choices=list(SHARES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=4, help="samples and crowds after each campaign")
    parser.add_argument(
        "--without-trees", action="store_true", help="fuse without boosted trees, which take most of its time"
    )
    given = parser.parse_args()
    if given.step == "table":
        states = [(path.name.split(".")[2], State.load(path)) for path in given.paths]
        print_table(states, given.draws)
        return
    if given.without_trees:
        fusing.BASES = {name: base for name, base in fusing.BASES.items() if name != "boosted"}  # type: ignore[attr-defined]
    for project in given.paths:
        for population in given.workers:
            for way in given.ways:
                state = ask(project, population, given.seed, SHARES[way])
                state.save(project / f"half.{population}.{way}.npz")
                print(
                    f"{project.name}, {population}, {way}: AUC of the open pairs {state.area:.4f}", flush=True
                )


if __name__ == "__main__":
    main()
