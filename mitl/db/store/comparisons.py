"""Preference HITs: which rankings stand side by side, which are to be asked again, and what people preferred."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from mitl.db.base import values
from mitl.db.models import Assignment, Batch, ComparisonRow, Hit, PreferenceAnswer, RankingSystem, Worker
from mitl.db.store.hits import latest_hits, replaced_by
from mitl.db.store.open_work import HitToReplace
from mitl.db.store.parses import Submissions
from mitl.db.store.statements import (
    ARRIVAL,
    KEPT,
    Wide,
    add_rows,
    at_place,
    query_by_worker,
    query_hits,
    query_submissions,
    rows_among,
)
from mitl.records import (
    BatchKind,
    Comparison,
    ComparisonAnswer,
    ComparisonRole,
    Environment,
    HitState,
    Preference,
    System,
    Vote,
)


def add_systems(session: Session, batch_id: int, systems: Sequence[System]) -> None:
    """Write down what a batch compares, and where the rankings come from."""
    add_rows(
        session, RankingSystem, ({"batch_id": batch_id, "name": s.name, "origin": s.origin} for s in systems)
    )


def systems(session: Session, environment: Environment) -> dict[str, list[System]]:
    """Batch → what it compares, by name."""
    query = (
        select(Batch.name, RankingSystem.name, RankingSystem.origin)
        .join(RankingSystem, RankingSystem.batch_id == Batch.id)
        .where(Batch.environment == environment)
        .order_by(Batch.id)
    )
    by_batch: dict[str, list[System]] = {}
    for batch, name, origin in session.execute(query):
        by_batch.setdefault(batch, []).append(System(name, origin))
    # Not by the database: PostgreSQL sorts texts as its own language does.
    return {batch: sorted(found, key=attrgetter("name")) for batch, found in by_batch.items()}


def add_items(session: Session, items: Mapping[int, Sequence[Comparison]]) -> None:
    """Write down what stands on these HITs, by their rows."""
    add_rows(
        session,
        ComparisonRow,
        (
            values(
                ComparisonRow,
                item,
                hit_id=hit_id,
                left_system=item.left,
                right_system=item.right,
                left_items=json.dumps(item.left_items),
                right_items=json.dumps(item.right_items),
            )
            for hit_id, page in items.items()
            for item in page
        ),
    )


def comparisons(session: Session, hit_ids: Sequence[int]) -> dict[int, list[Comparison]]:
    """What stands on these HITs, by place; nothing on a HIT that asks pairs."""
    by_hit: dict[int, list[Comparison]] = {hit_id: [] for hit_id in hit_ids}
    query = select(ComparisonRow).order_by(ComparisonRow.hit_id, ComparisonRow.place)
    for (row,) in rows_among(session, query, ComparisonRow.hit_id, hit_ids):
        by_hit[row.hit_id].append(record_of(row))
    return by_hit


def hits_to_replace(session: Session, environment: Environment) -> list[HitToReplace]:
    """What is to be asked again: closed HITs whose comparisons fewer different workers have answered usably than their
    batch wants, on them or on those that they replace; by batch and number.
    """
    wanted = dict(session.execute(select(Batch.id, Batch.assignments)).all())
    before = replaced_by(session)
    # HIT → the workers whose submissions count.
    usable: dict[int, set[int]] = defaultdict(set)
    for hit_id, worker in session.execute(_counting(environment, Assignment.hit_id, Assignment.worker_id)):
        usable[hit_id].add(worker)
    replaced = []
    for hit in latest_hits(session, environment, (HitState.CLOSED,), BatchKind.RANKINGS):
        workers = set[int]().union(*(usable[id_] for id_ in (hit.id, *before.get(hit.id, ()))))
        if (missing := wanted[hit.batch_id] - len(workers)) > 0:
            replaced.append(HitToReplace(hit, missing))
    return replaced


def _counting(environment: Environment, *columns: Any) -> Wide:
    return query_by_worker(environment, *columns).where(
        Worker.excluded_at.is_(None), Assignment.decision.in_(KEPT)
    )


def answered(session: Session, environment: Environment) -> list[tuple[Comparison, str]]:
    """What stands on pages of which submissions count, controls left out, with the worker's id on the requester API."""
    query = (
        _counting(environment, ComparisonRow, Worker.mturk_worker_id)
        .join(ComparisonRow, ComparisonRow.hit_id == Assignment.hit_id)
        .where(ComparisonRow.role == ComparisonRole.ASKED)
    )
    return [(record_of(row), worker) for row, worker in session.execute(query)]


def asked(
    session: Session, environment: Environment, role: ComparisonRole = ComparisonRole.ASKED
) -> list[Comparison]:
    """Every comparison that is on a HIT of an environment in this role; what was asked need not be again."""
    query = (
        query_hits(environment, ComparisonRow)
        .join(ComparisonRow, ComparisonRow.hit_id == Hit.id)
        .where(ComparisonRow.role == role)
        .order_by(ComparisonRow.id)
    )
    return [record_of(row) for row in session.scalars(query)]


def record_of(row: ComparisonRow) -> Comparison:
    """A stored comparison as it stands on its page."""
    return Comparison(
        place=row.place,
        role=row.role,
        direction=row.direction,
        query_id=row.query_id,
        left=row.left_system,
        right=row.right_system,
        left_items=tuple(json.loads(row.left_items)),
        right_items=tuple(json.loads(row.right_items)),
        expected=row.expected,
    )


STORED = Submissions(BatchKind.RANKINGS, ComparisonRow, PreferenceAnswer)


def answers(session: Session, assignment_ids: Sequence[int]) -> dict[int, list[ComparisonAnswer]]:
    """What these submissions say, by place."""
    return {
        id_: [
            ComparisonAnswer(row.place, row.outcome, row.answer, row.text or "", row.active_ms)
            for row in rows
        ]
        for id_, rows in STORED.rows(session, assignment_ids).items()
    }


def controls(
    session: Session, assignment_ids: Sequence[int]
) -> dict[int, list[tuple[int, Preference, Preference | None]]]:
    """Submission → place, right answer and given answer of each control on its page; None where none was given."""
    query = (
        select(Assignment.id, ComparisonRow.place, ComparisonRow.expected, PreferenceAnswer.answer)
        .join(ComparisonRow, ComparisonRow.hit_id == Assignment.hit_id)
        .outerjoin(
            PreferenceAnswer,
            (PreferenceAnswer.assignment_id == Assignment.id)
            & (PreferenceAnswer.place == ComparisonRow.place),
        )
        .where(ComparisonRow.role == ComparisonRole.CONTROL)
        .order_by(Assignment.id, ComparisonRow.place)
    )
    by_assignment: dict[int, list[tuple[int, Preference, Preference | None]]] = defaultdict(list)
    for id_, place, expected, answer in rows_among(session, query, Assignment.id, assignment_ids):
        by_assignment[id_].append((place, Preference(str(expected)), answer))
    return by_assignment


@dataclass(frozen=True, slots=True)
class GivenControl:
    """A worker's answer on a control."""

    worker: int
    """Row."""
    control: Comparison
    answer: Preference


def answered_controls(session: Session, environment: Environment) -> list[GivenControl]:
    """Every answer on a control of an environment, used or not, in order of arrival."""
    query = (
        query_submissions(environment, Assignment.worker_id, ComparisonRow, PreferenceAnswer.answer)
        .join(PreferenceAnswer, PreferenceAnswer.assignment_id == Assignment.id)
        .join(ComparisonRow, at_place(ComparisonRow, PreferenceAnswer))
        .where(ComparisonRow.role == ComparisonRole.CONTROL, PreferenceAnswer.answer.is_not(None))
        .order_by(Assignment.id, ComparisonRow.place)
    )
    return [
        GivenControl(worker, record_of(row), Preference(str(answer)))
        for worker, row, answer in session.execute(query)
    ]


def votes(session: Session, environment: Environment, batches: Sequence[str] = ()) -> list[Vote]:
    """The preferences that count, in order of arrival: of submissions that are kept, by workers who are not excluded.

    Answers on controls do not count. Where batches are named, those on their HITs alone.
    """
    query = (
        query_submissions(environment, Worker.mturk_worker_id, PreferenceAnswer.answer, ComparisonRow)
        .join(PreferenceAnswer, PreferenceAnswer.assignment_id == Assignment.id)
        .join(Worker, Worker.id == Assignment.worker_id)
        .join(ComparisonRow, at_place(ComparisonRow, PreferenceAnswer))
        .where(
            Assignment.decision.in_(KEPT),
            Worker.excluded_at.is_(None),
            ComparisonRow.role == ComparisonRole.ASKED,
            PreferenceAnswer.answer.is_not(None),
        )
        .order_by(*ARRIVAL, ComparisonRow.place)
    )
    if batches:
        query = query.where(Batch.name.in_(batches))
    return [
        Vote(worker, record_of(row), Preference(str(answer)))
        for worker, answer, row in session.execute(query)
    ]
