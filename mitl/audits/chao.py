"""How many matches nobody found, at least: Chao's bound from how many annotators found each that is known."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mitl.errors import AuditError

_NORMAL_95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Completeness:
    """A lower bound of the number of matches, so the most that the recall of what was found can be."""

    annotators: int
    found: int
    """Matches that some annotator found."""
    once: int
    """Those that exactly one found."""
    twice: int
    total: float
    """Matches that there are at least, in expectation: found and not found."""
    standard_error: float
    """Of ``total``."""
    low: float
    """Lower end of its 95 % interval, never below ``found``."""
    high: float

    @property
    def missing(self) -> float:
        """Matches that nobody found, at least."""
        return self.total - self.found

    @property
    def missing_whole(self) -> int:
        """`missing` in whole matches, never rounded up."""
        return math.floor(self.missing + 1e-9)

    @property
    def at_most(self) -> float | None:
        """The recall of what was found is at most this, 0 to 1; None where nothing was found."""
        return self.found / self.total if self.total else None


def chao(found_by: NDArray[np.integer], annotators: int) -> Completeness:
    """Chao's lower bound from incidences.

    Annotators differ in what they find, and some matches are harder than others; by the inequality of Cauchy and
    Schwarz the expected number that none of T found is at least (T - 1) / T f1^2 / (2 f2), and exactly that where all
    matches are equally easy. Annotators that fail on the same matches make the true number larger still. Where f2 = 0
    the bias-corrected (T - 1) / T f1 (f1 - 1) / 2 stands in.

    Args:
        found_by: (S,) how many of the annotators found each known match, from 1; zeros are left out.
        annotators: T, how many looked.

    Raises:
        AuditError: fewer than two annotators, or a match found by more than there are.
    Source: Chao, Estimating the population size for capture-recapture data with unequal catchability, Biometrics 43,
        1987; variance and interval in the form that EstimateS and vegan give for incidences.
    """
    if annotators < 2:
        raise AuditError(
            f"the bound compares what several annotators found, but there is {annotators}; propose with two or more"
        )
    if len(found_by) and int(found_by.max()) > annotators:
        raise AuditError(
            f"a match is found by {int(found_by.max())} annotators of {annotators}; count each once"
        )
    times = np.bincount(found_by.astype(np.int64), minlength=3)
    found, once, twice = int(times[1:].sum()), int(times[1]), int(times[2])
    factor = (annotators - 1) / annotators
    missing = factor * (once**2 / (2 * twice) if twice else once * (once - 1) / 2)
    total = found + missing
    error = math.sqrt(max(_variance(factor, once, twice, total), 0.0))
    low, high = _interval(found, missing, error)
    return Completeness(annotators, found, once, twice, total, error, low, high)


def _variance(factor: float, once: int, twice: int, total: float) -> float:
    if not once:
        return 0.0
    if twice:
        ratio = once / twice
        return twice * (factor / 2 * ratio**2 + factor**2 * ratio**3 + factor**2 / 4 * ratio**4)
    return factor * once * (once - 1) / 2 + factor**2 * (
        once * (2 * once - 1) ** 2 / 4 - once**4 / (4 * total)
    )


def _interval(found: int, missing: float, error: float) -> tuple[float, float]:
    """Of all matches: the number missing is taken as log-normal, so that it stays above 0."""
    if not missing:
        return float(found), float(found)
    spread = math.exp(_NORMAL_95 * math.sqrt(math.log(1 + (error / missing) ** 2)))
    return found + missing / spread, found + missing * spread
