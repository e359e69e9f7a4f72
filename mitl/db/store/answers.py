"""Workers, their submissions as received and parsed, and what was noticed about them."""

from __future__ import annotations

import datetime as dt
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from sqlalchemy import and_, bindparam, func, or_, select, update
from sqlalchemy.orm import Session

from mitl.core.arrays import Ints
from mitl.db.base import MOST_ROW, columns
from mitl.db.models import Assignment, Batch, FindingRow, Hit, Worker
from mitl.db.store.answer_sheets import of_workers
from mitl.db.store.statements import (
    ARRIVAL,
    change_among,
    number_columns,
    query_by_worker,
    query_submissions,
    rows_among,
)
from mitl.records import Decision, Environment, Finding, JudgementSource


def submission_key(mturk_assignment_id: str, worker: str) -> str:
    """Names a submission in the journal and the ledger; an assignment id may come again after a return."""
    return f"{mturk_assignment_id}:{worker}"


@dataclass(frozen=True, slots=True)
class StoredAssignment:
    """A submission as stored, without its raw answer document."""

    id: int
    hit_id: int
    batch: str
    number: int
    attempt: int
    mturk_hit_id: str | None
    worker_id: int
    worker: str
    """The worker's id on the requester API."""
    excluded: bool
    mturk_assignment_id: str
    accepted_at: dt.datetime | None
    submitted_at: dt.datetime | None
    status: str
    decision: Decision
    wanted: int
    """Workers whom its HIT asks for; a HIT that asks again may want fewer than its batch."""

    @property
    def key(self) -> str:
        """Names the submission in the journal and the ledger."""
        return submission_key(self.mturk_assignment_id, self.worker)

    @property
    def taken_s(self) -> float | None:
        """Seconds from accepting to submitting; None if unknown, and where a clock that was set back tells nothing."""
        if self.accepted_at is None or self.submitted_at is None or self.submitted_at < self.accepted_at:
            return None
        return (self.submitted_at - self.accepted_at).total_seconds()


def workers_wanted(session: Session, assignment_id: int) -> int:
    """How many workers the HIT of a submission asks for; a HIT that asks again may want fewer than its batch."""
    query = select(Hit.assignments).join(Assignment, Assignment.hit_id == Hit.id)
    return session.execute(query.where(Assignment.id == assignment_id)).scalar_one()


def stored_counts(session: Session, environment: Environment) -> dict[int, int]:
    """How many submissions of each HIT are stored."""
    query = query_submissions(environment, Assignment.hit_id, func.count()).group_by(Assignment.hit_id)
    return dict(session.execute(query).all())


def assignments(
    session: Session,
    environment: Environment,
    decisions: Sequence[Decision] = tuple(Decision),
    *,
    rows: Sequence[int] | None = None,
    worker_id: int | None = None,
    settled: bool = True,
) -> list[StoredAssignment]:
    """The submissions of an environment with one of these decisions, in order of arrival.

    Args:
        rows: of these alone.
        worker_id: of this worker's alone.
        settled: whether those are among them that the server has paid and whose worker need not be excluded any more.
    """
    query = (
        query_submissions(
            environment,
            *columns(
                StoredAssignment,
                Assignment,
                batch=Batch.name,
                number=Hit.number,
                attempt=Hit.attempt,
                mturk_hit_id=Hit.mturk_hit_id,
                worker=Worker.mturk_worker_id,
                excluded=Worker.excluded_at.is_not(None),
                wanted=Hit.assignments,
            ),
        )
        .join(Worker, Worker.id == Assignment.worker_id)
        .where(Assignment.decision.in_(list(decisions)))
        .order_by(*ARRIVAL)
    )
    if rows is not None:
        query = query.where(Assignment.id.in_([row for row in rows if 0 < row <= MOST_ROW]))
    if worker_id is not None:
        query = query.where(Assignment.worker_id == worker_id)
    if not settled:
        leaving = and_(Assignment.decision == Decision.APPROVE_EXCLUDE, Worker.excluded_at.is_(None))
        query = query.where(or_(Assignment.status != "Approved", leaving))
    return [StoredAssignment(*row) for row in session.execute(query)]


@dataclass(frozen=True, slots=True)
class SubmissionColumns:
    """All submissions of an environment in order of arrival, those of unknown time first; each (submissions,)."""

    id: Ints
    hit: Ints
    worker: Ints
    """Row of the worker."""
    excluded: Ints
    """1 where the worker is excluded, else 0."""
    decision: Ints
    """Place in `DECISIONS`."""


DECISIONS = tuple(Decision)


def submission_columns(
    session: Session, environment: Environment, workers: Sequence[int] | None = None
) -> SubmissionColumns:
    """The submissions as `assignments` has them, without a record for each; hundreds of thousands in half a second.

    Args:
        workers: rows of those whose submissions alone are wanted.
    """
    cases = " ".join(f"WHEN '{decision.value}' THEN {place}" for place, decision in enumerate(DECISIONS))
    query = f"""
        SELECT coalesce(a.submitted_at, -1), a.id, a.hit_id, a.worker_id,
            CASE WHEN w.excluded_at IS NULL THEN 0 ELSE 1 END, CASE a.decision {cases} END
        FROM assignment a JOIN worker w ON w.id = a.worker_id WHERE w.environment = '{environment.value}'"""
    at, *columns = number_columns(session, query + of_workers(workers), 6)
    order = np.lexsort((columns[0], at))
    return SubmissionColumns(*(column[order] for column in columns))


def set_decision(session: Session, assignment_ids: Sequence[int], decision: Decision) -> None:
    """Write what was decided about these submissions."""
    change_among(session, update(Assignment).values(decision=decision), Assignment.id, assignment_ids)


_SET_STATUS = update(Assignment).where(Assignment.id == bindparam("own")).values(status=bindparam("to"))


def set_status(session: Session, assignment_ids: Sequence[int], status: str) -> None:
    """Write what the API says of these submissions."""
    # Not by the ORM, whose bookkeeping takes thrice as long; a harvest does this for every submission.
    if assignment_ids:
        session.connection().execute(_SET_STATUS, [{"own": id_, "to": status} for id_ in assignment_ids])


def exclude_worker(session: Session, worker_id: int, note: str, now: dt.datetime) -> None:
    """The worker gets no further HITs."""
    session.execute(
        update(Worker)
        .where(Worker.id == worker_id, Worker.excluded_at.is_(None))
        .values(excluded_at=now, note=note)
    )


def finding_counts(session: Session, environment: Environment) -> dict[str, int]:
    """How often each code was noticed, by code."""
    query = (
        query_by_worker(environment, FindingRow.code, func.count())
        .join(FindingRow, FindingRow.assignment_id == Assignment.id)
        .group_by(FindingRow.code)
    )
    return dict(sorted(map(tuple, session.execute(query))))


def latest_submissions(session: Session, environment: Environment, count: int) -> list[dt.datetime]:
    """When the newest submissions from the crowd came in, newest first, at most so many."""
    query = (
        query_submissions(environment, Assignment.submitted_at)
        .where(Batch.source == JudgementSource.CROWD, Assignment.submitted_at.is_not(None))
        .order_by(Assignment.submitted_at.desc())
        .limit(count)
    )
    return [moment for moment in session.scalars(query) if moment is not None]


def findings_of(session: Session, assignment_ids: Sequence[int]) -> dict[int, list[Finding]]:
    """What was noticed about these submissions, by kind; numbers in it, as those of places, by their size."""
    query = select(FindingRow.assignment_id, FindingRow.code, FindingRow.detail).order_by(FindingRow.id)
    by_assignment: dict[int, list[Finding]] = defaultdict(list)
    for assignment_id, code, detail in rows_among(session, query, FindingRow.assignment_id, assignment_ids):
        by_assignment[assignment_id].append(Finding(code, detail))
    for notes in by_assignment.values():
        notes.sort(key=lambda note: (note.code, _by_size(note.detail)))
    return by_assignment


def _by_size(text: str) -> list[tuple[int, str]]:
    """A key by which `place 2` comes before `place 10`."""
    return [(int(part[:18]), part) if part.isdecimal() else (-1, part) for part in re.split("([0-9]+)", text)]


def decision_counts(session: Session, environment: Environment) -> dict[Decision, int]:
    """How many submissions stand at each decision."""
    query = query_by_worker(environment, Assignment.decision, func.count()).group_by(Assignment.decision)
    return dict(session.execute(query).all())


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """One worker's share of the work."""

    id: int
    worker: str
    """The worker's id on the requester API."""
    excluded: bool
    capped: bool
    hits: int
    """Submissions; past work from a file does not count."""


def worker_loads(session: Session, environment: Environment) -> list[WorkerLoad]:
    """Everyone of whom a submission is stored, by id."""
    of_worker = columns(
        WorkerLoad,
        Worker,
        worker=Worker.mturk_worker_id,
        excluded=Worker.excluded_at.is_not(None),
        capped=Worker.capped_at.is_not(None),
        hits=func.count(),
    )
    query = (
        query_by_worker(environment, *of_worker)
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .where(Batch.source != JudgementSource.IMPORT)
        .group_by(Worker.id)
    )
    return sorted((WorkerLoad(*row) for row in session.execute(query)), key=attrgetter("worker"))


def capped_at(session: Session, environment: Environment) -> dict[str, dt.datetime]:
    """Worker's id on the requester API → since when the cap keeps them from further HITs."""
    query = select(Worker.mturk_worker_id, Worker.capped_at).where(
        Worker.environment == environment, Worker.capped_at.is_not(None)
    )
    return {worker: since for worker, since in session.execute(query) if since is not None}


def set_capped(session: Session, worker_id: int, since: dt.datetime | None) -> None:
    """Write that the cap keeps a worker from further HITs, or no longer does (None)."""
    session.execute(update(Worker).where(Worker.id == worker_id).values(capped_at=since))
