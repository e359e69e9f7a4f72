"""Tests of what raters do: their controls, and against chance answers that repeat and scores that drift."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.core.arrays import Flags, Floats, Ints
from mitl.records.similarity import SIMILARITY_ROLES, SimilarityRole

Scores = NDArray[np.float64] | float
"""One score, or several."""

LEAST_IDENTICAL = 4.0
MOST_RANDOM = 2.0
MOST_APART = 1.0
"""Between the two scores of a repeated pair."""
FEWEST_CAREFUL = 3
"""Raters by whom a random pair can be found alike."""

ASKED, IDENTICAL, RANDOM, REPEATED = (SIMILARITY_ROLES.index(role) for role in SimilarityRole)


def passes(role: SimilarityRole, scores: Scores, before: Scores = math.nan) -> Flags:
    """Whether a score, or (n,) each of several, is what a control of this role should get.

    Where people are really asked, every score is.

    Args:
        before: the score of a repeated pair's first showing.
    """
    if role is SimilarityRole.IDENTICAL:
        return np.asarray(scores >= LEAST_IDENTICAL)
    if role is SimilarityRole.RANDOM:
        return np.asarray(scores <= MOST_RANDOM)
    return np.asarray(role is SimilarityRole.ASKED) | (between(scores, before) <= MOST_APART)


def between(scores: Scores, before: Scores) -> NDArray[np.float64]:
    """How far two scores of one pair are apart: in whole steps, since 3.2 - 2.2 is more than 1 in binary."""
    return np.asarray(np.abs(np.rint(100 * scores) - np.rint(100 * before)) / 100)


def apart(answered: pd.DataFrame) -> pd.DataFrame:
    """``assignment`` and ``worker`` of each repeated pair with a score, and ``apart``: how far from its first showing.

    Args:
        answered: rows of ``RATINGS`` that have a score, by submission and place.
    """
    first = answered[answered["role"] == ASKED].drop_duplicates(["assignment", "pair"])
    again = answered[answered["role"] == REPEATED].merge(
        first, on=["assignment", "pair"], suffixes=("", "_first")
    )
    distance = between(again["score"].to_numpy(), again["score_first"].to_numpy())
    return again[["assignment", "worker"]].assign(apart=distance)


def untrusted(ratings: pd.DataFrame) -> Flags:
    """(rows,) whether each row of ``RATINGS`` is on a random control that is none: careful raters find it alike.

    Random pairs are drawn, and nobody has looked at them; a small or dense data set draws some that are alike. Careful
    on a page is who passed its identical and its repeated control and rated the identical pair a level above the random
    one, which who answers everything alike does not. More than half of these have to have given a random pair more than
    ``MOST_RANDOM``, and three at least.
    """
    answered = ratings[ratings["score"].notna()]
    twice = apart(answered)
    unsteady = twice.loc[twice["apart"] > MOST_APART, "assignment"]
    # Of several identical pairs the one that was rated lowest.
    identical = answered[answered["role"] == IDENTICAL].groupby("assignment")["score"].min()
    random = answered[answered["role"] == RANDOM]
    beside = random["assignment"].map(identical)  # NaN where the page has none
    is_careful = (beside >= LEAST_IDENTICAL) & (
        (100 * (beside - random["score"])).round() >= 100 * MOST_APART
    )
    careful = random[is_careful & ~random["assignment"].isin(unsteady)]
    by_pair = careful.assign(alike=careful["score"] > MOST_RANDOM).groupby("pair")
    n_raters = by_pair["worker"].nunique()
    alike = n_raters.index[(n_raters >= FEWEST_CAREFUL) & (by_pair["alike"].mean() > 1 / 2)]
    flags: NDArray[np.bool_] = (ratings["role"].to_numpy() == RANDOM) & ratings["pair"].isin(alike).to_numpy()
    return flags


CHANCE = 0.001
"""Below which something is no accident: in ten crowds of a hundred honest raters, a rule accuses one of them."""
LAGS = (1, 2, 3, 4, 5)
"""Distances on a page at which answers may repeat; 1 is a straight line."""
LEAST_ANSWERS = 10
"""That could repeat, from which on it tells something: a usual page."""
LEAST_ROW = 4
"""Answers in a row, each of which repeats an earlier one, from which on a pattern is looked at: five alike, half a
usual page."""
LEAST_SCORES = 20
"""From which on a drift tells something: two pages."""
LEAST_DRIFT = 0.5
"""Half a level from the first to the last answer; positives begin at a whole or half level (CxC, figure 4)."""
CONFIDENCE = 0.999
"""Of the interval of a drift."""


def chance_of_at_least(successes: int, trials: int, p: float) -> float:
    """The chance of so many successes or more in independent trials: the tail of the binomial distribution."""
    from scipy.special import betainc

    if successes <= 0 or p >= 1:
        return 1.0
    return float(betainc(successes, trials - successes + 1, p)) if successes <= trials else 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """Answers that repeat earlier ones more often than the same answers would in random order."""

    lag: int
    """How many places before; 0 for the same place of the rater's page before."""
    matches: int
    n: int
    """Answers that were compared."""
    in_row: int
    """Matches in a row, the most of them."""
    expected: float
    """Matches in random order."""
    p: float
    """Chance of so many matches, corrected for having looked for several patterns."""
    value: float
    """The score with which the longest row ends."""

    @property
    def is_marked(self) -> bool:
        """Four matches in a row or more, and so many of all by chance in fewer than 1 of 1,000 cases."""
        return self.n >= LEAST_ANSWERS and self.in_row >= LEAST_ROW and self.p < CHANCE

    @property
    def longest(self) -> int:
        """Answers of the longest row: all that are alike, or all that repeat one some places before."""
        return self.in_row + (self.lag == 1 and self.in_row > 0)

    @property
    def text(self) -> str:
        """In words."""
        count = f"{self.matches:,} of {self.n:,} answers"
        usual = f"where their order by chance gives {self.expected:.0f}"
        if self.lag == 0:
            return f"{count} are those at the same place of the page before, {usual}; {self.longest} in a row"
        if self.lag == 1:
            return f"{count} repeat the one before, {usual}; the longest row is {self.longest} × {self.value:.2f}"
        return f"{count} repeat the one {self.lag} places before, {usual}; {self.longest} answers in a row"


def rows(score: Floats, pair: Ints, assignment: Ints, place: Ints) -> list[Row]:
    """What repeats at each distance on a page, and from page to page; nothing where no two answers are comparable.

    In random order two of a rater's answers are equal with chance q = Σ n_v (n_v - 1) / (n (n - 1)) over the values v,
    so matches are compared with a binomial of that chance, times the number of patterns looked for. A rater who gives
    one number has q = 1, and never a striking row; that rule is another. Two answers to one pair are not compared.

    Args:
        score: (answers,), by assignment and place; equal means equal to the hundredth.
    """
    cents = np.rint(100 * score).astype(np.int64)
    n = len(cents)
    if n < 2:
        return []
    counts = np.unique(cents, return_counts=True)[1]
    equal = float((counts * (counts - 1)).sum() / (n * (n - 1)))
    looks = len(LAGS) + 1
    compared = []
    page = np.unique(assignment, return_inverse=True)[1]
    for lag in LAGS:
        here, there = np.arange(lag, n), np.arange(n - lag)
        at = (assignment[here] == assignment[there]) & (pair[here] != pair[there])
        compared.append(_row(lag, here[at], there[at], (cents, page), equal, looks))
    where = {(int(p), int(at)): index for index, (p, at) in enumerate(zip(page, place, strict=True))}
    both = [(index, where[p - 1, at]) for (p, at), index in where.items() if (p - 1, at) in where]
    here, there = np.array(both, np.int64).reshape(-1, 2).T
    at = pair[here] != pair[there]
    compared.append(_row(0, here[at], there[at], (cents, page), equal, looks))
    return [row for row in compared if row is not None]


def _row(
    lag: int, here: Ints, there: Ints, answers: tuple[Ints, Ints], equal: float, looks: int
) -> Row | None:
    cents, page = answers
    if not len(here):
        return None
    same = cents[here] == cents[there]
    longest, last = _longest(same, page[here])
    return Row(
        lag=lag,
        matches=int(same.sum()),
        n=len(here),
        in_row=longest,
        expected=equal * len(here),
        p=min(1.0, looks * chance_of_at_least(int(same.sum()), len(here), equal)),
        value=float(cents[here[last]] / 100),
    )


def _longest(same: Flags, page: Ints) -> tuple[int, int]:
    """Matches of the longest row on one page, and where it ends."""
    best, last, run = 0, 0, 0
    for at, (matches, number) in enumerate(zip(same.tolist(), page.tolist(), strict=True)):
        run = run + 1 if matches and (run == 0 or number == page[at - 1]) else int(matches)
        if run > best:
            best, last = run, at
    return best, last


@dataclass(frozen=True, slots=True)
class Drift:
    """By how much a rater's scores rise beside the others', from the first to the last answer; a fall is negative."""

    change: float
    low: float
    high: float
    """99.9 % interval of the change."""
    n: int

    @property
    def is_marked(self) -> bool:
        """Half a level or more over 20 scores or more, with an interval that leaves zero out."""
        is_there = self.low > 0 or self.high < 0
        return is_there and self.n >= LEAST_SCORES and abs(self.change) >= LEAST_DRIFT

    @property
    def text(self) -> str:
        """In words."""
        way = "rise" if self.change > 0 else "fall"
        low, high = sorted((abs(self.low), abs(self.high)))
        return (
            f"beside what others give, scores {way} by {abs(self.change):.2f} from the first to the last "
            f"of {self.n:,} (99.9 % interval {low:.2f} to {high:.2f})"
        )


def drift(scores: Floats, others: Floats) -> Drift | None:
    """The trend of a rater's scores in their order, at the same median of the others; None for fewer than four.

    Least squares of the score on the others' median of the pair and on the order, with the interval of the second slope
    by Student's t (Draper and Smith, Applied Regression Analysis, chapter 5), over the whole way from first to last.
    The others' median stands there with a slope of its own, so that a rater who uses less of the scale, or none of it,
    does not drift where high pairs happen to come late.

    Args:
        scores: (answers,), in the order of answering.
        others: (answers,), the others' median of the same pair.
    """
    from scipy.special import stdtrit

    n = len(scores)
    if n < 4:
        return None
    order = np.arange(n) - (n - 1) / 2
    level = others - others.mean()
    spread = float(level @ level)
    if spread > 0:  # what of the order the level does not tell already
        order = order - level * float(level @ order) / spread
    square = float(order @ order)
    if square < 1e-9 * n:
        return None
    left = scores - scores.mean()
    if spread > 0:
        left = left - level * float(level @ left) / spread
    slope = float(order @ left) / square
    left = left - slope * order
    free = n - 2 - (spread > 0)
    error = float(np.sqrt(left @ left / free / square))
    wide = float(stdtrit(free, 1 - (1 - CONFIDENCE) / 2)) * error
    way = n - 1
    return Drift(slope * way, (slope - wide) * way, (slope + wide) * way, n)
