"""What rounds of asking, learning and asking again save on generated worlds, whose every pair has a known truth.

The baseline asks once about every pair that any of the five minis has among its first five for any query. A campaign
asks a part of the same pairs in rounds: a random pilot, then what a strategy of `mitl.selection` chooses, with a judge
that learns from all answers so far. Its state after each round is kept. From a state either nothing more is asked
(people alone), or machine labels are given under the bound of a sample and people answer what is left. Every answer
counts, controls and those of failed pages too.

    python benchmarks/rounds_study.py ask --out DIR --images 3000 --seed 2 --workers careful
    python benchmarks/rounds_study.py ask --out DIR --images 600 --seed 2 --strategy random --shares 0.06 0.25 0.5
    python benchmarks/rounds_study.py table DIR/*.npz [--figure docs/figures/cost-curve.svg]
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from crowd_answers import Crowd
from machine_labels import State
from numpy.typing import NDArray
from rounds_judges import FINE_TUNED, Answers, Judge
from rounds_table import write_tables
from rounds_world import Arrays, Ints, arrays, proposals
from shared_kit import parser_of

from mitl.core.arrays import pack_ids
from mitl.fusion.evidence import UnitVectors, joined, of_length_1
from mitl.fusion.models import area
from mitl.records.frames import frame
from mitl.records.rounds import POOL
from mitl.selection.choice import SelectionProblem, SideVectors
from mitl.selection.strategies import STRATEGIES, select

SHARES = (0.06, 0.12)
"""Of the candidates, asked by the end of each round."""
NETWORK_EPOCHS = 6
TWICE = 0.1
"""Of the pilot, what a second worker answers."""


@dataclass(frozen=True)
class Campaign:
    """Who is asked about what, and in which way."""

    images: int
    seed: int
    population: str = "careful"
    strategy: str = "uncertainty@2"
    """``NAME``, or ``NAME@N``: it chooses among N times as many open pairs as it asks, drawn at random."""
    tune: bool = False
    """Whether the minis' weights learn too, not only what stands on top of them."""
    shares: tuple[float, ...] = SHARES

    def name(self, share: float) -> str:
        """Of a state's file; the last part is the share of the pairs that were asked, in per cent."""
        judge = "tuned" if self.tune else "frozen"
        return f"{self.images}.{self.seed}.{self.population}.{self.strategy}.{judge}.{round(100 * share)}"


@dataclass(frozen=True, eq=False)
class Known:
    """What a round is chosen by."""

    rows: Ints
    """Places of the answered candidates."""
    yes: NDArray[np.bool_]
    """People's answers on them."""
    probability: NDArray[np.float64]
    """(P,) of all candidates, the judge's."""


class Chooser:
    """A strategy of the product on a world's candidates."""

    def __init__(self, world: Arrays, strategy: str, seed: int) -> None:
        self._name, _, among = strategy.partition("@")
        self._among, self._seed = int(among or 0), seed
        self._pairs = pack_ids(*world.split(world.baseline))
        self._ranked = proposals(world)
        sides = (
            [
                UnitVectors(name, np.arange(len(both[side])), of_length_1(both[side]))
                for name, both in world.vectors.items()
            ]
            for side in (0, 1)
        )
        self._likeness = SideVectors(*(joined("likeness", side)[0] for side in sides))

    def choose(self, known: Known, budget: int) -> Ints:
        """Places of the candidates to ask next, the most wanted first."""
        is_open = np.ones(len(self._pairs), np.bool_)
        is_open[known.rows] = False
        seed = self._seed * 1000 + len(known.rows) % 1000
        if self._among:
            left = np.flatnonzero(is_open)
            rng = np.random.default_rng([seed, 2])
            is_open[:] = False
            is_open[rng.choice(left, min(len(left), self._among * budget), replace=False)] = True
        said = {flag: np.zeros(len(self._pairs), np.bool_) for flag in ("positive", "negative")}
        said["positive"][known.rows] = known.yes
        said["negative"][known.rows] = ~known.yes
        columns = {"pair": self._pairs, "probability": known.probability, "open": is_open, **said}
        choice = SelectionProblem(frame(POOL, columns), self._ranked, budget, seed, likeness=self._likeness)
        return np.searchsorted(self._pairs, select(self._name, choice)["pair"].to_numpy())


def run(campaign: Campaign, world: Arrays, judge: Judge, out: Path) -> None:
    """All rounds; a state after each."""
    rng = np.random.default_rng([campaign.seed, 1])
    pool = world.baseline
    crowd = Crowd(world.places(pool), campaign.population, rng)
    chooser = Chooser(world, campaign.strategy, campaign.seed)
    rows = rng.choice(len(pool), int(campaign.shares[0] * len(pool)), replace=False)
    labels, who = crowd.ask(rows)
    twice = rng.choice(len(rows), int(TWICE * len(rows)), replace=False)
    first = labels[twice]
    second, _ = crowd.ask(rows[twice], who[twice][:, None])
    for share, following in zip(campaign.shares, (*campaign.shares[1:], None), strict=True):
        judge.learn(Answers(pool[rows], labels < 2), NETWORK_EPOCHS)
        left = np.setdiff1d(np.arange(len(pool)), rows)
        odds = judge.log_odds()
        found = area(odds[left], world.match.ravel()[pool[left]], world.split(pool[left])[0]).value
        probability = 1 / (1 + np.exp(-odds.clip(-30, 30)))
        name = campaign.name(share)
        State(
            name,
            campaign.population,
            world.places(pool),
            probability,
            rows,
            labels,
            crowd.answered,
            first,
            second,
            found,
            who,
        ).save(out / f"{name}.npz")
        print(
            f"{name}: asked {len(rows):,} of {len(pool):,}, AUC where open {found:.4f}, {time.process_time():.0f} s",
            flush=True,
        )
        if following is not None:
            wanted = int(following * len(pool)) - len(rows)
            chosen = chooser.choose(Known(rows, labels < 2, probability), wanted)
            said, by = crowd.ask(chosen)
            rows, labels, who = np.append(rows, chosen), np.append(labels, said), np.append(who, by)


def main() -> None:
    """One of two steps."""
    parser = parser_of(__doc__)
    parser.add_argument("step", choices=("ask", "table"))
    parser.add_argument("paths", type=Path, nargs="*", help="states, for table")
    parser.add_argument("--out", type=Path, default=Path("rounds"), help="folder of worlds and states")
    parser.add_argument("--images", type=int, default=3000)
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--workers", nargs="+", default=["careful"])
    parser.add_argument(
        "--strategy",
        nargs="+",
        default=["uncertainty@2"],
        help=f"{', '.join(STRATEGIES)}; @N: of N times as many",
    )
    parser.add_argument(
        "--shares", type=float, nargs="+", default=SHARES, help="asked by the end of each round"
    )
    parser.add_argument("--tune", action="store_true", help="the minis' weights learn too")
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    if given.step == "table":
        if not given.paths:
            parser.error("table needs the files that ask wrote")
        write_tables([State.load(path) for path in given.paths], given.figure)
        return
    torch.set_num_threads(1)
    for seed in given.seed:
        world, judge = arrays(given.images, seed, given.out), None
        for population in given.workers:
            for strategy in given.strategy:
                if judge is None or given.tune:
                    judge = Judge(world, FINE_TUNED if given.tune else (), seed)
                campaign = Campaign(given.images, seed, population, strategy, given.tune, tuple(given.shares))
                run(campaign, world, judge, given.out)


if __name__ == "__main__":
    main()
