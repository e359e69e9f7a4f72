"""What people preferred: submissions that wait to be read, answers as given, and those that count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from mitl.db.models import Assignment, Batch, ComparisonRow, Hit, PreferenceAnswer, Worker
from mitl.db.store.bulk import chunks
from mitl.db.store.comparisons import KEPT, record_of
from mitl.db.store.parses import Submissions
from mitl.records import (
    BatchKind,
    ComparisonAnswer,
    ComparisonRole,
    Environment,
    Parsed,
    Preference,
    Vote,
)

STORED = Submissions(BatchKind.RANKINGS, ComparisonRow, PreferenceAnswer)


def set_parses(session: Session, given: Mapping[int, Parsed[ComparisonAnswer]]) -> None:
    """Write what was parsed from these submissions, in place of an earlier parse."""
    STORED.set_parses(session, given, "answer")


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
    found: dict[int, list[tuple[int, Preference, Preference | None]]] = defaultdict(list)
    for chunk in chunks(assignment_ids):
        for id_, place, expected, given in session.execute(query.where(Assignment.id.in_(chunk))):
            found[id_].append((place, Preference(str(expected)), given))
    return found


def votes(session: Session, environment: Environment, batch: str | None = None) -> list[Vote]:
    """The preferences that count, in order of arrival: of submissions that are kept, by workers who are not excluded.

    Answers on controls do not count.
    """
    query = (
        select(Worker.mturk_worker_id, PreferenceAnswer.answer, ComparisonRow)
        .join(Assignment, Assignment.id == PreferenceAnswer.assignment_id)
        .join(Worker, Worker.id == Assignment.worker_id)
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .join(
            ComparisonRow, (ComparisonRow.hit_id == Hit.id) & (ComparisonRow.place == PreferenceAnswer.place)
        )
        .where(
            Batch.environment == environment,
            Assignment.decision.in_(KEPT),
            Worker.excluded_at.is_(None),
            ComparisonRow.role == ComparisonRole.ASKED,
            PreferenceAnswer.answer.is_not(None),
        )
        .order_by(Assignment.submitted_at, Assignment.id, ComparisonRow.place)
    )
    if batch is not None:
        query = query.where(Batch.name == batch)
    return [
        Vote(worker, record_of(row), Preference(str(answer)))
        for worker, answer, row in session.execute(query)
    ]
