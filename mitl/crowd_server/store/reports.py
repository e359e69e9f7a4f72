"""What the operator sees besides progress: money, who is owed what, invitations, late answers, sums for `/metrics`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, case, func, select

from mitl.crowd_server.store.assignments import COUNTED
from mitl.crowd_server.store.database import Wide, every, first
from mitl.crowd_server.store.models import (
    WORK,
    Account,
    AssignmentState,
    Bonus,
    CrowdAssignment,
    CrowdHit,
    CrowdWorker,
    HitType,
    Invitation,
    LateAnswer,
    LedgerEntry,
    LedgerKind,
    Panel,
    PanelIdentity,
    PanelVisit,
)
from mitl.crowd_server.store.panels import PanelRow
from mitl.crowd_server.store.workers import InvitationRow
from mitl.db.base import columns
from mitl.records import Environment

LEDGER_PORTION = 5000

_INVITATION: Wide = select(*columns(InvitationRow, Invitation))
_GIVEN = Invitation.id.not_in(select(Panel.invitation_id))
"""A panel's workers belong to an invitation of its own, which nobody was given."""
_PANEL_ID = (
    select(PanelIdentity.external_id)
    .where(PanelIdentity.worker_id == CrowdWorker.id)
    .limit(1)
    .correlate(CrowdWorker)
    .scalar_subquery()
)


@dataclass(frozen=True, slots=True)
class Payment:
    """What is owed to one worker for approved work and as bonuses."""

    external_id: str
    """What the worker's panel calls them; empty where none does, or where it was deleted."""
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
    counted: str
    """Why nothing more is to be paid for it: what the worker sent for this assignment later counts; else empty."""

    @property
    def due_cents(self) -> int:
        """What paying for it by hand would be."""
        return 0 if self.counted else self.reward_cents


def ledger_sums(connection: Connection) -> dict[tuple[Environment, LedgerKind], int]:
    """Cents moved, by environment and kind; reads the whole ledger."""
    by_kind = (LedgerEntry.environment, LedgerEntry.kind)
    rows = connection.execute(select(*by_kind, func.sum(LedgerEntry.cents)).group_by(*by_kind))
    return {(environment, kind): int(cents) for environment, kind, cents in rows}


def bonus_sums(connection: Connection) -> dict[Environment, int]:
    """Cents of bonuses by environment."""
    rows = connection.execute(select(Bonus.environment, func.sum(Bonus.cents)).group_by(Bonus.environment))
    return {environment: int(cents) for environment, cents in rows}


def ledger(connection: Connection, environment: Environment, *, after: int) -> list[LedgerRow]:
    """The next portion of an environment's ledger, oldest first, from the row after id ``after``."""
    ids = {"hit": CrowdHit.mturk_id, "assignment": CrowdAssignment.mturk_id, "worker": CrowdWorker.mturk_id}
    query = (
        select(*columns(LedgerRow, LedgerEntry, **ids))
        .outerjoin(CrowdHit, CrowdHit.id == LedgerEntry.hit_id)
        .outerjoin(CrowdAssignment, CrowdAssignment.id == LedgerEntry.assignment_id)
        .outerjoin(CrowdWorker, CrowdWorker.id == CrowdAssignment.worker_id)
        .where(LedgerEntry.environment == environment, LedgerEntry.id > after)
        .order_by(LedgerEntry.id)
        .limit(LEDGER_PORTION)
    )
    return every(connection, LedgerRow, query)


def payments(connection: Connection, environment: Environment) -> list[Payment]:
    """What each worker with approved work or a bonus is owed, by worker id."""
    of = CrowdAssignment.environment == environment
    rows = _payments(connection, of, CrowdWorker.environment == environment)
    return sorted(rows, key=lambda row: row.worker)


def owed_to(
    connection: Connection, environment: Environment, worker_ids: Collection[int]
) -> tuple[int, int, int]:
    """What these rows of workers are owed together: how many people, cents, and submissions that nobody has decided."""
    owed = {
        worker: reward + bonus
        for worker, (_, reward, bonus) in _owed(
            connection, CrowdAssignment.environment == environment
        ).items()
        if worker in worker_ids and reward + bonus
    }
    query = select(CrowdAssignment.worker_id, func.count()).group_by(CrowdAssignment.worker_id)
    of_state = CrowdAssignment.environment == environment, CrowdAssignment.state == AssignmentState.SUBMITTED
    waiting = {
        worker: count for worker, count in connection.execute(query.where(*of_state)) if worker in worker_ids
    }
    return len(owed.keys() | waiting.keys()), sum(owed.values()), sum(waiting.values())


def _payments(connection: Connection, of: ColumnElement[bool], who: ColumnElement[bool]) -> list[Payment]:
    """What is owed for such assignments to such workers."""
    owed = _owed(connection, of)
    people = select(CrowdWorker.id, func.coalesce(_PANEL_ID, ""), CrowdWorker.mturk_id).where(who)
    return [
        Payment(external_id, worker, *owed[own_id])
        for own_id, external_id, worker in connection.execute(people)
        if own_id in owed
    ]


def _owed(connection: Connection, of: ColumnElement[bool]) -> dict[int, tuple[int, int, int]]:
    """By the row of the worker of such assignments: how many were approved, rewards and bonuses in cents."""
    rewards = {
        worker_id: (count, int(cents))
        for worker_id, count, cents in connection.execute(
            select(CrowdAssignment.worker_id, func.count(), func.sum(HitType.reward_cents))
            .select_from(WORK)
            .where(CrowdAssignment.state == AssignmentState.APPROVED, of)
            .group_by(CrowdAssignment.worker_id)
        )
    }
    bonuses = {
        worker_id: int(cents)
        for worker_id, cents in connection.execute(
            select(CrowdAssignment.worker_id, func.sum(Bonus.cents))
            .join(CrowdAssignment, CrowdAssignment.id == Bonus.assignment_id)
            .where(of)
            .group_by(CrowdAssignment.worker_id)
        )
    }
    return {
        worker: (*rewards.get(worker, (0, 0)), bonuses.get(worker, 0))
        for worker in rewards.keys() | bonuses.keys()
    }


def invitations(connection: Connection, *, limit: int) -> tuple[list[InvitationRow], int]:
    """The newest invitations that somebody was given, and how many there are."""
    rows = connection.execute(_INVITATION.where(_GIVEN).order_by(Invitation.id.desc()).limit(limit))
    count = connection.execute(select(func.count()).select_from(Invitation).where(_GIVEN)).scalar_one()
    return [InvitationRow(*row) for row in rows], count


def find_invitation(connection: Connection, invitation_id: int) -> InvitationRow | None:
    """An invitation by its number, unless it is a panel's own."""
    return first(connection, InvitationRow, _INVITATION.where(Invitation.id == invitation_id, _GIVEN))


def count_late(connection: Connection) -> int:
    """Late answers of both environments."""
    return connection.execute(select(func.count()).select_from(LateAnswer)).scalar_one()


_LATE: Wide = (
    select(
        *columns(
            LateRow,
            LateAnswer,
            environment=CrowdAssignment.environment,
            worker=CrowdWorker.mturk_id,
            external_id=_PANEL_ID,
            hit=CrowdHit.mturk_id,
            assignment=CrowdAssignment.mturk_id,
            title=HitType.title,
            reward_cents=HitType.reward_cents,
            accepted_at=CrowdAssignment.accepted_at,
            hit_id=CrowdAssignment.hit_id,
            counted=COUNTED,
        )
    )
    .select_from(WORK)
    .join(LateAnswer)
    .join(CrowdWorker, CrowdWorker.id == CrowdAssignment.worker_id)
)


def late_answers(connection: Connection) -> list[LateRow]:
    """Late answers of both environments, newest first."""
    return every(connection, LateRow, _LATE.order_by(LateAnswer.id.desc()))


def late_answer(connection: Connection, own_id: int) -> tuple[LateRow, str] | None:
    """One late answer with its QuestionFormAnswers XML."""
    query = _LATE.add_columns(LateAnswer.answer).where(LateAnswer.id == own_id)
    row = connection.execute(query).one_or_none()
    return None if row is None else (LateRow(*row[:-1]), row[-1])


# A participant can come to two panels of one kind and is one worker in both, so money follows the visit that counted
# the submission (`panels.count_hit`): the newest that was open then. Otherwise both panels would pay it, or one would
# send a participant away as done and the other pay. Where the clock was set back, all began later, and it is the
# first one's: nobody else would pay it.
_a_visit = (
    select(PanelVisit.panel_id)
    .where(PanelVisit.worker_id == CrowdAssignment.worker_id)
    .limit(1)
    .correlate(CrowdAssignment)
)
_begun = _a_visit.where(PanelVisit.started_at <= CrowdAssignment.submitted_at).order_by(PanelVisit.id.desc())
_was_open = func.coalesce(PanelVisit.ended_at, CrowdAssignment.submitted_at) >= CrowdAssignment.submitted_at
_panel_of_work = func.coalesce(
    _begun.where(_was_open).scalar_subquery(),
    _begun.scalar_subquery(),
    _a_visit.order_by(PanelVisit.id).scalar_subquery(),
)


def payees(connection: Connection, panel: PanelRow) -> list[Payment]:
    """Everyone who is owed something for work of this panel's visits, by the panel's id."""
    visitors = select(PanelVisit.worker_id).where(PanelVisit.panel_id == panel.id)
    of = and_(CrowdAssignment.worker_id.in_(visitors), _panel_of_work == panel.id)
    rows = _payments(connection, of, CrowdWorker.id.in_(visitors))
    return sorted(rows, key=lambda row: (row.external_id, row.worker))


HIT_STATES = ("open", "done", "expired", "deleted")


def hit_counts(connection: Connection, now: dt.datetime) -> dict[tuple[Environment, str], int]:
    """HITs by environment and state: open to workers, done by as many as were asked, expired before, or deleted."""
    state = case(
        (CrowdHit.deleted_at.is_not(None), "deleted"),
        (CrowdHit.slots_left == 0, "done"),
        (CrowdHit.expires_at <= now, "expired"),
        else_="open",
    )
    query = select(CrowdHit.environment, state, func.count()).group_by(CrowdHit.environment, state)
    return _filled(((of, what, count) for of, what, count in connection.execute(query)), HIT_STATES)


def assignment_counts(connection: Connection) -> dict[tuple[Environment, str], int]:
    """Assignments by environment and state."""
    query = select(CrowdAssignment.environment, CrowdAssignment.state, func.count()).group_by(
        CrowdAssignment.environment, CrowdAssignment.state
    )
    rows = ((of, state.value, count) for of, state, count in connection.execute(query))
    return _filled(rows, [state.value for state in AssignmentState])


def worker_counts(connection: Connection) -> dict[Environment, int]:
    """Workers by environment."""
    query = select(CrowdWorker.environment, func.count()).group_by(CrowdWorker.environment)
    return dict.fromkeys(Environment, 0) | dict(connection.execute(query).all())


def account_sums(connection: Connection) -> dict[tuple[Environment, str], int]:
    """Cents by environment: budget, held, spent."""
    query = select(Account.environment, Account.budget_cents, Account.held_cents, Account.spent_cents)
    return {
        (of, what): cents
        for of, *sums in connection.execute(query)
        for what, cents in zip(("budget", "held", "spent"), sums, strict=True)
    }


def _filled(
    rows: Iterable[tuple[Environment, str, int]], states: Iterable[str]
) -> dict[tuple[Environment, str], int]:
    """Every state of every environment, so that a line does not vanish when its number falls to nothing."""
    zeros = {(of, state): 0 for of in Environment for state in states}
    return zeros | {(of, state): count for of, state, count in rows}
