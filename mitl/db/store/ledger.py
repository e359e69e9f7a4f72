"""What was paid for which work, read from the ledger and the answers; written by `mitl.db.store.journal`."""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from mitl.db.models import Assignment, Batch, Hit, Journal, Judgement, Ledger, PreferenceAnswer, Worker
from mitl.db.store.answers import submission_key
from mitl.records import Environment, JournalState, JudgementSource

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


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A journalled call that was not made, or of which nobody knows whether it was."""

    key: str
    state: JournalState
    token: str | None
    request: Mapping[str, Any]


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


def settled_work(session: Session, environment: Environment) -> list[SettledWork]:
    """All submissions on HITs that were posted from here, in order of arrival; past work from files is left out."""
    booked = _booked(session, environment)
    query = (
        # A page asks pairs or rankings, so one of the two has no rows.
        select(*_WORK, func.coalesce(func.sum(Judgement.active_ms), func.sum(PreferenceAnswer.active_ms)))
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .join(Worker, Worker.id == Assignment.worker_id)
        .outerjoin(Judgement, Judgement.assignment_id == Assignment.id)
        .outerjoin(PreferenceAnswer, PreferenceAnswer.assignment_id == Assignment.id)
        .where(
            Batch.environment == environment,
            Batch.source == JudgementSource.CROWD,
            Hit.mturk_hit_id.is_not(None),
        )
        .group_by(*_WORK)
        .order_by(Assignment.submitted_at, Assignment.id)
    )
    found = []
    for row in session.execute(query):
        values: list[Any] = list(row[:-1])
        active_ms, money = row[-1], booked.get(row[0], {})
        # A sum of nothing is null, and PostgreSQL's sums are decimals; 0 ms is not a measurement either.
        values.append(int(active_ms) if active_ms else None)
        extra = money.get(COMPENSATE, 0)
        values += [money.get("reward", 0), money.get("fee", 0), money.get(BONUS, 0) + extra, extra]
        found.append(SettledWork(*values))
    return found


def _booked(session: Session, environment: Environment) -> dict[int, dict[str, int]]:
    """Submission → kind → cents, compensation as a kind of its own."""
    kind = case(
        (Ledger.key.startswith(f"bonus:{COMPENSATE}:", autoescape=True), COMPENSATE), else_=Ledger.kind
    )
    query = (
        select(Ledger.assignment_id, kind, func.sum(Ledger.cents))
        .join(Assignment, Assignment.id == Ledger.assignment_id)
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .where(Batch.environment == environment)
        .group_by(Ledger.assignment_id, kind)
    )
    found: dict[int, dict[str, int]] = defaultdict(dict)
    for assignment_id, what, cents in session.execute(query):
        found[assignment_id][what] = int(cents)
    return found


def bonuses(session: Session, environment: Environment) -> dict[int, list[int]]:
    """Submission → the cents of each bonus that was booked for it, rising."""
    query = (
        select(Ledger.assignment_id, Ledger.cents)
        .join(Assignment, Assignment.id == Ledger.assignment_id)
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .where(Batch.environment == environment, Ledger.kind == BONUS)
        .order_by(Ledger.cents)
    )
    found: dict[int, list[int]] = defaultdict(list)
    for assignment_id, cents in session.execute(query):
        found[assignment_id].append(cents)
    return found


def planned_calls(session: Session, kind: str) -> list[PlannedCall]:
    """The calls of a kind that are not done, in the order in which they were planned."""
    query = (
        select(Journal.key, Journal.state, Journal.token, Journal.request)
        .where(Journal.kind == kind, Journal.state != JournalState.DONE)
        .order_by(Journal.id)
    )
    return [
        PlannedCall(key, state, token, json.loads(request))
        for key, state, token, request in session.execute(query)
    ]


def last_numbers(session: Session, kind: str, prefix: str) -> dict[str, int]:
    """Key without its number → the highest number that was planned; of keys ``<prefix>…:<number>``."""
    found: dict[str, int] = {}
    query = select(Journal.key).where(Journal.kind == kind, Journal.key.startswith(prefix, autoescape=True))
    for key in session.scalars(query):
        stem, _, number = key.rpartition(":")
        found[stem] = max(int(number), found.get(stem, 0))
    return found
