"""The strategies by name, and those that are short: the paper's exhaustive one, chance, probabilities, disagreement, a
bandit, hard negatives, doubts.

A new one is a function, in a module of its own where it needs more, and an entry of ``STRATEGIES``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mitl.core.arrays import Floats, Ints, contains, places
from mitl.errors import RoundError, UsageError
from mitl.proposals.sampling import draw_below
from mitl.records import Direction
from mitl.records.frames import Flags
from mitl.records.rounds import DOUBTS
from mitl.selection.choice import SelectionProblem, Strategy, draws, highest, in_order
from mitl.selection.coreset import Spread, coreset, diverse


def hard_negatives(choice: SelectionProblem) -> pd.DataFrame:
    """``CHOSEN``: the pairs that most exceed what people refused of the same query; Jo et al.'s for pairs.

    There people write, and an item without a partner is scored by the texts to which it is nearer than their nearest
    other image. Here every item has its partner, and what is unknown is whether a pair matches. The adaptation, which
    is ours:

    * an *anchor* is a query (either direction) with pairs that people refused; these judged negatives stand for the
      paired images other than the text's own (Z without z_j), its positives for z_j, which is left out;
    * a *candidate* is an open pair of it. It exceeds the threshold where an annotator has it nearer than the nearest
      judged negative: it is either a harder negative than any known, or a match that is missing;
    * a query of which no pair was refused, above all one that was never asked, has no threshold of its own. It takes
      its annotator's mean threshold, and where nobody refused anything yet, that of the last pair of its ranking.

    A pair's score is the sum of its surpluses over annotators and directions, on the scale of ``nearness``.

    Source: Jo et al., eq. 2, 5 and 6.
    """
    scores = np.zeros(len(choice.pairs))
    for name, nearness in choice.nearness.items():
        queries = choice.items[name.rpartition(".")[2] != Direction.I2T]
        surplus = nearness - query_thresholds(queries, nearness, choice.negative)
        scores += np.where(surplus > 0, surplus, 0)  # NaN, where the item did not search, is not above
    return highest(choice, scores, "hard-negatives")


def query_thresholds(queries: Ints, nearness: Floats, refused: Flags) -> Floats:
    """(n,) of each pair's query the nearest refused pair; the mean over queries where it has none.

    Args:
        queries: (n,) each pair's query.
        nearness: (n,) NaN where the query did not search.
        refused: (n,) judged negatives.
    """
    distinct, at = np.unique(queries, return_inverse=True)
    searched = ~np.isnan(nearness)
    own = np.full(len(distinct), -np.inf)
    anchors = refused & searched
    np.maximum.at(own, at[anchors], nearness[anchors])
    has_own = np.isfinite(own)
    if has_own.any():
        return np.asarray(np.where(has_own, own, own[has_own].mean())[at])
    last = np.full(len(distinct), np.inf)
    np.minimum.at(last, at[searched], nearness[searched])
    return np.asarray(last[at])


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
        arm_pairs = at[order[(code == arm[0]) & (direction == arm[1])]]
        said = arm_pairs[choice.positive[arm_pairs] | choice.negative[arm_pairs]]
        weight = DISCOUNT ** np.arange(len(said))[::-1]
        matches = float(weight[choice.positive[said]].sum())
        yield Arm(arm_pairs[is_open[arm_pairs]], matches, float(weight.sum()) - matches)


def disagreement(choice: SelectionProblem) -> pd.DataFrame:
    """``CHOSEN``: the pairs whose standardised similarities vary most from annotator to annotator.

    The score is the variance of ``nearness`` over the annotators, the mean over the directions in which two of
    them searched.

    Raises:
        RoundError: fewer than two annotators rank in one direction.

    Source: Seung et al., COLT 1992 (query by committee); the variance in place of votes is ours.
    """
    return highest(choice, _variance(choice), "disagreement")


def _variance(choice: SelectionProblem) -> Floats:
    by_direction: dict[str, list[Floats]] = {}
    for name, values in choice.nearness.items():
        by_direction.setdefault(name.rpartition(".")[2], []).append(values)
    total, count = np.zeros(len(choice.pairs)), np.zeros(len(choice.pairs))
    for columns in by_direction.values():
        stacked = np.stack(columns)
        defined = ~np.isnan(stacked)
        n = defined.sum(axis=0)
        values = np.where(defined, stacked, 0)
        mean = values.sum(axis=0) / np.maximum(n, 1)
        variance = np.where(defined, (values - mean) ** 2, 0).sum(axis=0) / np.maximum(n, 1)
        total += np.where(n > 1, variance, 0)
        count += n > 1
    if not count.any():
        raise RoundError(
            "disagreement needs two annotators that rank in one direction, and there are not so many; propose with "
            "another one, or choose by another strategy"
        )
    return np.asarray(total / np.maximum(count, 1))


def exhaustive(choice: SelectionProblem) -> pd.DataFrame:
    """``CHOSEN``: each pair among the first ``top_k`` of any annotator in any direction, the best ranks first.

    The score is the best rank, negative. Pairs ranked deeper are never asked, so there may be fewer than the budget.

    Source: ECCV Caption, section 3.2, where all of them are asked.
    """
    return highest(
        choice, -choice.best_rank.astype(np.float64), "exhaustive", choice.best_rank <= choice.top_k
    )


def at_random(choice: SelectionProblem) -> pd.DataFrame:
    """``CHOSEN``: ranked pairs by chance, each as likely as any other."""
    return highest(choice, draws(choice.pairs, choice.seed, "random choice"), "random")


def entropy(probability: Floats) -> Floats:
    """(n,) of yes or no at these probabilities, in bits: 1 at one half, 0 at certainty."""
    p = np.stack([probability, 1 - probability])
    return np.asarray(-(p * np.log2(np.where(p > 0, p, 1))).sum(axis=0), np.float64)


def uncertainty(choice: SelectionProblem) -> pd.DataFrame:
    """``CHOSEN``: the pairs whose fused probability says least, by entropy in bits.

    Raises:
        UnfusedError: nothing is fused.

    Source: Lewis and Gale, SIGIR 1994 (uncertainty sampling).
    """
    return highest(choice, entropy(choice.probability), "uncertainty")


def expected(choice: SelectionProblem) -> pd.DataFrame:
    """``CHOSEN``: the pairs that promise most new positives per cent: probability over price.

    All pairs of a round cost the same, so the order is that of the probability; see ``SelectionProblem.cents`` for what
    the price depends on.

    Raises:
        UnfusedError: nothing is fused.
    """
    return highest(choice, choice.probability / choice.cents, "expected")


FALSE_MATCH = 0.5
"""What a false match counts beside a lost one, where doubts are ordered."""


def doubts(choice: SelectionProblem) -> pd.DataFrame:
    """``CHOSEN``: the pairs whose present call is most likely wrong, a lost match counting twice a false one.

    Args:
        choice: over the pool of `mitl.selection.choice.called_pairs`, whose open pairs have been answered.
    """
    match = choice.probability
    return highest(choice, np.where(choice.positive, FALSE_MATCH * (1 - match), match), DOUBTS)


STRATEGIES: Mapping[str, Strategy] = {
    "exhaustive": exhaustive,
    "random": at_random,
    "uncertainty": uncertainty,
    "disagreement": disagreement,
    "expected": expected,
    "bandit": bandit,
    "coreset": coreset,
    "hard-negatives": hard_negatives,
    DOUBTS: doubts,
}


def strategy_named(name: str) -> Strategy:
    """The strategy of this name; UsageError where there is none."""
    if name not in STRATEGIES:
        raise UsageError(f"no strategy is called {name!r}; choose one of {', '.join(STRATEGIES)}")
    return STRATEGIES[name]


def select(name: str, choice: SelectionProblem, spread: Spread | None = None) -> pd.DataFrame:
    """``CHOSEN`` by the strategy of this name, spread over items where that is asked for.

    Raises:
        UsageError: there is no such strategy.
        RoundError: it lacks what it goes by.
    """
    strategy = strategy_named(name)
    if spread is not None:
        strategy = diverse(strategy, spread)
    chosen = strategy(choice)
    pairs = chosen["pair"].to_numpy()
    assert len(chosen) <= choice.budget and len(np.unique(pairs)) == len(pairs), (
        "within the budget, each once"
    )
    assert contains(choice.pairs[choice.open_at], pairs).all(), "open pairs alone"
    return chosen
