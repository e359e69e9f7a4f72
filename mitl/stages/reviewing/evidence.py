"""What speaks for and against each worker: for the review desk, `mitl review show` and `mitl workers` alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.db.store import caps as cap_store
from mitl.db.store import desk as desk_store
from mitl.db.store.desk import WorkerSubmissions
from mitl.judgements.conduct import Agreement, Run, gold_interval
from mitl.judgements.gold_records import GoldRecord, GoldState
from mitl.records import Decision, Environment, Label
from mitl.stages.reviewing.habits import Habit, Habits

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
    capped: bool
    """Whether they have done as many HITs as one may."""
    submissions: int
    used: int
    """Submissions whose answers are kept: passed by rule or approved by a person."""
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
    habit: Habit

    @property
    def mean(self) -> float:
        """Posterior mean of the pass rate on gold controls."""
        return float(self.record.mean)

    @property
    def answers(self) -> int:
        """How many pairs were answered."""
        return self.habit.answers

    @property
    def median_s(self) -> float | None:
        """Active seconds on one pair."""
        return self.habit.median_s

    def is_under(self, floor_s: float) -> bool:
        """Whether half of the worker's pairs took less than this, however fast the others are."""
        return self.median_s is not None and self.median_s < floor_s

    @property
    def run(self) -> Run | None:
        """The longest row of one answer on a page."""
        return self.habit.run

    @property
    def entropy(self) -> float | None:
        """Of the answers; bits, 0 to 2."""
        return self.habit.entropy

    @property
    def shares(self) -> Mapping[Label, float]:
        """Of the worker's answers."""
        return self.habit.shares or dict.fromkeys(Label, 0.0)

    @property
    def agreement(self) -> Agreement | None:
        """With others on the same pairs; None where there are none."""
        return self.habit.agreement

    @property
    def consistency(self) -> Agreement | None:
        """With the worker's own earlier answers; None where no pair came twice."""
        return self.habit.consistency


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


def standing(record: GoldRecord, *, excluded: bool) -> str:
    """What a gold record allows to be said: good, poor, unproven or excluded."""
    if excluded:
        return "excluded"
    return "good" if record.is_good else "poor" if record.is_bad else "unproven"


def crowd(session: Session, environment: Environment, known: Habits) -> Crowd:
    """Everyone with a submission, by id."""
    paid = desk_store.paid(session, environment)
    capped = cap_store.capped_at(session, environment)
    found = (
        _evidence(one, known, capped=one.worker in capped, earned_cents=paid.get(one.worker_id, 0))
        for one in desk_store.worker_submissions(session, environment)
    )
    return Crowd(tuple(found), known)


def _evidence(work: WorkerSubmissions, known: Habits, *, capped: bool, earned_cents: int) -> Evidence:
    record = known.golds.record(work.worker)
    low, high = gold_interval(record)
    others_s = known.median_s if len(known.of) > _MANY else known.others_s(work.worker)
    habit = known.of.get(work.worker, Habit())  # none where every page was unreadable
    return Evidence(
        id=work.worker_id,
        worker=work.worker,
        standing=standing(record, excluded=work.excluded),
        capped=capped,
        submissions=sum(work.decisions.values()),
        used=sum(count for decision, count in work.decisions.items() if decision.keeps_answers),
        queued=work.decisions.get(Decision.QUEUED, 0),
        rejected=work.decisions.get(Decision.REJECT, 0),
        record=record,
        low=low,
        high=high,
        speed=None if habit.median_s is None or not others_s else habit.median_s / others_s,
        earned_cents=earned_cents,
        habit=habit,
    )
