"""What the operator sees besides progress: money, who is owed what, invitations, late answers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, fields

from sqlalchemy import Connection, func, select

from mitl.crowd_server.models import (
    Assignment,
    AssignmentState,
    Bonus,
    Hit,
    HitType,
    Invitation,
    LateAnswer,
    LedgerEntry,
    LedgerKind,
    Panel,
    PanelIdentity,
    Worker,
)
from mitl.crowd_server.store.rows import Wide
from mitl.crowd_server.store.workers import InvitationRow
from mitl.records import Environment

LEDGER_PORTION = 5000

_INVITATION: Wide = select(*(getattr(Invitation, one.name) for one in fields(InvitationRow)))
_GIVEN = Invitation.id.not_in(select(Panel.invitation_id))
"""A panel's workers belong to an invitation of its own, which nobody was given."""
_PANEL_ID = (
    select(PanelIdentity.external_id)
    .where(PanelIdentity.worker_id == Worker.id)
    .limit(1)
    .correlate(Worker)
    .scalar_subquery()
)


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


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One movement of money, with the ids that requesters know."""

    id: int
    at: dt.datetime
    kind: LedgerKind
    cents: int
    hit: str | None
    assignment: str | None
    worker: str | None


@dataclass(frozen=True, slots=True)
class LateRow:
    """An answer that came after its assignment's time."""

    environment: Environment
    worker: str
    external_id: str | None
    """What the worker's panel calls them."""
    hit: str
    assignment: str
    title: str
    reward_cents: int
    accepted_at: dt.datetime
    received_at: dt.datetime
    id: int
    """Of the answer."""
    hit_id: int


def ledger_sums(connection: Connection) -> dict[tuple[Environment, LedgerKind], int]:
    """Cents moved, by environment and kind; reads the whole ledger."""
    rows = connection.execute(
        select(LedgerEntry.environment, LedgerEntry.kind, func.sum(LedgerEntry.cents)).group_by(
            LedgerEntry.environment, LedgerEntry.kind
        )
    )
    return {(environment, kind): int(cents) for environment, kind, cents in rows}


def bonus_sums(connection: Connection) -> dict[Environment, int]:
    """Cents of bonuses by environment."""
    rows = connection.execute(select(Bonus.environment, func.sum(Bonus.cents)).group_by(Bonus.environment))
    return {environment: int(cents) for environment, cents in rows}


def ledger(connection: Connection, environment: Environment, *, after: int) -> list[LedgerRow]:
    """The next portion of an environment's ledger, oldest first, from the row after id ``after``."""
    rows = connection.execute(
        select(
            LedgerEntry.id,
            LedgerEntry.at,
            LedgerEntry.kind,
            LedgerEntry.cents,
            Hit.mturk_id,
            Assignment.mturk_id,
            Worker.mturk_id,
        )
        .outerjoin(Hit, Hit.id == LedgerEntry.hit_id)
        .outerjoin(Assignment, Assignment.id == LedgerEntry.assignment_id)
        .outerjoin(Worker, Worker.id == Assignment.worker_id)
        .where(LedgerEntry.environment == environment, LedgerEntry.id > after)
        .order_by(LedgerEntry.id)
        .limit(LEDGER_PORTION)
    )
    return [LedgerRow(*row) for row in rows]


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


def invitations(connection: Connection, *, limit: int) -> tuple[list[InvitationRow], int]:
    """The newest invitations that somebody was given, and how many there are."""
    rows = connection.execute(_INVITATION.where(_GIVEN).order_by(Invitation.id.desc()).limit(limit))
    count = connection.execute(select(func.count()).select_from(Invitation).where(_GIVEN)).scalar_one()
    return [InvitationRow(*row) for row in rows], count


def find_invitation(connection: Connection, invitation_id: int) -> InvitationRow | None:
    """An invitation by its number, unless it is a panel's own."""
    row = connection.execute(_INVITATION.where(Invitation.id == invitation_id, _GIVEN)).one_or_none()
    return None if row is None else InvitationRow(*row)


def count_late(connection: Connection) -> int:
    """Late answers of both environments."""
    return connection.execute(select(func.count()).select_from(LateAnswer)).scalar_one()


_LATE: Wide = (
    select(
        Assignment.environment,
        Worker.mturk_id,
        _PANEL_ID,
        Hit.mturk_id,
        Assignment.mturk_id,
        HitType.title,
        HitType.reward_cents,
        Assignment.accepted_at,
        LateAnswer.received_at,
        LateAnswer.id,
        Assignment.hit_id,
    )
    .join(Assignment, Assignment.id == LateAnswer.assignment_id)
    .join(Worker, Worker.id == Assignment.worker_id)
    .join(Hit, Hit.id == Assignment.hit_id)
    .join(HitType, HitType.id == Hit.hit_type_id)
)


def late_answers(connection: Connection) -> Iterator[LateRow]:
    """Late answers of both environments, newest first."""
    return (LateRow(*row) for row in connection.execute(_LATE.order_by(LateAnswer.id.desc())))


def late_answer(connection: Connection, own_id: int) -> tuple[LateRow, str] | None:
    """One late answer with its QuestionFormAnswers XML."""
    row = connection.execute(
        _LATE.add_columns(LateAnswer.answer).where(LateAnswer.id == own_id)
    ).one_or_none()
    return None if row is None else (LateRow(*row[:-1]), row[-1])
