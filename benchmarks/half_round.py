"""A full round's recall for half of its answers: rounds of least sure pairs, labels under a bound, doubts asked again.

Beside the two steps of ``machine_labels.py`` stands a campaign of five rounds: a random pilot of a tenth of the
candidates, then four times the pairs of which new fused probabilities are least sure. A sample of 300 then bounds
machine labels, and people answer what is left. At last rounds of doubts may follow: the strategy ``doubts`` of
``mitl round`` chooses what is asked of another worker, and a third decides between two, until a budget is spent. A
machine label that people answer is withdrawn, which leaves fewer wrong ones than were bounded. Nothing reads the truth
or, before the bound, the sample.

    mitl init W --dataset scenes --seed 1
    mitl propose --project W --image-queries 200 --caption-queries 500
    python benchmarks/half_round.py ask W --workers careful mixed hasty [--without-trees]
    python benchmarks/half_round.py table W/half.*.npz W2/half.*.npz
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from crowd_answers import Crowd, Ints, Places
from machine_labels import State, ask, in_full, labelled, scores, tolerated
from numpy.typing import NDArray
from rounds_table import interval
from shared_kit import existing, parser_of

from mitl.audits.machine_labels import Promise
from mitl.fusion import fusing
from mitl.records.frames import LABELS, NONE, PROPOSALS, frame
from mitl.records.rounds import DOUBTS
from mitl.selection.choice import MOST_ANSWERS, GivenAnswers, SelectionProblem, called_pairs
from mitl.selection.strategies import select

Floats = NDArray[np.float64]

TWO, FIVE = "two", "five"
SHARES = {TWO: (0.12, 0.25), FIVE: (0.10, 0.18, 0.26, 0.34, 0.38)}
"""Of the candidates, asked by the end of each round."""
SAMPLE = 300
STEP = 100
"""Pairs that are asked again at a time."""
_NOBODY = frame(PROPOSALS, dict.fromkeys(PROPOSALS, ()))


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
    Plan("five rounds (12 %, 12 %)", FIVE, Promise(0.12, 0.12, siding=0.0)),
    Plan("five rounds (12 %, 12 %), 3 % again", FIVE, Promise(0.12, 0.12, siding=0.0), 0.03),
    Plan("the same, siding measured", FIVE, Promise(0.12, 0.12), 0.03),
)


@dataclass(eq=False)
class Judged:
    """Every pair with its answers or its machine label."""

    answers: GivenAnswers
    machine: Places
    """(n,) place in Label of a machine's label; NONE where it gave none."""
    sampled: Ints
    """The pairs that bound it, which are not asked again."""

    def pool(self, state: State) -> pd.DataFrame:
        """As the product has it, of all pairs."""
        return called_pairs(np.arange(len(state.truth)), state.probability, self.answers, self.machine)

    def asked(self, rows: Ints, crowd: Crowd) -> Judged:
        """With one more answer on these pairs, each of a worker who has not answered it."""
        given = self.answers
        before = np.full((len(rows), MOST_ANSWERS), NONE, np.int64)
        for place, row in enumerate(rows):
            workers = given.workers[given.rows == row]
            before[place, : len(workers)] = workers
        labels, who = crowd.ask(rows, before)
        columns = ((given.rows, rows), (given.labels, labels), (given.workers, who))
        return replace(self, answers=GivenAnswers(*(np.append(*column) for column in columns)))


def ask_again(state: State, judged: Judged, crowd: Crowd, budget: int) -> Judged:
    """Rounds of doubts: one more answer on what the product's strategy chooses, and a third where two then differ."""
    while budget > 0:
        pool = judged.pool(state).drop(judged.sampled)
        choice = SelectionProblem(pool, _NOBODY, min(STEP, budget), 0)
        chosen = select(DOUBTS, choice)["pair"].to_numpy()
        judged = judged.asked(chosen, crowd)
        yes, no = judged.answers.votes(len(state.truth))
        tied = chosen[(yes == no)[chosen]]
        judged = judged.asked(tied, crowd)
        budget -= len(chosen) + len(tied)
    return judged


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
    bounded, answers, drawn, who = labelled(state, crowd, SAMPLE, plan.promise, plan.promise.siding)
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
    labels, workers = crowd.ask(left)
    judged = Judged(
        GivenAnswers(
            np.concatenate([state.rows[firsts], np.repeat(drawn, given.sum(axis=1)), left]),
            np.concatenate([state.labels[firsts], answers[given], labels]),
            np.concatenate([state.who[firsts], who[given], workers]),
        ),
        np.full(len(state.truth), NONE, np.int8),
        drawn,
    )
    judged.machine[machine] = np.where(called, 0, len(LABELS) - 1)
    judged = ask_again(state, judged, crowd, int(plan.again * len(state.truth)))
    recall, precision = scores(state, judged.pool(state)["positive"].to_numpy())
    full = in_full(state, seed)
    by_machine = len(np.setdiff1d(machine, judged.answers.rows)) / len(state.truth)
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
    parser = parser_of(__doc__)
    parser.add_argument("step", choices=("ask", "table"))
    parser.add_argument("paths", type=existing, nargs="+", help="projects for ask, else what ask wrote")
    parser.add_argument("--workers", nargs="+", default=["careful"])
    parser.add_argument("--ways", nargs="+", default=[TWO, FIVE], choices=list(SHARES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=4, help="samples and crowds after each campaign")
    parser.add_argument(
        "--without-trees", action="store_true", help="fuse without boosted trees, which take most of its time"
    )
    given = parser.parse_args()
    if given.step == "table":
        for path in given.paths:
            if not path.match("half.*.*.npz"):
                parser.error(f"{path} is not what `ask` wrote; such a file is called half.WORKERS.WAY.npz")
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
