"""Bradley-Terry strengths of things that people compared in pairs, in percent, with bootstrap intervals.

The model: i is preferred to j with probability p_i / (p_i + p_j). Its likelihood is maximised by the MM algorithm.
A tie counts as half a win for each side, or is modelled after Davidson: i, a tie and j are answered in proportion to
p_i, ν √(p_i p_j) and p_j, with one ν for all pairs.

Sources: Bradley and Terry, Biometrika 1952; Davidson, JASA 1970; Hunter, MM algorithms for generalized Bradley-Terry
models, Annals of Statistics 2004; for what the maximum needs, Ford, American Mathematical Monthly 1957.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import Floats
from mitl.core.statistics import percentile_interval
from mitl.errors import MetricError
from mitl.records import Preference, Vote
from mitl.records.results import listed

TOLERANCE = 1e-11
"""Relative change of every strength in a round, below which the algorithm ends."""
MAX_ROUNDS = 200_000
MAX_BOOTSTRAP_ROUNDS = 5_000
"""Of resamples, whose strengths need a few digits only."""
WEAK_PRIOR = 0.1
"""Wins each way between any two, for resamples that have no maximum without; they end far out, as they should."""
_NAMED = 4


class TieRule(StrEnum):
    """What a tie means."""

    HALF = "half"
    """Half a win for each side."""
    DAVIDSON = "davidson"
    """An answer of its own, likelier between things of like strength."""


@dataclass(frozen=True, slots=True)
class Strengths:
    """The maximum of the likelihood."""

    scores: Floats
    """(N,) percent; they sum to 100."""
    tie: float
    """Davidson's ν: how likely ties are; 0 where ties count as half wins."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Percentile intervals of the strengths."""

    low: Floats
    """(N,) percent."""
    high: Floats
    without_maximum: int
    """Resamples that needed ``WEAK_PRIOR`` because somebody won nothing, or everything, in them."""


def strengths(
    wins: Floats,
    ties: Floats | None = None,
    *,
    rule: TieRule = TieRule.HALF,
    prior: float = 0.0,
    names: Sequence[str] | None = None,
) -> Strengths:
    """The strengths that make these preferences likeliest.

    Args:
        wins: (N, N); row i, column j: how often i was preferred to j. The diagonal is ignored.
        ties: (N, N), symmetric: how often the two were found equal.
        prior: wins added each way between any two, from 0; above it a maximum always exists.
        names: what the N are called, for messages.

    Raises:
        MetricError: the counts are no such table, or the likelihood has no maximum: somebody was never compared with
            the others, a group always won or always lost against the rest, or there is nothing but ties to model.
    """
    won, tied = _checked(wins, ties, prior, names)
    labels = list(names) if names is not None else [str(place + 1) for place in range(len(won))]
    _require_maximum(won + tied + prior * _off_diagonal(len(won)), labels)
    if rule is TieRule.DAVIDSON and not prior and _ties_run_away(won, tied):
        what = "no wins speak against ever stronger ties" if won.any() else "all answers are ties"
        raise MetricError(
            f"{what}, so Davidson's strength of ties has no maximum; count a tie as half a win for each, or add wins "
            "each way with a prior of, say, 0.5"
        )
    strength, tie, converged = _maximise(won[None], tied[None], rule, prior, MAX_ROUNDS)
    if not converged:
        raise MetricError(
            f"the strengths still moved after {MAX_ROUNDS:,} rounds, as with very uneven counts; add a prior of, "
            "say, 0.5"
        )
    return Strengths(100 * strength[0], float(tie[0]))


def bootstrap(
    wins: Floats,
    ties: Floats,
    *,
    samples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    rule: TieRule = TieRule.HALF,
    prior: float = 0.0,
) -> Bounds:
    """Intervals of the strengths over resamples of workers with all that they said, or of single answers.

    Args:
        wins, ties: counts as in ``strengths``: (U, N, N), of each worker, or (N, N), of single answers.
        confidence: share of the resamples within the interval, above 0 and below 1.

    Raises:
        MetricError: there is no answer, or ``samples`` or ``confidence`` are out of range.
    """
    n = wins.shape[-1]
    if not (wins.any() or ties.any()):
        raise MetricError("there are no answers to draw resamples of")
    if samples < 1 or not 0 < confidence < 1:
        raise MetricError(
            f"{samples} resamples at a confidence of {confidence}; there must be 1 or more, and it lies between 0 and 1"
        )
    resampled = _resampled_answers if wins.ndim == 2 else _resampled_workers
    won, tied = (
        counts * _off_diagonal(n) for counts in resampled(wins, ties, samples, np.random.default_rng(seed))
    )
    beats = won + tied + prior * _off_diagonal(n)
    lacking = ~_reach(beats).all(axis=(-1, -2))  # a chain of wins from everybody to everybody
    if rule is TieRule.DAVIDSON and not prior:
        lacking |= _ties_run_away(won, tied)
    extra = np.where(lacking, max(prior, WEAK_PRIOR), prior)
    strength, _, _ = _maximise(won, tied, rule, extra, MAX_BOOTSTRAP_ROUNDS, tolerance=1e-6)
    units = len(wins) if wins.ndim == 3 else round(wins.sum() + ties.sum() / 2)
    low, high = np.transpose([percentile_interval(draws, confidence, units) for draws in 100 * strength.T])
    return Bounds(low, high, int(lacking.sum()))


def _resampled_workers(
    wins: Floats, ties: Floats, samples: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """(B, N, N) each."""
    workers, n = wins.shape[:2]
    drawn = rng.multinomial(workers, np.full(workers, 1 / workers), samples)  # (B, U)
    won, tied = (drawn @ counts.reshape(workers, -1) for counts in (wins, ties))
    return won.reshape(samples, n, n), tied.reshape(samples, n, n)


def _resampled_answers(
    wins: Floats, ties: Floats, samples: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """The same: how often each answer is drawn, so that millions of answers take no more room than a few."""
    kinds = np.concatenate([wins.ravel(), np.triu(ties).ravel()])
    drawn = rng.multinomial(round(kinds.sum()), kinds / kinds.sum(), samples).astype(np.float64)
    won, tied = drawn.reshape(samples, 2, *wins.shape).swapaxes(0, 1)
    return won, tied + tied.swapaxes(1, 2)


def _maximise(
    wins: Floats,
    ties: Floats,
    rule: TieRule,
    prior: float | Floats,
    max_rounds: int,
    *,
    tolerance: float = TOLERANCE,
) -> tuple[Floats, Floats, bool]:
    """Strengths (B, N) that sum to 1, ν (B,) and whether they stand still, for B tables, each with a maximum."""
    count, n = wins.shape[:2]
    won = wins + np.multiply.outer(np.broadcast_to(prior, count), _off_diagonal(n))
    n_ties = ties.sum((1, 2)) / 2
    davidson = rule is TieRule.DAVIDSON
    gains = (won + ties / 2).sum(2)  # (B, N)
    met = won + won.transpose(0, 2, 1) + ties  # (B, N, N)
    p = np.full((count, n), 1 / n)
    tie = np.where(n_ties > 0, 1.0, 0.0) if davidson else np.zeros(count)
    for _ in range(max_rounds):
        before, tie_before = p, tie
        both = met / _total(p, tie)
        # √(p_i p_j) is bounded by the mean of its two linear parts at the strengths of before.
        leaning = 1 + tie[:, None, None] / 2 * np.sqrt(p[:, None, :] / p[:, :, None])
        p = gains / (both * leaning).sum(2)
        p /= p.sum(1, keepdims=True)
        if davidson:
            root = np.sqrt(p[:, :, None] * p[:, None, :])
            expected = (met * root / _total(p, tie)).sum((1, 2)) / 2
            tie = np.divide(n_ties, expected, out=np.zeros(count), where=n_ties > 0)
        moved = np.abs(p - before).max(1) > tolerance * before.min(1)
        if not moved.any() and np.allclose(tie, tie_before, rtol=tolerance, atol=0):
            return p, tie, True
    return p, tie, False


def _total(p: Floats, tie: Floats) -> Floats:
    """What the chances of i, j and a tie are shares of, (B, N, N)."""
    root = np.sqrt(p[:, :, None] * p[:, None, :])
    return p[:, :, None] + p[:, None, :] + tie[:, None, None] * root


def _checked(
    wins: Floats, ties: Floats | None, prior: float, names: Sequence[str] | None
) -> tuple[Floats, Floats]:
    won = np.asarray(wins, np.float64)
    tied = np.zeros_like(won) if ties is None else np.asarray(ties, np.float64)
    if won.ndim != 2 or won.shape[0] != won.shape[1] or tied.shape != won.shape:
        raise MetricError(
            f"wins are {won.shape} and ties {tied.shape}, but both must be square, a row for each"
        )
    if len(won) < 2:
        raise MetricError(f"there is {len(won)} to compare; Bradley-Terry needs at least 2")
    if names is not None and len(names) != len(won):
        raise MetricError(f"{len(names)} names were given for {len(won)} rows of counts")
    if not (np.isfinite(won).all() and np.isfinite(tied).all()) or won.min() < 0 or tied.min() < 0:
        raise MetricError("a count is below 0 or not finite; counts of preferences are 0 or more")
    if not np.array_equal(tied, tied.T):
        raise MetricError("ties must be the same both ways: row i, column j equals row j, column i")
    if not (np.isfinite(prior) and prior >= 0):
        raise MetricError(f"the prior is {prior}, but must be 0 or more wins")
    off = _off_diagonal(len(won))
    return won * off, tied * off


def _off_diagonal(n: int) -> Floats:
    return 1.0 - np.eye(n)


def _reach(wins: Floats) -> NDArray[np.bool_]:
    """(…, N, N): whether i reaches j by a chain of wins; everybody reaches themselves."""
    n = wins.shape[-1]
    reach = (wins > 0) | np.eye(n, dtype=bool)
    for _ in range(max(n - 1, 1).bit_length()):
        reach = np.matmul(reach.astype(np.float32), reach.astype(np.float32)) > 0
    return reach


def _ties_run_away(wins: Floats, ties: Floats) -> NDArray[np.bool_]:
    """(...): whether Davidson's likelihood (N, N) rises for ever with ν, where chains of wins and ties reach everybody.

    With log p_i = 2 t a_i and log ν = t it does where a_i - a_j is 1 or more if i ever won and within -1 and 1 if they
    tied. Such a exist unless a cycle holds more wins than ties.
    """
    steps = np.where(wins > 0, -1.0, np.where(ties > 0, 1.0, np.inf))
    for place in range(steps.shape[-1]):
        steps = np.minimum(steps, steps[..., :, place, None] + steps[..., place, None, :])
    on_cycles = np.diagonal(steps, axis1=-2, axis2=-1)
    return np.asarray((ties > 0).any((-1, -2)) & (on_cycles >= 0).all(-1))


def _require_maximum(wins: Floats, names: Sequence[str]) -> None:
    reach = _reach(wins)
    if reach.all():
        return
    # The group that fewest reach from outside or that reaches fewest: it never won against the rest.
    row = int(reach.sum(1).argmin())
    losers = [place for place in range(len(names)) if reach[row, place]]
    rest = [place for place in range(len(names)) if not reach[row, place]]
    met = wins[np.ix_(losers, rest)].any() or wins[np.ix_(rest, losers)].any()
    what, remedy = (
        ("was never preferred to", "collect more answers, or add wins each way with a prior of, say, 0.5")
        if met
        else (
            "was never compared with",
            "compare some of them, or score the studies apart, as with --batch NAME",
        )
    )
    raise MetricError(
        f"{_listed([names[place] for place in losers])} {what} {_listed([names[place] for place in rest])}, so "
        f"Bradley-Terry strengths have no maximum; {remedy}"
    )


def _listed(names: Sequence[str]) -> str:
    shown = listed([repr(name) for name in names], _NAMED)
    return f"any of {shown}" if len(names) > 1 else shown


@dataclass(frozen=True, slots=True, eq=False)
class Ballots:
    """Preferences as counts: (U, N, N), of each worker, or (N, N), of single answers."""

    systems: tuple[str, ...]
    wins: Floats
    """Row i, column j: how often i was preferred to j."""
    ties: Floats
    """Symmetric."""

    @property
    def total_wins(self) -> Floats:
        """(N, N) over all workers."""
        return self._total(self.wins)

    @property
    def total_ties(self) -> Floats:
        """(N, N) over all workers."""
        return self._total(self.ties)

    def _total(self, counts: Floats) -> Floats:
        n = len(self.systems)
        return np.asarray(counts.reshape(-1, n, n).sum(0), np.float64)


def first_votes(votes: Sequence[Vote]) -> list[Vote]:
    """Each worker's first vote on a comparison; who is asked the very same again is not counted twice."""
    kept: dict[Hashable, Vote] = {}
    for vote in votes:
        item = vote.comparison
        sides = frozenset({(item.left, item.left_items), (item.right, item.right_items)})
        kept.setdefault((vote.worker, item.direction, item.query_id, sides), vote)
    return list(kept.values())


def count_votes(votes: Sequence[Vote], *, by_worker: bool) -> Ballots:
    """The votes as a table for each worker, or as one of single answers; systems sorted by name."""
    systems = tuple(
        sorted({name for vote in votes for name in (vote.comparison.left, vote.comparison.right)})
    )
    place = {name: number for number, name in enumerate(systems)}
    row = {worker: number for number, worker in enumerate(dict.fromkeys(vote.worker for vote in votes))}
    wins = np.zeros((len(row) if by_worker else 1, len(systems), len(systems)))
    ties = np.zeros_like(wins)
    for vote in votes:
        of = row[vote.worker] if by_worker else 0
        left, right = place[vote.comparison.left], place[vote.comparison.right]
        if vote.answer is Preference.EQUAL:
            ties[of, [left, right], [right, left]] += 1
        else:
            winner, loser = (left, right) if vote.answer is Preference.LEFT else (right, left)
            wins[of, winner, loser] += 1
    return Ballots(systems, wins, ties) if by_worker else Ballots(systems, wins[0], ties[0])


def left_share(votes: Sequence[Vote]) -> float | None:
    """The share of the left among the votes for a side; None where there is none. Far from a half, people lean."""
    sided = [vote.answer for vote in votes if vote.answer is not Preference.EQUAL]
    return sum(answer is Preference.LEFT for answer in sided) / len(sided) if sided else None
