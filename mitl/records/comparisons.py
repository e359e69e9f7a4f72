"""Two rankings of one query side by side: what is asked, and what people answered."""

from __future__ import annotations

from dataclasses import dataclass

from mitl.records.answers import Finding
from mitl.records.enums import ComparisonRole, Direction, Outcome, Preference


@dataclass(frozen=True, slots=True)
class System:
    """One of the ranking systems that a preference study compares."""

    name: str
    origin: str
    """Where its rankings come from: ``run <hash>``, or a file's name and hash."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two rankings of one query at one place (from 1) of a HIT."""

    place: int
    role: ComparisonRole
    direction: Direction
    query_id: int
    """An image for i2t, a caption for t2i."""
    left: str
    """The ranking system whose items stand on the left."""
    right: str
    left_items: tuple[int, ...]
    """Captions for i2t, images for t2i; best first."""
    right_items: tuple[int, ...]
    expected: Preference | None = None
    """The right answer of a control; None where people are really asked."""


@dataclass(frozen=True, slots=True)
class ComparisonPage:
    """A page of comparisons, not yet posted; ``number`` counts from 1 within the batch."""

    number: int
    comparisons: tuple[Comparison, ...]

    @property
    def items(self) -> tuple[Comparison, ...]:
        """What stands on it, as on every page."""
        return self.comparisons


@dataclass(frozen=True, slots=True)
class ComparisonAnswer:
    """What a worker gave at one place, as parsed; ``answer`` is None unless answered."""

    place: int
    outcome: Outcome
    answer: Preference | None
    text: str = ""
    active_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ParsedComparisons:
    """The answers of one assignment with what was odd about them."""

    answers: tuple[ComparisonAnswer, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Vote:
    """One worker's preference between two systems on one query."""

    worker: str
    """The worker's id on the requester API; leaves the project only as a keyed pseudonym."""
    comparison: Comparison
    answer: Preference
