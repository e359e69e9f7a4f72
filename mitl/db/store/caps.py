"""How much each worker has done, for the cap on it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from mitl.db.models import Assignment, Batch, Hit, Worker
from mitl.records import Environment, JudgementSource


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
    query = (
        select(
            Worker.id,
            Worker.mturk_worker_id,
            Worker.excluded_at,
            Worker.capped_at,
            func.count(Assignment.id),
        )
        .join(Assignment, Assignment.worker_id == Worker.id)
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .where(Worker.environment == environment, Batch.source != JudgementSource.IMPORT)
        .group_by(Worker.id, Worker.mturk_worker_id, Worker.excluded_at, Worker.capped_at)
        .order_by(Worker.mturk_worker_id)
    )
    return [
        WorkerLoad(id_, worker, excluded is not None, capped is not None, hits)
        for id_, worker, excluded, capped, hits in session.execute(query)
    ]


def capped_at(session: Session, environment: Environment) -> dict[str, dt.datetime]:
    """Worker's id on the requester API → since when the cap keeps them from further HITs."""
    query = select(Worker.mturk_worker_id, Worker.capped_at).where(
        Worker.environment == environment, Worker.capped_at.is_not(None)
    )
    return {worker: since for worker, since in session.execute(query) if since is not None}


def set_capped(session: Session, worker_id: int, since: dt.datetime | None) -> None:
    """Write that the cap keeps a worker from further HITs, or no longer does (None)."""
    session.execute(update(Worker).where(Worker.id == worker_id).values(capped_at=since))
