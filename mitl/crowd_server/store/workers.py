"""Invitations, workers, what they have earned, and whom a requester keeps from all HITs."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from mitl.crowd_server.protocol.ids import worker_id
from mitl.crowd_server.store.database import columns, every, first, new_id
from mitl.crowd_server.store.models import (
    Assignment,
    AssignmentState,
    Bonus,
    Hit,
    HitType,
    Invitation,
    Worker,
    WorkerBlock,
)
from mitl.records import Environment


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker."""

    id: int
    mturk_id: str
    environment: Environment
    invitation_id: int


@dataclass(frozen=True, slots=True)
class InvitationRow:
    """An invitation without its token, which is known to the invited alone."""

    id: int
    environment: Environment
    label: str
    personal: bool
    max_uses: int | None
    uses: int
    created_at: dt.datetime
    expires_at: dt.datetime
    revoked_at: dt.datetime | None

    def state(self, now: dt.datetime) -> str:
        """open, joined (a personal one that was used), used up, expired or revoked."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at <= now:
            return "expired"
        if self.max_uses is not None and self.uses >= self.max_uses:
            return "joined" if self.personal else "used up"
        return "open"


@dataclass(frozen=True, slots=True)
class Earnings:
    """What became of a worker's work."""

    waiting: int
    approved: int
    rejected: int
    reward_cents: int
    bonus_cents: int

    @property
    def owed_cents(self) -> int:
        """Approved rewards and bonuses."""
        return self.reward_cents + self.bonus_cents


_WORKER = columns(WorkerRow, Worker)
_INVITATION = columns(InvitationRow, Invitation)

_FIND = (
    select(*_WORKER)
    .join(Invitation, Invitation.id == Worker.invitation_id)
    .where(Worker.mturk_id == bindparam("mturk_id"), Invitation.revoked_at.is_(None))
)


def add_invitation(
    connection: Connection,
    environment: Environment,
    *,
    token_sha256: str,
    label: str,
    personal: bool,
    max_uses: int | None,
    expires_at: dt.datetime,
    now: dt.datetime,
) -> int:
    """Keep a new invitation."""
    result = connection.execute(
        insert(Invitation).values(
            environment=environment,
            token_sha256=token_sha256,
            label=label,
            personal=personal,
            max_uses=max_uses,
            uses=0,
            created_at=now,
            expires_at=expires_at,
            revoked_at=None,
        )
    )
    return new_id(result)


def find_invitation(connection: Connection, token_sha256: str) -> InvitationRow | None:
    """The invitation whose token has this hash."""
    wanted = select(*_INVITATION).where(Invitation.token_sha256 == token_sha256)
    return first(connection, InvitationRow, wanted)


def invitation(connection: Connection, invitation_id: int) -> InvitationRow:
    """An invitation by its row."""
    row = connection.execute(select(*_INVITATION).where(Invitation.id == invitation_id)).one()
    return InvitationRow(*row)


def list_invitations(connection: Connection) -> list[InvitationRow]:
    """All invitations, newest first."""
    return every(connection, InvitationRow, select(*_INVITATION).order_by(Invitation.id.desc()))


def revoke_invitation(connection: Connection, invitation_id: int, now: dt.datetime) -> bool:
    """Close an invitation and shut out the workers who came by it; whether it was open."""
    result = connection.execute(
        update(Invitation)
        .where(Invitation.id == invitation_id, Invitation.revoked_at.is_(None))
        .values(revoked_at=now)
    )
    return result.rowcount == 1


def worker_of_invitation(connection: Connection, invitation_id: int) -> WorkerRow | None:
    """The first worker whom an invitation made."""
    wanted = select(*_WORKER).where(Worker.invitation_id == invitation_id).order_by(Worker.id).limit(1)
    return first(connection, WorkerRow, wanted)


def add_worker(connection: Connection, invitation: InvitationRow, now: dt.datetime) -> WorkerRow:
    """A new worker by this invitation, whose use is counted."""
    mturk_id = worker_id()
    result = connection.execute(
        insert(Worker).values(
            environment=invitation.environment,
            mturk_id=mturk_id,
            invitation_id=invitation.id,
            created_at=now,
        )
    )
    connection.execute(
        update(Invitation).where(Invitation.id == invitation.id).values(uses=Invitation.uses + 1)
    )
    own_id = new_id(result)
    return WorkerRow(own_id, mturk_id, invitation.environment, invitation.id)


def find_worker(connection: Connection, mturk_id: str) -> WorkerRow | None:
    """The worker of this id, unless their invitation was revoked."""
    return first(connection, WorkerRow, _FIND, mturk_id=mturk_id)


def earnings(connection: Connection, worker: WorkerRow) -> Earnings:
    """What became of this worker's submissions."""
    rows = connection.execute(
        select(Assignment.state, func.count(), func.coalesce(func.sum(HitType.reward_cents), 0))
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(HitType, HitType.id == Hit.hit_type_id)
        .where(Assignment.worker_id == worker.id)
        .group_by(Assignment.state)
    )
    by_state = {state: (count, int(cents)) for state, count, cents in rows}
    bonus = connection.execute(
        select(func.coalesce(func.sum(Bonus.cents), 0))
        .join(Assignment, Assignment.id == Bonus.assignment_id)
        .where(Assignment.worker_id == worker.id)
    ).scalar_one()
    approved, reward = by_state.get(AssignmentState.APPROVED, (0, 0))
    return Earnings(
        waiting=by_state.get(AssignmentState.SUBMITTED, (0, 0))[0],
        approved=approved,
        rejected=by_state.get(AssignmentState.REJECTED, (0, 0))[0],
        reward_cents=reward,
        bonus_cents=int(bonus),
    )


@dataclass(frozen=True, slots=True)
class BlockRow:
    """A block; ``id`` is the key of the worker's row."""

    id: int
    worker: str
    reason: str


def is_blocked(connection: Connection, worker_id: int) -> bool:
    """Whether this worker is kept from all HITs."""
    block_row = connection.execute(select(WorkerBlock.worker_id).where(WorkerBlock.worker_id == worker_id))
    return block_row.first() is not None


def block(connection: Connection, worker: WorkerRow, reason: str, now: dt.datetime) -> bool:
    """Block a worker; whether they were not blocked before. A second block changes the reason alone."""
    if is_blocked(connection, worker.id):
        connection.execute(
            update(WorkerBlock).where(WorkerBlock.worker_id == worker.id).values(reason=reason)
        )
        return False
    connection.execute(
        insert(WorkerBlock).values(
            worker_id=worker.id, environment=worker.environment, reason=reason, blocked_at=now
        )
    )
    return True


def unblock(connection: Connection, worker_id: int) -> bool:
    """Lift a block; whether there was one."""
    result = connection.execute(delete(WorkerBlock).where(WorkerBlock.worker_id == worker_id))
    return result.rowcount == 1


def list_blocks(
    connection: Connection, environment: Environment, *, after: int, limit: int
) -> list[BlockRow]:
    """Who is blocked, in the order in which they joined."""
    wanted = (
        select(WorkerBlock.worker_id, Worker.mturk_id, WorkerBlock.reason)
        .join(Worker, Worker.id == WorkerBlock.worker_id)
        .where(WorkerBlock.environment == environment, WorkerBlock.worker_id > after)
        .order_by(WorkerBlock.worker_id)
        .limit(limit)
    )
    return every(connection, BlockRow, wanted)
