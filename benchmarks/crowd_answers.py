"""Scripted workers on pages of 18 pairs and 2 controls, without a server: what a round of asking brings and costs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mitl.crowd.populations import CHARACTERS, parse_population
from mitl.records import Label

Ints = NDArray[np.int64]
Places = NDArray[np.int8]

CANDIDATES_PER_PAGE, CONTROLS = 18, 2
WORKERS = 60
_MOST_PAGES = 200


@dataclass(eq=False)
class Crowd:
    """Workers who err around a known truth; a page whose controls fail is asked again of somebody else."""

    truth: Places
    """(n,) place in Label of each pair's true label."""
    population: str
    rng: np.random.Generator
    answered: int = 0
    """Answers given so far, controls and those of failed pages among them."""
    workers: NDArray[np.float64] = field(init=False)
    """(workers, true label, answer) chances."""

    def __post_init__(self) -> None:
        drawn = parse_population(self.population).characters(WORKERS, seed=0)
        self.workers = np.array([CHARACTERS[name].confusion for name in drawn])

    def ask(self, pairs: Ints, before: Ints | None = None) -> tuple[Places, Ints]:
        """(pairs,) one usable answer each and who gave it; by none of ``before`` (pairs, others)."""
        order = self.rng.permutation(len(pairs))
        label, who = np.full(len(pairs), -1, np.int8), np.full(len(pairs), -1, np.int64)
        pages = [
            order[start : start + CANDIDATES_PER_PAGE] for start in range(0, len(pairs), CANDIDATES_PER_PAGE)
        ]
        for page in pages:
            for _ in range(_MOST_PAGES):
                worker = int(self.rng.integers(WORKERS))
                if before is not None and (before[page] == worker).any():
                    continue
                self.answered += len(page) + CONTROLS
                if self._passes(worker):
                    label[page] = self._answers(worker, self.truth[pairs[page]])
                    who[page] = worker
                    break
            else:
                raise RuntimeError("no worker passes the controls")
        return label, who

    def _passes(self, worker: int) -> bool:
        controls = np.array([Label.YES.code - 1, Label.NO.code - 1])
        positive = self._answers(worker, controls) <= 1
        return bool(positive[0] and not positive[1])

    def _answers(self, worker: int, truth: NDArray[np.integer]) -> Places:
        chances = self.workers[worker][truth].cumsum(axis=1)
        return (chances < self.rng.random(len(truth))[:, None]).sum(axis=1).clip(max=3).astype(np.int8)
