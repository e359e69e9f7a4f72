"""How each worker goes about it, from all answers of an environment; whatever was decided about them."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.db.store import desk as desk_store
from mitl.db.store.desk import AnswerRow
from mitl.judgements.conduct import (
    Agreement,
    Run,
    agreements,
    consistency,
    entropy_bits,
    longest_run,
    median_seconds,
)
from mitl.judgements.gold_records import GoldAnswer
from mitl.records import Environment, GoldControl, Label, Outcome
from mitl.records.gold_rule import GoldRule
from mitl.stages.harvesting.golds import GoldState, state_of


@dataclass(frozen=True, slots=True)
class Habit:
    """What one worker's answers say, whatever was decided about them."""

    answers: int = 0
    median_s: float | None = None
    """Active seconds on one pair."""
    page_s: float | None = None
    """Median active seconds on a HIT."""
    run: Run | None = None
    entropy: float | None = None
    """Bits, 0 to 2."""
    shares: Mapping[Label, float] | None = None
    """Of the worker's answers."""
    agreement: Agreement | None = None
    """With others; None where nobody else answered the same pairs."""
    consistency: Agreement | None = None
    """With the worker's own earlier answers; None where no pair came twice."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What all answers of an environment say; dear to gather, and the same until an answer comes."""

    of: Mapping[str, Habit]
    """By the worker's id on the requester API."""
    golds: GoldState
    controls: tuple[AnswerRow, ...]
    """The answers on gold controls."""
    median_s: float | None
    """Median of the workers' medians."""
    run: float | None
    """Median of the workers' longest runs."""
    entropy: float | None

    def others_s(self, worker: str) -> float | None:
        """Median of the other workers' medians."""
        return _usual(habit.median_s for other, habit in self.of.items() if other != worker)


def habits(session: Session, environment: Environment, rule: GoldRule) -> Habits:
    """Everyone's answers, looked at together."""
    every = desk_store.answers(session, environment)
    answers: dict[str, list[AnswerRow]] = defaultdict(list)
    for answer in every:
        answers[answer.worker].append(answer)
    controls = tuple(row for row in every if row.role.is_gold)
    golds = state_of(
        [
            GoldAnswer(row.worker, GoldControl(row.pair, row.role), rule.passed(row.role, row.label))
            for row in controls
        ]
    )
    given = [
        (row.worker, row.pair, row.label)
        for row in every
        if row.label is not None and row.outcome is Outcome.ANSWERED and not row.role.is_gold
    ]
    agreeing = agreements(given, {worker for worker, record in golds.records.items() if record.is_bad})
    consistent = consistency(given)
    found = {
        worker: _habit(rows, agreeing.get(worker), consistent.get(worker)) for worker, rows in answers.items()
    }
    return Habits(
        of=found,
        golds=golds,
        controls=controls,
        median_s=_usual(habit.median_s for habit in found.values()),
        run=_usual(habit.run.length for habit in found.values() if habit.run is not None),
        entropy=_usual(habit.entropy for habit in found.values()),
    )


def _habit(answers: Sequence[AnswerRow], agreement: Agreement | None, consistent: Agreement | None) -> Habit:
    labels = [row.label for row in answers if row.label is not None]
    counts = Counter(labels)
    return Habit(
        answers=len(labels),
        median_s=median_seconds(row.active_ms for row in answers),
        page_s=median_seconds(_page_times(answers)),
        run=longest_run(_pages(answers)),
        entropy=entropy_bits(labels),
        shares={label: counts[label] / len(labels) if labels else 0.0 for label in Label},
        agreement=agreement,
        consistency=consistent,
    )


def _pages(answers: Sequence[AnswerRow]) -> list[list[Label]]:
    pages: dict[int, list[Label]] = defaultdict(list)
    for row in answers:
        if row.label is not None:
            pages[row.assignment_id].append(row.label)
    return list(pages.values())


def _page_times(answers: Sequence[AnswerRow]) -> list[int]:
    times: dict[int, int] = defaultdict(int)
    for row in answers:
        times[row.assignment_id] += row.active_ms or 0
    return list(times.values())


def _usual(values: Iterable[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return statistics.median(known) if known else None
