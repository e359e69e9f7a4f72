"""Whether an iterative fit has settled, and the sentence that says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Convergence:
    """The course of a fit."""

    objective: tuple[float, ...]
    """Nats after each pass: the log-likelihood of the answers, with the log-density of the parameters' prior."""
    settled: bool
    """False where the limit of passes ended the fit."""

    @property
    def passes(self) -> int:
        """Passes over the table."""
        return len(self.objective)

    @property
    def line(self) -> str:
        """How the fit ended, for people."""
        if self.settled:
            return f"settled after {self.passes} passes"
        change = abs(self.objective[-1] - self.objective[-2]) if self.passes > 1 else float("inf")
        return (
            f"stopped by the limit of {self.passes} passes, the last of which still changed "
            f"the log-likelihood by {change:.3g} nats"
        )


def has_settled(objective: Sequence[float], tolerance: float) -> bool:
    """Whether each of the last three passes changed the objective by no more than ``tolerance`` nats.

    One small change may be a turning point.
    """
    last = objective[-4:]
    return len(last) == 4 and all(abs(after - before) <= tolerance for before, after in pairwise(last))
