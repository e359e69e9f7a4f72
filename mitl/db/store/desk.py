"""What the review desk reads: counts that tell whether anything changed, work by worker and hour, calls to be made."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import and_, case, func, select
from sqlalchemy.orm import Session

from mitl.core.arrays import distinct
from mitl.db.base import microseconds
from mitl.db.models import (
    Assignment,
    Batch,
    Hit,
    ItemRow,
    Journal,
    JudgementRow,
    Ledger,
    PartRow,
    Rationale,
    SideRow,
    Worker,
)
from mitl.db.store.answers import submission_key
from mitl.db.store.items import LEFT, RIGHT
from mitl.db.store.journal import open_calls
from mitl.db.store.ledger import answer_tables
from mitl.db.store.statements import number_columns, query_by_worker
from mitl.judgements.gold_records import GoldRecord, keeps_page
from mitl.records import BatchKind, Decision, Environment, PartKind
from mitl.records.questions import PLAYED

_DECIDED = (Decision.PASS, Decision.APPROVE, Decision.APPROVE_EXCLUDE, Decision.DROP, Decision.REJECT)


@dataclass(frozen=True, slots=True)
class Pulse:
    """A few counts of an environment; where two pulses are equal, its pages say the same."""

    decisions: tuple[tuple[Decision, str, int], ...]
    """Decision, status on the server, submissions."""
    newest: int
    """Row of the latest submission; 0 where there is none."""
    excluded: int
    """Workers."""
    booked_cents: int
    messages: int
    latest_answer: int
    """Rows of the latest answers of every kind, added up; reading the raw documents again moves them."""

    def count(self, decision: Decision) -> int:
        """Submissions of this decision."""
        return sum(n for counted, _, n in self.decisions if counted is decision)


@dataclass(frozen=True, slots=True)
class WorkerSubmissions:
    """How one worker's submissions stand."""

    worker_id: int
    worker: str
    """The worker's id on the requester API."""
    excluded: bool
    decisions: Counter[Decision]
    elsewhere: int
    """Pages passed by rule that asked something else than pairs: the record on pairs' controls says nothing of them."""

    def used(self, record: GoldRecord) -> int:
        """The submissions whose answers are kept, given the worker's record on the controls of pairs."""
        kept = (
            count
            for decision, count in self.decisions.items()
            if keeps_page(decision, record, excluded=self.excluded)
        )
        return sum(kept) + self.elsewhere * (record.is_bad and not self.excluded)


@dataclass(frozen=True, slots=True)
class SubmissionGroup:
    """One worker's submissions of one decision and one status."""

    worker_id: int
    worker: str
    """The worker's id on the requester API."""
    excluded: bool
    decision: Decision
    status: str
    """On the server."""
    submissions: int
    first: dt.datetime | None
    """When the earliest of them came."""
    last: dt.datetime | None


def submission_groups(session: Session, environment: Environment) -> list[SubmissionGroup]:
    """All submissions, each worker's of one decision and status together; one look at an index, no document is read."""
    people = select(Worker.id, Worker.mturk_worker_id, Worker.excluded_at).where(
        Worker.environment == environment
    )
    names = {row: (name, excluded is not None) for row, name, excluded in session.execute(people)}
    by = (Assignment.worker_id, Assignment.decision, Assignment.status)
    came = func.min(Assignment.submitted_at), func.max(Assignment.submitted_at)
    query = select(*by, func.count(), *came).group_by(*by).order_by(*by)
    return [
        SubmissionGroup(worker, *names[worker], decision, status, count, first, last)
        for worker, decision, status, count, first, last in session.execute(query)
        if worker in names
    ]


def pulse(session: Session, environment: Environment, groups: Sequence[SubmissionGroup]) -> Pulse:
    """The counts now."""
    decisions: Counter[tuple[Decision, str]] = Counter()
    for group in groups:
        decisions[group.decision, group.status] += group.submissions
    excluded = session.scalar(
        select(func.count())
        .select_from(Worker)
        .where(Worker.environment == environment, Worker.excluded_at.is_not(None))
    )
    return Pulse(
        decisions=tuple((*which, count) for which, count in sorted(decisions.items())),
        newest=session.scalar(select(func.max(Assignment.id))) or 0,
        excluded=excluded or 0,
        booked_cents=int(session.scalar(select(func.sum(Ledger.cents))) or 0),
        messages=session.scalar(select(func.count()).where(Journal.kind == "message")) or 0,
        latest_answer=sum(session.scalar(select(func.max(table.c.id))) or 0 for table in answer_tables()),
    )


def unsent(
    session: Session, environment: Environment, groups: Sequence[SubmissionGroup] | None = None
) -> int:
    """Submissions about which something was decided that the server has not heard of.

    Args:
        groups: those of this environment, where they are at hand.
    """
    groups = submission_groups(session, environment) if groups is None else groups
    waiting = sum(
        group.submissions
        for group in groups
        if (group.status == "Submitted" and group.decision in _DECIDED)
        or (group.decision is Decision.APPROVE_EXCLUDE and not group.excluded)
    )
    return waiting + _unsent_reversals(session, environment)


def _unsent_reversals(session: Session, environment: Environment) -> int:
    """Rejections that are to be paid after all, as the server does not know yet."""
    planned = {call.key for call in open_calls(session, "override")}
    if not planned:
        return 0
    query = query_by_worker(environment, Assignment.mturk_assignment_id, Worker.mturk_worker_id).where(
        Assignment.status == "Rejected",
        Assignment.decision.in_(_DECIDED),
        Assignment.decision != Decision.REJECT,
    )
    return sum(submission_key(name, worker) in planned for name, worker in session.execute(query))


def worker_names(session: Session, environment: Environment) -> dict[int, str]:
    """Worker's row → id on the requester API."""
    query = select(Worker.id, Worker.mturk_worker_id).where(Worker.environment == environment)
    return dict(session.execute(query).all())


def worker_submissions(session: Session, groups: Iterable[SubmissionGroup]) -> list[WorkerSubmissions]:
    """Everyone with a submission, by id on the requester API."""
    passed = (
        select(Assignment.worker_id, func.count())
        .join(Hit, Assignment.hit_id == Hit.id)
        .join(Batch, Hit.batch_id == Batch.id)
        .where(Batch.kind != BatchKind.PAIRS, Assignment.decision == Decision.PASS)
        .group_by(Assignment.worker_id)
    )
    elsewhere = dict(session.execute(passed).all())
    by_worker: dict[int, WorkerSubmissions] = {}
    for group in groups:
        row = group.worker_id
        work = by_worker.setdefault(
            row, WorkerSubmissions(row, group.worker, group.excluded, Counter(), elsewhere.get(row, 0))
        )
        work.decisions[group.decision] += group.submissions
    return sorted(by_worker.values(), key=lambda work: work.worker)


def queued_cents(session: Session, environment: Environment) -> int:
    """Rewards that the queue decides about."""
    cents = session.scalar(
        select(func.sum(Batch.reward_cents))
        .join(Hit, Hit.batch_id == Batch.id)
        .join(Assignment, Assignment.hit_id == Hit.id)
        .where(Batch.environment == environment, Assignment.decision == Decision.QUEUED)
    )
    return int(cents or 0)


_HOUR_US = 3_600_000_000


def hourly_submissions(
    session: Session, environment: Environment, since: dt.datetime, now: dt.datetime
) -> tuple[Counter[int], int]:
    """Hours since a time → submissions that came in this hour, until now; and those within the hour before now."""
    first, last = microseconds(since), microseconds(now)
    # A cross join keeps SQLite from looking through all submissions, worker by worker.
    query = f"""
        SELECT (a.submitted_at - {first}) / {_HOUR_US},
            CASE WHEN a.submitted_at > {last - _HOUR_US} THEN 1 ELSE 0 END, count(*)
        FROM assignment a CROSS JOIN worker w
        WHERE a.submitted_at BETWEEN {first} AND {last} AND w.id = a.worker_id
            AND w.environment = '{environment.value}'
        GROUP BY 1, 2"""
    by_hour: Counter[int] = Counter()
    recent = 0
    for hour, is_recent, submissions in number_columns(session, query, 3).T.tolist():
        by_hour[hour] += submissions
        recent += is_recent * submissions
    return by_hour, recent


def paid(session: Session, environment: Environment) -> dict[int, int]:
    """Worker's row → cents booked as rewards and bonuses.

    Submissions and money are joined here: SQLite would look up each document's row, PostgreSQL hash all three tables.
    """
    work = f"""
        SELECT a.id, a.worker_id FROM assignment a JOIN worker w ON w.id = a.worker_id
        WHERE w.environment = '{environment.value}'"""
    id_, worker = number_columns(session, work, 2)
    of, cents = number_columns(session, "SELECT assignment_id, cents FROM ledger WHERE kind <> 'fee'", 2)
    worker_of = np.zeros(max(id_.max(initial=0), of.max(initial=0)) + 1, np.int64)
    worker_of[id_] = worker
    sums = np.bincount(worker_of[of], cents)  # of whole numbers below 2^53, so floats add them exactly
    return {row: int(sums[row]) for row in distinct(worker_of[of]).tolist() if row}


def image_addresses(session: Session, image_ids: Sequence[int]) -> dict[int, tuple[str | None, str | None]]:
    """Image → file and address; a document has neither."""
    query = (
        select(PartRow.item_id, PartRow.file, PartRow.url)
        .join(SideRow, SideRow.id == PartRow.side_id)
        .where(SideRow.name.in_(LEFT), PartRow.item_id.in_(list(image_ids)), PartRow.place == 1)
    )
    return {id_: (file, url) for id_, file, url in session.execute(query)}


def document_texts(session: Session, image_ids: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Document → title, if it has one, and text; nothing of images."""
    query = (
        select(PartRow.item_id, PartRow.text)
        .join(SideRow, SideRow.id == PartRow.side_id)
        .where(SideRow.name.in_(LEFT), PartRow.kind == PartKind.TEXT, PartRow.item_id.in_(list(image_ids)))
        .order_by(PartRow.item_id, PartRow.place)
    )
    texts: dict[int, tuple[str, ...]] = {}
    for id_, text in session.execute(query):
        texts[id_] = (*texts.get(id_, ()), text or "")
    return texts


def caption_texts(session: Session, caption_ids: Sequence[int]) -> dict[int, tuple[str, int]]:
    """Caption → its text and the image that it was written for."""
    query = (
        select(ItemRow.id, PartRow.text, ItemRow.group_id)
        .join(SideRow, SideRow.id == ItemRow.side_id)
        .join(
            PartRow,
            and_(PartRow.side_id == ItemRow.side_id, PartRow.item_id == ItemRow.id, PartRow.place == 1),
        )
        .where(SideRow.name.in_(RIGHT), ItemRow.id.in_(list(caption_ids)))
    )
    return {id_: (text or "", image) for id_, text, image in session.execute(query) if image is not None}


def played(session: Session, environment: Environment) -> dict[str, tuple[int, int]]:
    """Worker → answers whose sound or video was played at least in part, and all answers."""
    heard = select(Rationale.judgement_id).where(
        Rationale.kind == PLAYED.name, Rationale.value != PLAYED.values[0]
    )
    query = (
        select(Worker.mturk_worker_id, func.sum(case((JudgementRow.id.in_(heard), 1), else_=0)), func.count())
        .join(Assignment, Assignment.worker_id == Worker.id)
        .join(JudgementRow, JudgementRow.assignment_id == Assignment.id)
        .where(Worker.environment == environment, JudgementRow.label.is_not(None))
        .group_by(Worker.mturk_worker_id)
    )
    return {worker: (int(some), total) for worker, some, total in session.execute(query)}
