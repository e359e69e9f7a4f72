"""What people are asked and what they answer: pages of pairs, rankings side by side, judgements, controls."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from mitl.records.enums import (
    ComparisonRole,
    Concept,
    Direction,
    JudgementSource,
    Label,
    Outcome,
    PairRole,
    Preference,
    Shortcoming,
)
from mitl.records.items import Pair
from mitl.records.questions import CONCEPT, SHORTCOMING, TEXT, Given

T = TypeVar("T", covariant=True)


class _Reasoned:
    """The standard questions' answers by their own names."""

    __slots__ = ()
    given: Given

    @property
    def shortcomings(self) -> tuple[Shortcoming, ...]:
        """Why the description falls short."""
        return tuple(map(Shortcoming, self.given.get(SHORTCOMING.name, ())))

    @property
    def concepts(self) -> tuple[Concept, ...]:
        """What kind of thing is described wrongly."""
        return tuple(map(Concept, self.given.get(CONCEPT.name, ())))

    @property
    def text(self) -> str:
        """In the worker's own words; empty where there are none."""
        return "\n".join(self.given.get(TEXT.name, ()))


@dataclass(frozen=True, slots=True)
class PlaceAnswer(_Reasoned):
    """What a worker gave at one place of a HIT, as parsed; ``label`` is None unless answered."""

    place: int
    outcome: Outcome
    label: Label | None
    given: Given = field(default_factory=dict, hash=False)
    active_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something noticed about an assignment; never an exception, never silent."""

    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Parsed(Generic[T]):
    """The answers of one assignment, by place, with what was odd about them."""

    answers: tuple[T, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Judgement(_Reasoned):
    """One worker's answer on one pair, as given; merging reads it and never rewrites it."""

    pair: Pair
    worker: str
    """The worker's id within the database (``mturk_worker_id``); leaves it only as a keyed pseudonym."""
    label: Label | None
    outcome: Outcome = Outcome.ANSWERED
    role: PairRole = PairRole.CANDIDATE
    usable: bool = True
    given: Given = field(default_factory=dict, hash=False)
    active_ms: int | None = None
    source: JudgementSource = JudgementSource.CROWD
    submitted_at: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class GoldControl:
    """A pair whose answer we know; ``role`` is gold_positive or gold_negative."""

    pair: Pair
    role: PairRole


@dataclass(frozen=True, slots=True)
class HitItem:
    """One place (from 1) of a HIT."""

    place: int
    pair: Pair
    role: PairRole


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of whatever its campaign asks, by place, not yet posted; ``number`` counts from 1 within the batch."""

    number: int
    items: tuple[T, ...]


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
class ComparisonAnswer:
    """What a worker gave at one place, as parsed; ``answer`` is None unless answered."""

    place: int
    outcome: Outcome
    answer: Preference | None
    text: str = ""
    active_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Vote:
    """One worker's preference between two systems on one query."""

    worker: str
    """The worker's id on the requester API; leaves the project only as a keyed pseudonym."""
    comparison: Comparison
    answer: Preference
