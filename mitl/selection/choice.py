"""What a strategy for pairs is given, how scores become an order, and which calls are in doubt.

A call is in doubt that answers or a machine gave and that is not yet beyond question.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.core.arrays import Floats, Ints, contains, mixed, places, unpack_ids
from mitl.errors import RoundError, UnfusedError
from mitl.fusion.evidence import ANSWERED, FusionEvidence, UnitVectors, ranking_features
from mitl.proposals.sampling import draw_key
from mitl.records.frames import LABELS, NONE, PROPOSALS, Flags, frame
from mitl.records.rounds import CHOSEN, POOL

TOP_K = 5
"""ECCV Caption's: every annotator's first five are candidates."""


@dataclass(frozen=True, slots=True, eq=False)
class SideVectors:
    """Unit vectors whose cosine says how alike two items of a side are; None where nothing is known of a side."""

    images: UnitVectors | None = None
    captions: UnitVectors | None = None

    @property
    def sides(self) -> tuple[UnitVectors | None, UnitVectors | None]:
        """Of the left and of the right side of pairs."""
        return self.images, self.captions


@dataclass(frozen=True, eq=False)
class SelectionProblem:
    """What may be asked, what is known of it, and how much of it can be asked.

    Rows come in any order: strategies read the arrays below, which have an order of their own.
    """

    pool: pd.DataFrame
    """``POOL``."""
    ranked: pd.DataFrame
    """``PROPOSALS``: who ranked which pair of the pool where."""
    budget: int
    """Pairs to ask, at most."""
    seed: int
    cents: float = 1.0
    """What asking a pair costs. A HIT has one price whatever stands on it, so it is the same for all of a round; it
    rises with the workers wanted for each pair and with the controls on a page."""
    top_k: int = TOP_K
    """Ranks that the exhaustive strategy asks."""
    likeness: SideVectors = field(default_factory=SideVectors)

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise RoundError(f"the budget is {self.budget:,} pairs, and a round asks 1 at least")

    @cached_property
    def _rows(self) -> pd.DataFrame:
        return self.pool.sort_values("pair", kind="stable", ignore_index=True)

    @cached_property
    def pairs(self) -> Ints:
        """(n,) the pool's pairs, ascending."""
        return self._rows["pair"].to_numpy()

    @cached_property
    def items(self) -> tuple[Ints, Ints]:
        """(n,) each pair's image, and (n,) its caption."""
        return unpack_ids(self.pairs)

    @cached_property
    def open_at(self) -> Ints:
        """(m,) places of the pairs that may be asked."""
        return np.flatnonzero(self._rows["open"].to_numpy())

    @cached_property
    def positive(self) -> Flags:
        """(n,) whether people call it a match."""
        return np.asarray(self._rows["positive"].to_numpy(), np.bool_)

    @cached_property
    def negative(self) -> Flags:
        """(n,) whether they refuse it."""
        return np.asarray(self._rows["negative"].to_numpy(), np.bool_)

    @cached_property
    def probability(self) -> Floats:
        """(n,) of a match; a pair that was not fused has the mean of those that were.

        Raises:
            UnfusedError: nothing is fused.
        """
        stated = self._rows["probability"].to_numpy(np.float64)
        fused = ~np.isnan(stated)
        if not fused.any():
            raise UnfusedError(
                "no pair has a probability yet, and this strategy goes by them; run `mitl fuse` once there are "
                "answers, or choose by exhaustive, random or disagreement"
            )
        return np.where(fused, stated, stated[fused].mean())

    @cached_property
    def listed(self) -> pd.DataFrame:
        """``PROPOSALS`` of the pool's pairs, by pair, annotator's name, direction and rank."""
        names = sorted(map(str, self.ranked["annotator"].unique()))
        rows = self.ranked[contains(self.pairs, self.ranked["pair"].to_numpy())]
        rows = rows.assign(annotator=pd.Categorical(rows["annotator"].astype("str"), names))
        rows = rows.sort_values(["pair", "annotator", "direction", "rank"], ignore_index=True)
        return frame(PROPOSALS, {name: rows[name] for name in PROPOSALS})

    @cached_property
    def best_rank(self) -> Ints:
        """(n,) the best rank that anybody gave to each pair; one beyond the deepest where nobody ranked it."""
        ranks = self.listed["rank"].to_numpy(np.int64)
        best = np.full(len(self.pairs), ranks.max(initial=0) + 1)
        np.minimum.at(best, places(self.pairs, self.listed["pair"].to_numpy()), ranks)
        return best

    @cached_property
    def nearness(self) -> dict[str, Floats]:
        """``annotator.direction`` → (n,) how near each pair is, at most 0: its similarity less the query's best, in
        standard deviations of this annotator's similarities within queries.

        A pair that the query's ranking does not list counts as its last; NaN stands where its item did not search.
        """
        nobody = np.empty(0, np.int64)
        said = frame(ANSWERED, dict.fromkeys(ANSWERED, ()))
        evidence = FusionEvidence(ranked=self.listed, captions=nobody, image_of=nobody, answers=said)
        if not len(evidence.pairs):
            return {}
        names, columns = ranking_features(evidence)
        at = places(self.pairs, evidence.pairs)
        nearness = {}
        for name, column in zip(names, columns.T, strict=True):
            if name.endswith(".gap"):
                values = np.full(len(self.pairs), np.nan)
                values[at] = -column
                nearness[name.removesuffix(".gap")] = values
        return nearness


Strategy: TypeAlias = Callable[[SelectionProblem], pd.DataFrame]
"""Says what is asked, the most wanted first (``CHOSEN``): open pairs, each once, the budget at most.

Equal choices give equal answers, whatever the order of their rows, and a smaller budget gives the head of what a larger
one gives: `mitl.selection.coreset` reads on where it must.
"""


def draws(things: Ints, seed: int, stream: str) -> Floats:
    """(n,) a number from 0 to below 1 for each, uniform and by the thing alone: what else there is changes nothing."""
    key = np.frombuffer(draw_key(seed, stream)[:8], "<u8")
    bits = mixed(things.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + key)
    return np.asarray((bits >> np.uint64(11)) * 2.0**-53, np.float64)


def highest(
    choice: SelectionProblem, scores: Floats, strategy: str, among: Flags | None = None
) -> pd.DataFrame:
    """``CHOSEN``: the open pairs of the highest scores (n,); among equal ones the seed decides.

    Args:
        among: (n,) the pairs that come into question; all where it is None.
    """
    at = choice.open_at if among is None else choice.open_at[among[choice.open_at]]
    tie = draws(choice.pairs[at], choice.seed, "ties of a choice")
    order = at[np.lexsort((tie, -scores[at]))[: choice.budget]]
    return in_order(choice, order, scores[order], strategy)


def in_order(choice: SelectionProblem, order: Ints, scores: Floats, strategy: str) -> pd.DataFrame:
    """``CHOSEN``: the pairs at these places of the pool, in this order.

    Args:
        scores: of each of them.
    """
    columns = {
        "pair": choice.pairs[order],
        "place": np.arange(1, len(order) + 1),
        "score": scores,
        "strategy": np.full(len(order), strategy, dtype=object),
    }
    return frame(CHOSEN, columns)


MOST_ANSWERS = 3
"""A pair with so many is not asked again, nor is one on which two agree."""
_CERTAIN = 2e-3
"""Nearer to 0 and 1 no fused probability is believed."""
_STRENGTH = 20.0
"""Answers to each truth that the crowd's habit is worth in a worker's own."""
_PASSES = 6
_POSITIVE = np.array([label.is_positive for label in LABELS] + [False])  # the last is for NONE


@dataclass(frozen=True, slots=True, eq=False)
class GivenAnswers:
    """Usable answers, one in each row."""

    rows: Ints
    """(a,) the place of the pair that each is about."""
    labels: NDArray[np.int8]
    """(a,) place in Label."""
    workers: Ints
    """(a,) from 0."""

    def votes(self, n: int) -> tuple[Ints, Ints]:
        """(n,) how many call each pair a match, and how many do not."""
        yes = _POSITIVE[self.labels]
        return np.bincount(self.rows[yes], minlength=n), np.bincount(self.rows[~yes], minlength=n)


def called_pairs(
    pairs: Ints, probability: Floats, answers: GivenAnswers, machine: NDArray[np.int8]
) -> pd.DataFrame:
    """``POOL`` of the pairs that have an answer or a machine label, with what is to be held of them.

    Positive is what people's majority calls a match, a machine where nobody answered; as in a release, workers who are
    evenly divided call it none. The probability is that of a match after the answers; open is what may be asked again:
    a pair with fewer than three answers on which no two workers agree alone.

    Args:
        pairs: (n,) packed, ascending and distinct.
        probability: (n,) fused without the pair's own answers.
        answers: on these pairs.
        machine: (n,) place in Label of a machine's label; NONE where it gave none.
    """
    yes, no = answers.votes(len(pairs))
    match = match_probability(probability, answers)
    called = np.where(yes + no > 0, yes > no, _POSITIVE[machine])
    judged = (yes + no > 0) | (machine != NONE)
    columns = {
        "pair": pairs,
        "probability": match,
        "open": (yes + no < MOST_ANSWERS) & (np.abs(yes - no) < 2),
        "positive": called,
        "negative": ~called,
    }
    return frame(POOL, {name: values[judged] for name, values in columns.items()})


def match_probability(probability: Floats, answers: GivenAnswers) -> Floats:
    """(n,) of a match, by the fused probability (n,) and the answers together.

    What an answer weighs is learnt from all of them by expectation maximisation: each worker has chances of the four
    answers on matches and on others, drawn towards the crowd's. The fused probability, which has not read the pair's
    own answers, is its prior.

    Source: Dawid and Skene, 1979, with a prior for each pair in place of one for all.
    """
    n, rows, labels = len(probability), answers.rows, answers.labels
    _, who = np.unique(answers.workers, return_inverse=True)
    kept = probability.clip(_CERTAIN, 1 - _CERTAIN)
    prior = np.log(kept / (1 - kept))
    weight = np.zeros(len(rows))
    for _ in range(_PASSES):
        match = 1 / (1 + np.exp(-prior - np.bincount(rows, weight, n)))
        logs = []
        for share in (match[rows], 1 - match[rows]):
            crowd = 1 + np.bincount(labels, share, 4)
            by_worker = np.bincount(4 * who + labels, share, 4 * (who.max(initial=0) + 1)).reshape(-1, 4)
            by_worker = by_worker + _STRENGTH * crowd / crowd.sum()
            logs.append(np.log(by_worker / by_worker.sum(axis=1, keepdims=True)))
        weight = (logs[0] - logs[1])[who, labels]
    return np.asarray(1 / (1 + np.exp(-prior - np.bincount(rows, weight, n))), np.float64)
