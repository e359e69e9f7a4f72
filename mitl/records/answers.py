"""What came back: parsed answers, findings, judgements, and the positives made of them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from mitl.records.enums import Concept, JudgementSource, Label, Outcome, PairRole, Shortcoming
from mitl.records.items import Pair


@dataclass(frozen=True, slots=True)
class PlaceAnswer:
    """What a worker gave at one place of a HIT, as parsed; ``label`` is None unless answered."""

    place: int
    outcome: Outcome
    label: Label | None
    shortcomings: tuple[Shortcoming, ...] = ()
    concepts: tuple[Concept, ...] = ()
    text: str = ""
    active_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something noticed about an assignment; never an exception, never silent."""

    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ParsedAnswers:
    """The answers of one assignment with what was odd about them."""

    answers: tuple[PlaceAnswer, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """One worker's answer on one pair, as given; merging reads it and never rewrites it."""

    pair: Pair
    worker: str
    """The worker's id within the database (``mturk_worker_id``); leaves it only as a keyed pseudonym."""
    label: Label | None
    outcome: Outcome = Outcome.ANSWERED
    role: PairRole = PairRole.CANDIDATE
    usable: bool = True
    shortcomings: tuple[Shortcoming, ...] = ()
    concepts: tuple[Concept, ...] = ()
    active_ms: int | None = None
    source: JudgementSource = JudgementSource.CROWD
    submitted_at: dt.datetime | None = None
