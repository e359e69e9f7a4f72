"""What speaks for and against each worker, for the review desk."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.db.store import answers as answer_store
from mitl.db.store import desk as desk_store
from mitl.db.store.answers import AssignmentRow
from mitl.db.store.desk import AnswerRow
from mitl.judgements.conduct import (
    Agreement,
    Run,
    agreements,
    entropy_bits,
    gold_interval,
    longest_run,
    median_seconds,
)
from mitl.judgements.gold_records import GoldAnswer, GoldRecord, gold_records, withdrawn_golds
from mitl.records import Decision, Environment, GoldControl, Label, Outcome
from mitl.stages.golds import GoldState
from mitl.stages.workers import standing

_MANY = 100
"""Workers beyond which leaving one out moves the median by nothing that could be seen."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One worker over all submissions."""

    id: int
    """Row in the database, which addresses use in place of the worker's id."""
    worker: str
    standing: str
    """good, poor, unproven or excluded."""
    submissions: int
    queued: int
    rejected: int
    answers: int
    record: GoldRecord
    low: float
    high: float
    """90 % interval of the pass rate on gold controls."""
    median_s: float | None
    """Active seconds on one pair."""
    speed: float | None
    """``median_s`` over the median of the other workers' medians."""
    run: Run | None
    entropy: float | None
    """Bits, 0 to 2."""
    shares: Mapping[Label, float]
    """Of the worker's answers."""
    agreement: Agreement | None
    """None where nobody else answered the same pairs."""
    earned_cents: int

    @property
    def mean(self) -> float:
        """Posterior mean of the pass rate on gold controls."""
        return float(self.record.mean)


@dataclass(frozen=True, slots=True)
class Crowd:
    """All workers of an environment and what is usual among them."""

    workers: tuple[Evidence, ...]
    habits: Habits

    @property
    def golds(self) -> GoldState:
        """Records and withdrawn controls."""
        return self.habits.golds

    def find(self, worker_id: int) -> Evidence | None:
        """The worker of this row."""
        return next((one for one in self.workers if one.id == worker_id), None)


@dataclass(frozen=True, slots=True)
class Habit:
    """What one worker's answers say, whatever was decided about them."""

    answers: int
    median_s: float | None
    run: Run | None
    entropy: float | None
    shares: Mapping[Label, float]
    agreement: Agreement | None


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


def gold_state_of(rows: Sequence[AnswerRow]) -> GoldState:
    """Records and withdrawn controls over all answers of one environment."""
    given = [
        GoldAnswer(row.worker, GoldControl(row.pair, row.role), row.label) for row in rows if row.role.is_gold
    ]
    withdrawn = withdrawn_golds(given)
    return GoldState(gold_records(given, withdrawn), withdrawn)


def habits(session: Session, environment: Environment) -> Habits:
    """Everyone's answers, looked at together."""
    every = desk_store.answers(session, environment)
    answers: dict[str, list[AnswerRow]] = defaultdict(list)
    for answer in every:
        answers[answer.worker].append(answer)
    controls = tuple(row for row in every if row.role.is_gold)
    golds = gold_state_of(controls)
    agreeing = _agreements(every, golds)
    found = {worker: _habit(rows, agreeing.get(worker)) for worker, rows in answers.items()}
    return Habits(
        of=found,
        golds=golds,
        controls=controls,
        median_s=_usual(habit.median_s for habit in found.values()),
        run=_usual(habit.run.length for habit in found.values() if habit.run is not None),
        entropy=_usual(habit.entropy for habit in found.values()),
    )


def crowd(session: Session, environment: Environment, known: Habits) -> Crowd:
    """Everyone with a submission, by id."""
    submissions: dict[str, list[AssignmentRow]] = defaultdict(list)
    for row in answer_store.assignments(session, environment):
        submissions[row.worker].append(row)
    paid = desk_store.paid(session, environment)
    found = (
        _evidence(rows, known.of.get(worker, _NOTHING), known, paid.get(rows[0].worker_id, 0))
        for worker, rows in sorted(submissions.items())
    )
    return Crowd(tuple(found), known)


def _agreements(every: Sequence[AnswerRow], golds: GoldState) -> dict[str, Agreement]:
    """Over pairs that are no control: the controls are the gold record's."""
    given = [
        (row.worker, row.pair, row.label)
        for row in every
        if row.label is not None and row.outcome is Outcome.ANSWERED and not row.role.is_gold
    ]
    return agreements(given, {worker for worker, record in golds.records.items() if record.is_bad})


def _habit(answers: Sequence[AnswerRow], agreement: Agreement | None) -> Habit:
    labels = [row.label for row in answers if row.label is not None]
    counts = Counter(labels)
    return Habit(
        answers=len(labels),
        median_s=median_seconds(row.active_ms for row in answers),
        run=longest_run(_pages(answers)),
        entropy=entropy_bits(labels),
        shares={label: counts[label] / len(labels) if labels else 0.0 for label in Label},
        agreement=agreement,
    )


_NOTHING = Habit(0, None, None, None, dict.fromkeys(Label, 0.0), None)
"""Of a worker whose every page was unreadable."""


def _evidence(rows: Sequence[AssignmentRow], habit: Habit, known: Habits, earned_cents: int) -> Evidence:
    first = rows[0]
    record = known.golds.record(first.worker)
    low, high = gold_interval(record)
    others_s = known.median_s if len(known.of) > _MANY else known.others_s(first.worker)
    return Evidence(
        id=first.worker_id,
        worker=first.worker,
        standing=standing(record, excluded=first.excluded),
        submissions=len(rows),
        queued=sum(row.decision is Decision.QUEUED for row in rows),
        rejected=sum(row.decision is Decision.REJECT for row in rows),
        answers=habit.answers,
        record=record,
        low=low,
        high=high,
        median_s=habit.median_s,
        speed=None if habit.median_s is None or not others_s else habit.median_s / others_s,
        run=habit.run,
        entropy=habit.entropy,
        shares=habit.shares,
        agreement=habit.agreement,
        earned_cents=earned_cents,
    )


def _pages(answers: Sequence[AnswerRow]) -> list[list[Label]]:
    pages: dict[int, list[Label]] = defaultdict(list)
    for row in answers:
        if row.label is not None:
            pages[row.assignment_id].append(row.label)
    return list(pages.values())


def _usual(values: Iterable[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return statistics.median(known) if known else None
