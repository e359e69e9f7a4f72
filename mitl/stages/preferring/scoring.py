"""How preferences become scores with intervals: the choices that are made, and what comes of them."""

from __future__ import annotations

from dataclasses import dataclass

from mitl.analysis.bradley_terry import Bounds, Strengths, TieRule, bootstrap, strengths
from mitl.analysis.preferences import Ballots


@dataclass(frozen=True, slots=True)
class Method:
    """How scores and their intervals are made."""

    ties: TieRule = TieRule.HALF
    prior: float = 0.0
    samples: int = 1000
    confidence: float = 0.95
    by_worker: bool = True
    """Whether the bootstrap draws workers, each with all votes; else single votes."""


DEFAULT = Method()
"""Ties as half wins, no prior, 95 % intervals over workers."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Preferences with the strengths and the intervals that they give."""

    ballots: Ballots
    found: Strengths
    bounds: Bounds

    @property
    def order(self) -> list[int]:
        """Best first."""
        return sorted(range(len(self.ballots.systems)), key=lambda i: (-self.found.scores[i], i))


def score(ballots: Ballots, method: Method, *, seed: int) -> Scored:
    """Strengths and bounds of these preferences.

    Raises:
        MetricError: the strengths have no maximum.
    """
    found = strengths(
        ballots.total_wins,
        ballots.total_ties,
        rule=method.ties,
        prior=method.prior,
        names=ballots.systems,
    )
    bounds = bootstrap(
        ballots.wins,
        ballots.ties,
        samples=method.samples,
        confidence=method.confidence,
        seed=seed,
        rule=method.ties,
        prior=method.prior,
    )
    return Scored(ballots, found, bounds)
