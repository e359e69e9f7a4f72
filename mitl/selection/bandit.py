"""A bandit whose arms are annotators in a direction: who has found matches lately is asked for more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mitl.core.packed import Ints, places
from mitl.proposals.sampling import draw_below
from mitl.records.frames import Flags
from mitl.selection.choice import Floats, SelectionProblem, in_order

DISCOUNT = 0.99
"""Weight of an answer for each later one of its arm: the last hundred or so count."""
_BLOCK = 4096
"""Draws made at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """One annotator in one direction."""

    queue: Ints
    """(q,) places of its open pairs: by rank, then by similarity."""
    matches: float
    """Answers that found one, each later answer discounting it."""
    others: float


def bandit(choice: SelectionProblem) -> pd.DataFrame:
    """``CHOSEN``: each place goes to the arm that draws the best chance of a match, and takes its next open pair.

    An arm draws from Beta(1 + matches, 1 + others) of the answered pairs that it ranks, each weighted with
    ``DISCOUNT`` to the power of the answered pairs behind it: further down its list matches are rarer, and the last
    answers tell what comes next. The score is the chance that was drawn.

    Source: Losada et al., Information Processing & Management 2017 (non-stationary bandits for pooling), with an
    arm for each annotator and direction over all queries, and the place in the list for the time of an answer.
    """
    arms = list(_arms(choice))
    chances = _chances(arms, np.random.default_rng(draw_below(2**63, choice.seed, "bandit")))
    taken = np.zeros(len(choice.pairs), np.bool_)
    queues = [_Queue(arm.queue, taken) for arm in arms]
    order: list[int] = []
    scores: list[float] = []
    while len(order) < choice.budget:
        heads = [queue.head() for queue in queues]
        if all(head is None for head in heads):
            break
        drawn = np.where([head is None for head in heads], -1.0, next(chances))
        best = int(drawn.argmax())
        place = heads[best]
        assert place is not None
        taken[place] = True
        order.append(place)
        scores.append(float(drawn[best]))
    return in_order(choice, np.array(order, np.int64), np.array(scores), "bandit")


class _Queue:
    """An arm's open pairs, less those that any arm took."""

    def __init__(self, queue: Ints, taken: Flags) -> None:
        self._queue, self._taken, self._at = queue, taken, 0

    def head(self) -> int | None:
        """The place of the next one; None where there is none."""
        while self._at < len(self._queue) and self._taken[self._queue[self._at]]:
            self._at += 1
        return int(self._queue[self._at]) if self._at < len(self._queue) else None


def _chances(arms: list[Arm], rng: np.random.Generator) -> Iterator[Floats]:
    """(arms,) a chance from each, again and again."""
    a, b = (np.array([1 + getattr(arm, kind) for arm in arms]) for kind in ("matches", "others"))
    while True:
        yield from rng.beta(a, b, size=(_BLOCK, len(arms)))


def _arms(choice: SelectionProblem) -> Iterator[Arm]:
    """By annotator's name and direction."""
    at = places(choice.pairs, choice.listed["pair"].to_numpy())
    is_open = np.zeros(len(choice.pairs), np.bool_)
    is_open[choice.open_at] = True
    order = np.lexsort((at, -choice.listed["similarity"].to_numpy(), choice.listed["rank"].to_numpy()))
    code = choice.listed["annotator"].cat.codes.to_numpy()[order]
    direction = choice.listed["direction"].to_numpy()[order]
    for arm in sorted(set(zip(code.tolist(), direction.tolist(), strict=True))):
        own = at[order[(code == arm[0]) & (direction == arm[1])]]
        said = own[choice.positive[own] | choice.negative[own]]
        weight = DISCOUNT ** np.arange(len(said))[::-1]
        matches = float(weight[choice.positive[said]].sum())
        yield Arm(own[is_open[own]], matches, float(weight.sum()) - matches)
