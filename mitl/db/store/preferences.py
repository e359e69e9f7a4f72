"""What people preferred: submissions that wait to be read, answers as given, and those that count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from mitl.db.models import Assignment, Batch, Comparison, Hit, PreferenceAnswer, Worker
from mitl.db.store import parses
from mitl.db.store.bulk import add_rows, chunks
from mitl.db.store.comparisons import KEPT, record_of
from mitl.db.store.parses import RawSubmission, add_all_findings, unread
from mitl.records import (
    BatchKind,
    ComparisonAnswer,
    ComparisonRole,
    Environment,
    ParsedComparisons,
    Preference,
    Vote,
)


def unparsed(
    session: Session, environment: Environment, ids: Sequence[int] | None = None
) -> dict[int, RawSubmission]:
    """Submissions of pages of rankings that have no parse, by id; all of them, or those among ``ids``."""
    return unread(session, environment, BatchKind.RANKINGS, PreferenceAnswer, ids)


def ids(session: Session, environment: Environment) -> list[int]:
    """The submissions of pages of rankings, in order of their rows."""
    return parses.ids(session, environment, kind=BatchKind.RANKINGS)


def places(session: Session, hit_ids: Sequence[int]) -> dict[int, tuple[int, list[int]]]:
    """HIT → its batch and the places that its page has; nothing for a HIT that asks pairs."""
    query = select(Hit.batch_id, Comparison.hit_id, Comparison.place).join(Hit, Hit.id == Comparison.hit_id)
    found: dict[int, tuple[int, list[int]]] = {}
    for chunk in chunks(hit_ids):
        rows = session.execute(query.where(Comparison.hit_id.in_(chunk)).order_by(Comparison.place))
        for batch_id, hit_id, place in rows:
            found.setdefault(hit_id, (batch_id, []))[1].append(place)
    return found


def set_parses(session: Session, given: Mapping[int, ParsedComparisons]) -> None:
    """Write what was parsed from these submissions, in place of an earlier parse."""
    for chunk in chunks(list(given)):
        session.execute(delete(PreferenceAnswer).where(PreferenceAnswer.assignment_id.in_(chunk)))
    add_rows(
        session,
        PreferenceAnswer,
        (
            {
                "assignment_id": id_,
                "place": answer.place,
                "outcome": answer.outcome,
                "answer": answer.answer,
                "text": answer.text or None,
                "active_ms": answer.active_ms,
            }
            for id_, parsed in given.items()
            for answer in parsed.answers
        ),
    )
    add_all_findings(session, {id_: parsed.findings for id_, parsed in given.items()})


def answers(session: Session, assignment_ids: Sequence[int]) -> dict[int, list[ComparisonAnswer]]:
    """What these submissions say, by place."""
    found: dict[int, list[ComparisonAnswer]] = defaultdict(list)
    query = select(PreferenceAnswer).order_by(PreferenceAnswer.assignment_id, PreferenceAnswer.place)
    for chunk in chunks(assignment_ids):
        for row in session.scalars(query.where(PreferenceAnswer.assignment_id.in_(chunk))):
            answer = ComparisonAnswer(row.place, row.outcome, row.answer, row.text or "", row.active_ms)
            found[row.assignment_id].append(answer)
    return found


def controls(
    session: Session, assignment_ids: Sequence[int]
) -> dict[int, list[tuple[int, Preference, Preference | None]]]:
    """Submission → place, right answer and given answer of each control on its page; None where none was given."""
    query = (
        select(Assignment.id, Comparison.place, Comparison.expected, PreferenceAnswer.answer)
        .join(Comparison, Comparison.hit_id == Assignment.hit_id)
        .outerjoin(
            PreferenceAnswer,
            (PreferenceAnswer.assignment_id == Assignment.id) & (PreferenceAnswer.place == Comparison.place),
        )
        .where(Comparison.role == ComparisonRole.CONTROL)
        .order_by(Assignment.id, Comparison.place)
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
        select(Worker.mturk_worker_id, PreferenceAnswer.answer, Comparison)
        .join(Assignment, Assignment.id == PreferenceAnswer.assignment_id)
        .join(Worker, Worker.id == Assignment.worker_id)
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .join(Comparison, (Comparison.hit_id == Hit.id) & (Comparison.place == PreferenceAnswer.place))
        .where(
            Batch.environment == environment,
            Assignment.decision.in_(KEPT),
            Worker.excluded_at.is_(None),
            Comparison.role == ComparisonRole.ASKED,
            PreferenceAnswer.answer.is_not(None),
        )
        .order_by(Assignment.submitted_at, Assignment.id, Comparison.place)
    )
    if batch is not None:
        query = query.where(Batch.name == batch)
    return [
        Vote(worker, record_of(row), Preference(str(answer)))
        for worker, answer, row in session.execute(query)
    ]
