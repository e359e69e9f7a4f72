"""Judgements as stored, with where they stand and whether they count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, false, select, update
from sqlalchemy.orm import Session

from mitl.db.models import Assignment, Batch, Hit, HitItemRow, JudgementRow, PairRow, Rationale, Worker
from mitl.db.store.statements import AT_PLACE, Wide, change_among, chunks, query_submissions
from mitl.records import Environment, Judgement, Label, Outcome, Pair, PairRole
from mitl.records.questions import TEXT, Given

_GOLD_ROLES = [role for role in PairRole if role.is_gold]
_ASKED_ROLES = [role for role in PairRole if role.is_asked]
_MATCHES = [label for label in Label if label.is_positive]


@dataclass(frozen=True, slots=True)
class StoredJudgement:
    """A judgement with where it stands."""

    id: int
    assignment_id: int
    hit_id: int
    worker_id: int
    place: int
    record: Judgement


def judgements(session: Session, environment: Environment) -> list[StoredJudgement]:
    """Every judgement of an environment, by submission and place, with its role and rationale but for own words."""
    here = Batch.environment == environment
    return _judgements(session, here, given=_rationale(session, here, Rationale.kind != TEXT.name))


def judged_matches(session: Session, environment: Environment) -> set[Pair]:
    """The pairs that anybody called a match where they were asked, whether that counts or not."""
    query = (
        query_submissions(environment, PairRow.left_id, PairRow.right_id)
        .join(JudgementRow, JudgementRow.assignment_id == Assignment.id)
        .join(PairRow, PairRow.id == JudgementRow.pair_id)
        .join(HitItemRow, AT_PLACE)
        .where(JudgementRow.label.in_(_MATCHES), HitItemRow.role.in_(_ASKED_ROLES))
        .distinct()
    )
    return {Pair(*row) for row in session.execute(query)}


def gold_judgements(session: Session, submissions: Sequence[int]) -> list[StoredJudgement]:
    """The judgements of these submissions on controls, without rationale."""
    return [
        judgement
        for chunk in chunks(sorted(submissions))
        for judgement in _judgements(session, Assignment.id.in_(chunk), HitItemRow.role.in_(_GOLD_ROLES))
    ]


def judgements_of(session: Session, assignment_id: int) -> list[StoredJudgement]:
    """Those of one submission by place, with all that was answered besides the label."""
    here = JudgementRow.assignment_id == assignment_id
    return _judgements(session, here, given=_rationale(session, here))


def judgements_beside(
    session: Session, environment: Environment, assignment_id: int
) -> list[StoredJudgement]:
    """What other submissions say about the pairs of this one, without rationale."""
    pairs = select(JudgementRow.pair_id).where(JudgementRow.assignment_id == assignment_id)
    elsewhere = JudgementRow.pair_id.in_(pairs), JudgementRow.assignment_id != assignment_id
    return _judgements(session, Batch.environment == environment, *elsewhere)


def judgements_of_worker(session: Session, worker_id: int) -> list[StoredJudgement]:
    """Those of one worker by submission and place, without rationale."""
    return _judgements(session, Assignment.worker_id == worker_id)


def _judgements(
    session: Session, *conditions: ColumnElement[bool], given: Mapping[int, Given] | None = None
) -> list[StoredJudgement]:
    query: Wide = (
        select(
            JudgementRow.id,
            JudgementRow.assignment_id,
            Assignment.hit_id,
            Worker.id,
            JudgementRow.place,
            PairRow.left_id,
            PairRow.right_id,
            Worker.mturk_worker_id,
            JudgementRow.label,
            JudgementRow.outcome,
            HitItemRow.role,
            JudgementRow.usable,
            JudgementRow.active_ms,
            JudgementRow.source,
            Assignment.submitted_at,
        )
        .join(Assignment, Assignment.id == JudgementRow.assignment_id)
        .join(Worker, Worker.id == Assignment.worker_id)
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .join(HitItemRow, AT_PLACE)
        .join(PairRow, PairRow.id == JudgementRow.pair_id)
        .where(*conditions)
        .order_by(JudgementRow.assignment_id, JudgementRow.place)
    )
    said = given or {}
    return [
        StoredJudgement(
            id_,
            of,
            hit,
            worker_id,
            place,
            Judgement(
                Pair(image, caption), worker, label, outcome, role, usable, said.get(id_, {}), *measured
            ),
        )
        for id_, of, hit, worker_id, place, image, caption, worker, label, outcome, role, usable, *measured in (
            session.execute(query)
        )
    ]


def _rationale(session: Session, *conditions: ColumnElement[bool]) -> Mapping[int, Given]:
    """Judgement → what was answered besides the label, in order."""
    query = (
        select(Rationale.judgement_id, Rationale.kind, Rationale.value)
        .join(JudgementRow, JudgementRow.id == Rationale.judgement_id)
        .join(Assignment, Assignment.id == JudgementRow.assignment_id)
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .where(*conditions)
        .order_by(Rationale.id)
    )
    values: dict[int, dict[str, tuple[str, ...]]] = defaultdict(dict)
    for judgement_id, kind, value in session.execute(query):
        of_judgement = values[judgement_id]
        of_judgement[kind] = (*of_judgement.get(kind, ()), value)
    return values


_IS_ANSWERED = and_(JudgementRow.outcome == Outcome.ANSWERED, JudgementRow.label.is_not(None))


def use_answered(session: Session, assignment_ids: Sequence[int], usable: bool) -> None:
    """Whether aggregation may read what was answered on these pages; what was not answered is never read."""
    counts = _IS_ANSWERED if usable else false()
    change_among(
        session, update(JudgementRow).values(usable=counts), JudgementRow.assignment_id, assignment_ids
    )


def set_usable(session: Session, assignment_id: int, places: Sequence[int], usable: bool) -> None:
    """Whether aggregation may read the judgements at these places of a submission."""
    of_page = (JudgementRow.assignment_id == assignment_id) & JudgementRow.place.in_(places)
    session.execute(update(JudgementRow).where(of_page).values(usable=usable))
