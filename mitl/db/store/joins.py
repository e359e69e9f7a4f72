"""How submissions, HITs and batches belong together: the joins of most queries, and which submissions count."""

from __future__ import annotations

from typing import Any, TypeAlias

from sqlalchemy import Select, select

from mitl.db.models import Assignment, Batch, Hit, HitItemRow, JudgementRow, Worker
from mitl.records import Decision, Environment

Wide: TypeAlias = Select[*tuple[Any, ...]]
"""A query of more columns than the type checker counts."""

KEPT = tuple(decision for decision in Decision if decision.keeps_answers)
"""The decisions about a submission after which its answers count."""

AT_PLACE = (HitItemRow.hit_id == Assignment.hit_id) & (HitItemRow.place == JudgementRow.place)
"""Joins a judgement of a submission with the item of the page that it is about."""


def query_hits(environment: Environment, *columns: Any) -> Wide:
    """A query of these columns over the HITs of an environment, joined with their batches."""
    query: Wide = select(*columns).select_from(Hit)
    return query.join(Batch, Batch.id == Hit.batch_id).where(Batch.environment == environment)


def query_submissions(environment: Environment, *columns: Any) -> Wide:
    """A query of these columns over the submissions of an environment, joined with their HITs and batches."""
    query: Wide = select(*columns).select_from(Assignment).join(Hit, Hit.id == Assignment.hit_id)
    return query.join(Batch, Batch.id == Hit.batch_id).where(Batch.environment == environment)


def query_by_worker(environment: Environment, *columns: Any) -> Wide:
    """A query of these columns over the submissions of an environment, joined with their workers."""
    query: Wide = select(*columns).select_from(Assignment)
    return query.join(Worker, Worker.id == Assignment.worker_id).where(Worker.environment == environment)
