"""The crowd and its pay."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mitl.judgements.wages import WageFigures
from mitl.records import Direction


class WorkerStanding(StrEnum):
    """What a worker's gold record allows to be said."""

    GOOD = "good"
    UNPROVEN = "unproven"
    """Too few golds to tell."""
    POOR = "poor"
    EXCLUDED = "excluded"


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker under a pseudonym, with the record on gold controls."""

    pseudonym: str
    hits: int
    golds_seen: int
    golds_right: int
    standing: WorkerStanding
    median_active_s: float | None = None
    """Active seconds a HIT, each cut to what it can have been; None where no page measured them."""
    earned_cents: int = 0
    hourly_cents: int | None = None
    """What an hour of paid work brought, bonuses included; None where no time is known."""


@dataclass(frozen=True, slots=True)
class GoldStats:
    """How the gold controls fared; withdrawn ones are not among those seen."""

    positive_seen: int
    positive_right: int
    negative_seen: int
    negative_right: int
    withdrawn: int = 0


@dataclass(frozen=True, slots=True)
class AgreementStats:
    """Pairs with usable answers of two workers or more, by overlap, repeats or several workers a HIT."""

    pairs: int
    same_label: int
    """Those on which all answers are the same."""
    same_side: int
    """Those on which all are positive or all negative."""
    alpha: float | None = None
    """Krippendorff's, ordinal: 1 is perfect, 0 what chance gives."""
    low: float | None = None
    """Lower end of the 95 % bootstrap interval; None where there is none."""
    high: float | None = None
    reason: str = ""
    """Why there is no alpha."""


@dataclass(frozen=True, slots=True)
class CrowdStats:
    """HITs and assignments of the environment, by what became of them."""

    hits_posted: int
    submitted: int
    approved: int
    """Passed by the rule or approved by a person; answers used."""
    queued: int
    """Waiting for a person's decision."""
    rejected: int
    dropped: int = 0
    """Paid, answers left out (drop, approve_exclude)."""
    gold: GoldStats | None = None
    agreement: AgreementStats | None = None
    workers: tuple[WorkerRow, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One batch of HITs with its price and its time."""

    name: str
    template: str
    direction: Direction | None
    """None where both directions are in it."""
    hits: int
    reward_cents: int
    """For one assignment."""
    median_active_s: float | None = None
    """Active seconds a paid HIT, cut to what they can have been."""


@dataclass(frozen=True, slots=True)
class MoneyStats:
    """Where the money is, in cents of US dollars; on the sandbox it is practice money."""

    rewards_cents: int
    fees_cents: int
    bonuses_cents: int
    held_cents: int
    """Promised for work that is not decided or not done yet."""
    wage_floor_cents: int | None = None
    """Cents an hour."""
    wages: tuple[WageFigures, ...] = ()
    """By wording, over paid HITs."""
    timed_workers: int = 0
    """Workers with paid work of known time."""
    workers_under: int = 0
    """Those who earned less than the floor, bonuses included."""
    median_hourly_cents: int | None = None
    """Over those workers, bonuses included."""
