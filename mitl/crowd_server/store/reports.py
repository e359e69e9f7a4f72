"""What the operator sees: progress, money, who is owed what."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import Connection, and_, case, func, select

from mitl.crowd_server.models import (
    Assignment,
    AssignmentState,
    Bonus,
    Hit,
    HitType,
    LedgerEntry,
    LedgerKind,
    Worker,
)
from mitl.records import Environment


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """How far one HIT type is; numbers of assignments, except ``hits``."""

    environment: Environment
    title: str
    reward_cents: int
    hits: int
    wanted: int
    working: int
    waiting: int
    approved: int
    rejected: int


@dataclass(frozen=True, slots=True)
class Payment:
    """What is owed to one worker."""

    environment: Environment
    worker: str
    approved: int
    reward_cents: int
    bonus_cents: int

    @property
    def total_cents(self) -> int:
        """Rewards and bonuses."""
        return self.reward_cents + self.bonus_cents


def progress(connection: Connection, now: dt.datetime) -> list[ProgressRow]:
    """One row per HIT type, newest first."""
    asked = {
        type_id: (count, wanted)
        for type_id, count, wanted in connection.execute(
            select(Hit.hit_type_id, func.count(), func.sum(Hit.max_assignments)).group_by(Hit.hit_type_id)
        )
    }
    live = and_(Assignment.state == AssignmentState.ACCEPTED, Assignment.deadline_at > now)
    counts = (
        func.count(case((live, 1))),
        *(
            func.count(case((Assignment.state == state, 1)))
            for state in (AssignmentState.SUBMITTED, AssignmentState.APPROVED, AssignmentState.REJECTED)
        ),
    )
    rows = connection.execute(
        select(HitType.id, HitType.environment, HitType.title, HitType.reward_cents, *counts)
        .outerjoin(Hit, Hit.hit_type_id == HitType.id)
        .outerjoin(Assignment, Assignment.hit_id == Hit.id)
        .group_by(HitType.id, HitType.environment, HitType.title, HitType.reward_cents)
        .order_by(HitType.id.desc())
    )
    return [
        ProgressRow(environment, title, cents, *asked.get(type_id, (0, 0)), *found)
        for type_id, environment, title, cents, *found in rows
    ]


def ledger_sums(connection: Connection) -> dict[tuple[Environment, LedgerKind], int]:
    """Cents moved, by environment and kind."""
    rows = connection.execute(
        select(LedgerEntry.environment, LedgerEntry.kind, func.sum(LedgerEntry.cents)).group_by(
            LedgerEntry.environment, LedgerEntry.kind
        )
    )
    return {(environment, kind): int(cents) for environment, kind, cents in rows}


def payments(connection: Connection, environment: Environment) -> list[Payment]:
    """What each worker with approved work or a bonus is owed, by worker id."""
    rewards = {
        worker_id: (count, int(cents))
        for worker_id, count, cents in connection.execute(
            select(Assignment.worker_id, func.count(), func.sum(HitType.reward_cents))
            .join(Hit, Hit.id == Assignment.hit_id)
            .join(HitType, HitType.id == Hit.hit_type_id)
            .where(Assignment.environment == environment, Assignment.state == AssignmentState.APPROVED)
            .group_by(Assignment.worker_id)
        )
    }
    bonuses = {
        worker_id: int(cents)
        for worker_id, cents in connection.execute(
            select(Assignment.worker_id, func.sum(Bonus.cents))
            .join(Assignment, Assignment.id == Bonus.assignment_id)
            .where(Bonus.environment == environment)
            .group_by(Assignment.worker_id)
        )
    }
    workers = connection.execute(
        select(Worker.id, Worker.mturk_id).where(Worker.environment == environment).order_by(Worker.mturk_id)
    )
    return [
        Payment(environment, mturk_id, *rewards.get(own, (0, 0)), bonuses.get(own, 0))
        for own, mturk_id in workers
        if own in rewards or own in bonuses
    ]
