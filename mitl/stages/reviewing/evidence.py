"""What speaks for and against each worker: for the review desk, `mitl review show` and `mitl workers` alike."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np
from sqlalchemy.orm import Session

from mitl.crowd.paying import time_of
from mitl.db.store import answers as cap_store
from mitl.db.store import desk as desk_store
from mitl.db.store import items as item_store
from mitl.db.store import similarity as similarity_store
from mitl.db.store import worker_tallies
from mitl.db.store.control_sheets import gold_state
from mitl.db.store.desk import WorkerSubmissions
from mitl.db.store.ledger import SettledWork
from mitl.db.store.worker_tallies import Conduct
from mitl.judgements.conduct import Agreement, AnswerRun, agreement, entropy_of_counts, gold_interval
from mitl.judgements.gold_records import GoldRecord, GoldState
from mitl.judgements.rating_conduct import RatingConduct, rating_conduct
from mitl.records import Decision, Environment, Label, PartKind
from mitl.records.frames import LABELS
from mitl.records.questions import GoldRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """What one worker's answers say, whatever was decided about them."""

    answers: int = 0
    median_s: float | None = None
    """Active seconds on one pair."""
    run: AnswerRun | None = None
    """The longest row of one answer on a page."""
    entropy: float | None = None
    """Bits, 0 to 2."""
    shares: Mapping[Label, float] = field(default_factory=lambda: dict.fromkeys(Label, 0.0))
    """Of the worker's answers."""
    agreement: Agreement | None = None
    """With others; None where nobody else answered the same pairs."""
    consistency: Agreement | None = None
    """With the worker's own earlier answers; None where no pair came twice."""
    rating: RatingConduct | None = None
    """How they rate likeness; None where they have not."""
    unplayed: float | None = None
    """Share of the answers whose sound or video was not played at all; None where nothing is to be played."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What all answers of an environment say; dear to gather, and the same until an answer comes."""

    of: Mapping[str, Habit]
    """By the worker's id on the requester API."""
    golds: GoldState
    answers: int
    """Places of pages that were read, answered or not."""
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
    golds = gold_state(session, environment, rule)
    conduct, first = worker_tallies.conduct_of(session, environment)
    names = desk_store.worker_names(session, environment)
    workers = [names[worker] for worker in conduct]
    agreeing = agreement(first, np.array([golds.record(name).is_bad for name in workers], np.bool_))
    by_worker = {
        name: _habit(own, agreeing.get(place))
        for place, (name, own) in enumerate(zip(workers, conduct.values(), strict=True))
    }
    if item_store.dataset(session).form.left_part in (PartKind.AUDIO, PartKind.VIDEO):
        by_worker |= {
            name: replace(by_worker.get(name, Habit()), unplayed=1 - some / total)
            for name, (some, total) in desk_store.played(session, environment).items()
        }
    rated = rating_conduct(similarity_store.ratings(session, environment))
    by_worker |= {
        name: replace(by_worker.get(name, Habit()), rating=rating) for name, rating in rated.items()
    }
    return Habits(
        of=by_worker,
        golds=golds,
        answers=sum(own.answers for own in conduct.values()),
        median_s=_usual(habit.median_s for habit in by_worker.values()),
        run=_usual(habit.run.length for habit in by_worker.values() if habit.run is not None),
        entropy=_usual(habit.entropy for habit in by_worker.values()),
    )


def _habit(own: Conduct, agreement: Agreement | None) -> Habit:
    total = sum(own.labels)
    return Habit(
        answers=total,
        median_s=own.median_s,
        run=own.run,
        entropy=entropy_of_counts(own.labels),
        shares={label: count / (total or 1) for label, count in zip(LABELS, own.labels, strict=True)},
        agreement=agreement,
        consistency=own.consistency,
    )


def _usual(values: Iterable[float | None]) -> float | None:
    numbers = [float(value) for value in values if value is not None]
    return statistics.median(numbers) if numbers else None


def usual_seconds(settled: Iterable[SettledWork], environment: Environment) -> dict[str, float]:
    """Worker → median active seconds of a HIT, as for wages; a worker whose pages measured nothing is left out."""
    times: dict[str, list[int]] = defaultdict(list)
    for row in settled:
        time = time_of(row.active_ms, row.accepted_at, row.submitted_at, environment)
        if time.ms is not None:
            times[row.worker].append(time.ms)
    return {worker: statistics.median(measured) / 1000 for worker, measured in times.items()}


_MANY = 100
"""Workers beyond which leaving one out moves the median by nothing that could be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEvidence(Habit):
    """One worker over all submissions."""

    id: int
    """Row in the database, which addresses use in place of the worker's id."""
    worker: str
    standing: str
    """good, poor, unproven or excluded."""
    capped: bool
    """Whether they have done as many HITs as one may."""
    submissions: int
    approved: int
    """Submissions passed by rule or approved by a person."""
    used: int
    """Those of them whose answers are kept."""
    queued: int
    rejected: int
    record: GoldRecord
    low: float
    high: float
    """90 % interval of the pass rate on gold controls."""
    speed: float | None
    """``median_s`` over the median of the other workers' medians."""
    earned_cents: int
    """Rewards and bonuses."""

    @property
    def mean(self) -> float:
        """Posterior mean of the pass rate on gold controls."""
        return float(self.record.mean)

    @property
    def rates_alone(self) -> bool:
        """Whether they rated likeness and never answered for a pair, of which most of this speaks."""
        return self.rating is not None and not self.answers

    def is_under(self, floor_s: float) -> bool:
        """Whether half of the worker's pairs took less than this, however fast the others are."""
        return self.median_s is not None and self.median_s < floor_s


@dataclass(frozen=True, slots=True)
class CrowdConduct:
    """All workers of an environment and what is usual among them."""

    workers: tuple[WorkerEvidence, ...]
    habits: Habits

    @property
    def golds(self) -> GoldState:
        """Records and withdrawn controls."""
        return self.habits.golds

    @property
    def raters(self) -> list[WorkerEvidence]:
        """Those who rated likeness, what is odd first."""
        return sorted(
            (worker for worker in self.workers if worker.rating is not None),
            key=lambda worker: (worker.rating is not None and -len(worker.rating.findings), worker.worker),
        )

    def find(self, worker_id: int) -> WorkerEvidence | None:
        """The worker of this row."""
        return next((worker for worker in self.workers if worker.id == worker_id), None)


def standing(record: GoldRecord, *, excluded: bool) -> str:
    """What a gold record allows to be said: good, poor, unproven or excluded."""
    if excluded:
        return "excluded"
    return "good" if record.is_good else "poor" if record.is_bad else "unproven"


def crowd(session: Session, environment: Environment, known: Habits) -> CrowdConduct:
    """Everyone with a submission, by id."""
    paid = desk_store.paid(session, environment)
    capped = cap_store.capped_at(session, environment)
    workers = (
        _evidence(work, known, capped=work.worker in capped, earned_cents=paid.get(work.worker_id, 0))
        for work in desk_store.worker_submissions(session, desk_store.submission_groups(session, environment))
    )
    return CrowdConduct(tuple(workers), known)


def _evidence(work: WorkerSubmissions, known: Habits, *, capped: bool, earned_cents: int) -> WorkerEvidence:
    record = known.golds.record(work.worker)
    low, high = gold_interval(record)
    others_s = known.median_s if len(known.of) > _MANY else known.others_s(work.worker)
    habit = known.of.get(work.worker, Habit())  # none where every page was unreadable
    return WorkerEvidence(
        id=work.worker_id,
        worker=work.worker,
        standing=standing(record, excluded=work.excluded),
        capped=capped,
        submissions=sum(work.decisions.values()),
        approved=sum(count for decision, count in work.decisions.items() if decision.keeps_answers),
        used=work.used(record),
        queued=work.decisions.get(Decision.QUEUED, 0),
        rejected=work.decisions.get(Decision.REJECT, 0),
        record=record,
        low=low,
        high=high,
        speed=None if habit.median_s is None or not others_s else habit.median_s / others_s,
        earned_cents=earned_cents,
        **{part.name: getattr(habit, part.name) for part in fields(habit)},
    )
