"""What was paid for which work, read from the ledger and the answers; written by `mitl.db.store.journal`."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Table, case, func, select
from sqlalchemy.orm import Session

from mitl.db.models import Assignment, Base, Batch, Hit, Ledger, Worker
from mitl.db.store import journal
from mitl.db.store.answers import submission_key
from mitl.db.store.statements import ARRIVAL, query_submissions, rows_among
from mitl.records import Environment, JudgementSource

BONUS = "bonus"
"""The journal's kind of bonuses, and the ledger's."""
COMPENSATE = "compensate"
"""How the keys of bonuses begin that pay for something else than the submitted work."""


@dataclass(frozen=True, slots=True)
class SettledWork:
    """One submission that was posted from here, with what was booked for it and the time that its page measured."""

    id: int
    mturk_assignment_id: str
    mturk_hit_id: str
    worker: str
    batch: str
    template: str
    accepted_at: dt.datetime | None
    submitted_at: dt.datetime | None
    status: str
    """As the API says: Submitted, Approved, Rejected."""
    active_ms: int | None
    """Over all places; None where the page measured nothing."""
    reward_cents: int
    fee_cents: int
    bonus_cents: int
    compensation_cents: int
    """The part of the bonuses that pays for something else than this work."""

    @property
    def key(self) -> str:
        """Names the submission in the journal and the ledger."""
        return submission_key(self.mturk_assignment_id, self.worker)


_WORK = (
    Assignment.id,
    Assignment.mturk_assignment_id,
    Hit.mturk_hit_id,
    Worker.mturk_worker_id,
    Batch.name,
    Batch.template,
    Assignment.accepted_at,
    Assignment.submitted_at,
    Assignment.status,
)


def answer_tables() -> list[Table]:
    """Where answers are kept, whatever a page asks: every table with the time that was spent on each place."""
    return [
        table
        for table in Base.metadata.sorted_tables
        if {"assignment_id", "active_ms"} <= set(table.columns.keys())
    ]


def _active_times(session: Session, environment: Environment) -> dict[int, int]:
    """Submission → active milliseconds over all its places; one whose page measured nothing is left out."""
    times: dict[int, int] = {}
    for answers in answer_tables():
        query = (
            query_submissions(environment, answers.c.assignment_id, func.sum(answers.c.active_ms))
            .join(answers, answers.c.assignment_id == Assignment.id)
            .where(
                Batch.source == JudgementSource.CROWD,
                answers.c.active_ms > 0,  # 0 ms is not a measurement
            )
            .group_by(answers.c.assignment_id)
        )
        # PostgreSQL's sums are decimals.
        times |= {id_: int(active_ms) for id_, active_ms in session.execute(query)}
    return times


def active_ms(session: Session, assignment_id: int) -> int | None:
    """Active milliseconds over all places of a submission; None where its page measured nothing."""
    sums = (
        session.scalar(select(func.sum(answers.c.active_ms)).where(answers.c.assignment_id == assignment_id))
        for answers in answer_tables()
    )
    return int(sum(measured or 0 for measured in sums)) or None


def settled_work(session: Session, environment: Environment) -> list[SettledWork]:
    """All submissions on HITs that were posted from here, in order of arrival; past work from files is left out."""
    booked, times = _booked(session, environment), _active_times(session, environment)
    query = (
        query_submissions(environment, *_WORK)
        .join(Worker, Worker.id == Assignment.worker_id)
        .where(Batch.source == JudgementSource.CROWD, Hit.mturk_hit_id.is_not(None))
        .order_by(*ARRIVAL)
    )
    work = []
    for row in session.execute(query):
        values: list[Any] = [*row, times.get(row[0])]
        money = booked.get(row[0], {})
        extra = money.get(COMPENSATE, 0)
        values += [money.get("reward", 0), money.get("fee", 0), money.get(BONUS, 0) + extra, extra]
        work.append(SettledWork(*values))
    return work


def _booked(session: Session, environment: Environment) -> dict[int, dict[str, int]]:
    """Submission → kind → cents, compensation as a kind of its own."""
    kind = case(
        (Ledger.key.startswith(f"bonus:{COMPENSATE}:", autoescape=True), COMPENSATE), else_=Ledger.kind
    )
    query = (
        query_submissions(environment, Ledger.assignment_id, kind, func.sum(Ledger.cents))
        .join(Ledger, Ledger.assignment_id == Assignment.id)
        .group_by(Ledger.assignment_id, kind)
    )
    by_assignment: dict[int, dict[str, int]] = defaultdict(dict)
    for assignment_id, what, cents in session.execute(query):
        by_assignment[assignment_id][what] = int(cents)
    return by_assignment


def bonuses(session: Session, environment: Environment) -> dict[int, list[int]]:
    """Submission → the cents of each bonus that was booked for it, rising."""
    query = (
        query_submissions(environment, Ledger.assignment_id, Ledger.cents)
        .join(Ledger, Ledger.assignment_id == Assignment.id)
        .where(Ledger.kind == BONUS)
        .order_by(Ledger.cents)
    )
    by_assignment: dict[int, list[int]] = defaultdict(list)
    for assignment_id, cents in session.execute(query):
        by_assignment[assignment_id].append(cents)
    return by_assignment


def booked_on(session: Session, keys: Iterable[str]) -> dict[str, int]:
    """Those of these bookings that were made → the submission that each is on."""
    return dict(rows_among(session, select(Ledger.key, Ledger.assignment_id), Ledger.key, keys))


def last_numbers(session: Session, kind: str, prefix: str) -> dict[str, int]:
    """Key without its number → the highest number that was planned; of keys ``<prefix>…:<number>``."""
    highest: dict[str, int] = {}
    for row in journal.starting_with(session, kind, prefix):
        stem, _, number = row.key.rpartition(":")
        highest[stem] = max(int(number), highest.get(stem, 0))
    return highest
