"""The funnel's steps, histograms and wages as numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from mitl.analysis.report.inputs import FunnelCounts

FUNNEL_LABELS = {
    "possible": "query × gallery pairs",
    "distinct": "candidate pairs",
    "asked": "asked",
    "judged": "judged",
    "usable": "judged, usable",
    "positive": "judged positive",
    "beyond_originals": "positives beyond the originals",
}


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """One step of the funnel; shares run from 0 to 1 and are None where there is nothing to compare with."""

    key: str
    label: str
    count: int
    of_previous: float | None
    of_first: float | None


def histogram(values: Iterable[int], *, tail: int) -> tuple[int, ...]:
    """How many values are 0, 1, … ``tail - 1``, and at the end how many are ``tail`` or more."""
    bins = [0] * (tail + 1)
    for value in values:
        bins[min(value, tail)] += 1
    return tuple(bins)


def funnel_steps(funnel: FunnelCounts) -> tuple[FunnelStep, ...]:
    """The steps that are known, in order, each as a share of the one before and of the first."""
    steps: list[FunnelStep] = []
    for field in fields(funnel):
        count: int | None = getattr(funnel, field.name)
        if count is None:
            continue
        of_previous = count / steps[-1].count if steps and steps[-1].count else None
        of_first = count / steps[0].count if steps and steps[0].count else None
        steps.append(FunnelStep(field.name, FUNNEL_LABELS[field.name], count, of_previous, of_first))
    return tuple(steps)


def hourly_wage_cents(reward_cents: int, median_active_s: float | None) -> int | None:
    """Cents an hour at the median active time, rounded down; None where no time is known."""
    if not median_active_s:
        return None
    return int(reward_cents * 3600 / median_active_s)
