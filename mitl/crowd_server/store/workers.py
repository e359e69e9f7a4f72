"""Invitations, workers, their earnings, consent and messages, and whom a requester keeps from all HITs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from sqlalchemy import (
    Connection,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    literal_column,
    select,
    update,
)

from mitl.crowd_server.protocol.ids import token_hash, worker_id
from mitl.crowd_server.store import accounts
from mitl.crowd_server.store.database import Books, Portion, Prepared, Wide, add_row, every, first
from mitl.crowd_server.store.models import (
    IS_LIVE,
    WORK,
    AssignmentState,
    Bonus,
    Consent,
    CrowdAssignment,
    CrowdWorker,
    HitType,
    Invitation,
    Message,
    PanelVisit,
    Study,
    VisitState,
    WorkerBlock,
)
from mitl.db.base import columns
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


_WORKER = select(*columns(WorkerRow, CrowdWorker))
_INVITATION = select(*columns(InvitationRow, Invitation))

_INVITATION_BY_TOKEN = Prepared(
    _INVITATION.where(Invitation.token_sha256 == bindparam("token")).with_for_update()
)
_FIRST_OF_INVITATION = Prepared(
    _WORKER.where(CrowdWorker.invitation_id == bindparam("own"))
    .order_by(CrowdWorker.id)
    .limit(literal_column("1"))
)
_COUNT_USE = Prepared(
    update(Invitation).where(Invitation.id == bindparam("own")).values(uses=Invitation.uses + 1)
)
_TAKE_BACK = (
    update(CrowdAssignment)
    .where(
        CrowdAssignment.worker_id.in_(
            select(CrowdWorker.id).where(CrowdWorker.invitation_id == bindparam("own"))
        ),
        IS_LIVE,
    )
    .values(state=AssignmentState.RETURNED, deadline_at=bindparam("now"))
    .returning(CrowdAssignment.hit_id)
)
_NOT_REVOKED = CrowdWorker.invitation_id.in_(select(Invitation.id).where(Invitation.revoked_at.is_(None)))
_FIND = _WORKER.where(CrowdWorker.mturk_id == bindparam("mturk_id"), _NOT_REVOKED)


def add_invitation(
    books: Books, token: str, *, label: str, lasts: dt.timedelta, personal: bool, max_uses: int | None
) -> int:
    """Keep a new invitation, by its token's hash."""
    values = {"environment": books.environment, "token_sha256": token_hash(token), "label": label}
    uses = {"personal": personal, "max_uses": max_uses, "uses": 0}
    times = {"created_at": books.now, "expires_at": books.now + lasts}
    return add_row(books.connection, Invitation, **values, **uses, **times)


def find_invitation(connection: Connection, token_sha256: str) -> InvitationRow | None:
    """The invitation whose token has this hash; no other transaction changes it until this one ends."""
    return first(connection, InvitationRow, _INVITATION_BY_TOKEN, token=token_sha256)


def invitation(connection: Connection, invitation_id: int) -> InvitationRow:
    """An invitation by its row."""
    return InvitationRow(*connection.execute(_INVITATION.where(Invitation.id == invitation_id)).one())


def list_invitations(connection: Connection) -> list[InvitationRow]:
    """All invitations, newest first."""
    return every(connection, InvitationRow, _INVITATION.order_by(Invitation.id.desc()))


def revoke_invitation(books: Books, invitation_id: int) -> bool:
    """Close an invitation, shut out the workers who came by it and return what they hold; whether it was open."""
    is_open = (Invitation.id == invitation_id, Invitation.revoked_at.is_(None))
    revoked = update(Invitation).where(*is_open).values(revoked_at=books.now)
    if books.connection.execute(revoked).rowcount == 0:
        return False
    returned = books.connection.scalars(_TAKE_BACK, {"own": invitation_id, "now": books.now})
    accounts.settle_soon(books, returned.all())
    return True


def worker_of_invitation(connection: Connection, invitation_id: int) -> WorkerRow | None:
    """The first worker whom an invitation made."""
    return first(connection, WorkerRow, _FIRST_OF_INVITATION, own=invitation_id)


def add_worker(connection: Connection, invitation: InvitationRow, now: dt.datetime) -> WorkerRow:
    """A new worker by this invitation, whose use is counted."""
    mturk_id = worker_id()
    values = {"environment": invitation.environment, "mturk_id": mturk_id, "invitation_id": invitation.id}
    own_id = add_row(connection, CrowdWorker, **values, created_at=now)
    _COUNT_USE.rows(connection, {"own": invitation.id})
    return WorkerRow(own_id, mturk_id, invitation.environment, invitation.id)


def find_worker(connection: Connection, mturk_id: str) -> WorkerRow | None:
    """The worker of this id, unless their invitation was revoked."""
    return first(connection, WorkerRow, _FIND, mturk_id=mturk_id)


def known_worker(books: Books, mturk_id: str) -> WorkerRow | None:
    """The worker of this id, whether shut out or not."""
    query = _WORKER.where(CrowdWorker.mturk_id == mturk_id, CrowdWorker.environment == books.environment)
    return first(books.connection, WorkerRow, query)


_APPROVED = CrowdAssignment.state == AssignmentState.APPROVED
_BONUSES = (
    select(func.coalesce(func.sum(Bonus.cents), 0))
    .join(CrowdAssignment, CrowdAssignment.id == Bonus.assignment_id)
    .where(CrowdAssignment.worker_id == bindparam("me"))
    .scalar_subquery()
)
_EARNINGS = Prepared(
    select(
        func.count(case((CrowdAssignment.state == AssignmentState.SUBMITTED, 1))),
        func.count(case((_APPROVED, 1))),
        func.count(case((CrowdAssignment.state == AssignmentState.REJECTED, 1))),
        func.coalesce(func.sum(case((_APPROVED, HitType.reward_cents))), 0),
        _BONUSES,
    )
    .select_from(WORK)
    .where(CrowdAssignment.worker_id == bindparam("me"))
)


def earnings(connection: Connection, worker: WorkerRow) -> Earnings:
    """What became of this worker's submissions."""
    return Earnings(*map(int, _EARNINGS.rows(connection, {"me": worker.id})[0]))


@dataclass(frozen=True, slots=True)
class BlockRow:
    """A block; ``id`` is the key of the worker's row."""

    id: int
    worker: str
    reason: str


_IS_BLOCKED = select(WorkerBlock.worker_id).where(WorkerBlock.worker_id == bindparam("me"))


def is_blocked(connection: Connection, worker_id: int) -> bool:
    """Whether this worker is kept from all HITs."""
    return connection.scalar(_IS_BLOCKED, {"me": worker_id}) is not None


def block(books: Books, worker: WorkerRow, reason: str) -> bool:
    """Block a worker; whether they were not blocked before. A second block changes the reason alone."""
    kept = update(WorkerBlock).where(WorkerBlock.worker_id == worker.id).values(reason=reason)
    if books.connection.execute(kept).rowcount:
        return False
    values = {"environment": worker.environment, "reason": reason, "blocked_at": books.now}
    books.connection.execute(insert(WorkerBlock).values(worker_id=worker.id, **values))
    return True


def unblock(books: Books, worker_id: int) -> bool:
    """Lift a block; whether there was one."""
    lifted = delete(WorkerBlock).where(WorkerBlock.worker_id == worker_id)
    return books.connection.execute(lifted).rowcount == 1


def list_blocks(books: Books, portion: Portion) -> list[BlockRow]:
    """Who is blocked, in the order in which they joined."""
    query = (
        select(WorkerBlock.worker_id, CrowdWorker.mturk_id, WorkerBlock.reason)
        .join(CrowdWorker, CrowdWorker.id == WorkerBlock.worker_id)
        .where(WorkerBlock.environment == books.environment, WorkerBlock.worker_id > portion.after)
        .order_by(WorkerBlock.worker_id)
        .limit(portion.limit)
    )
    return every(books.connection, BlockRow, query)


@dataclass(frozen=True, slots=True)
class StudyRow:
    """The study of one environment."""

    environment: Environment
    version: int
    title: str
    information: str
    contact: str
    warning: str
    consent: str
    changed_at: dt.datetime

    @property
    def paragraphs(self) -> list[str]:
        """The information, split at empty lines."""
        return [part.strip() for part in self.information.split("\n\n") if part.strip()]

    @property
    def is_shown_first(self) -> bool:
        """Whether people meet a page before their first HIT."""
        return bool(self.information or self.warning or self.consent)


_FIND_STUDY = select(*columns(StudyRow, Study)).where(Study.environment == bindparam("of"))


def find_study(connection: Connection, environment: Environment) -> StudyRow | None:
    """The study of this environment, where one is described."""
    return first(connection, StudyRow, _FIND_STUDY, of=environment)


def save_study(connection: Connection, study: StudyRow) -> None:
    """Keep the study in place of an earlier one of its environment."""
    values = asdict(study)
    kept = update(Study).where(Study.environment == study.environment).values(values)
    if connection.execute(kept).rowcount == 0:
        connection.execute(insert(Study).values(values))


def record_consent(
    connection: Connection, worker_id: int, version: int, given: bool, now: dt.datetime
) -> None:
    """Keep a worker's answer; a later one to the same version takes its place."""
    of_worker = (Consent.worker_id == worker_id, Consent.version == version)
    if connection.execute(update(Consent).where(*of_worker).values(given=given, at=now)).rowcount == 0:
        connection.execute(insert(Consent).values(worker_id=worker_id, version=version, given=given, at=now))


def has_withdrawn(connection: Connection, mturk_id: str) -> bool:
    """Whether the last that this worker said of taking part is no, to whichever version."""
    answers = select(Consent.given).join(CrowdWorker, CrowdWorker.id == Consent.worker_id)
    latest = answers.where(CrowdWorker.mturk_id == mturk_id).order_by(Consent.version.desc())
    return connection.scalar(latest.limit(1)) is False


@dataclass(frozen=True, slots=True)
class MessageRow:
    """One message on a worker's page."""

    id: int
    subject: str
    text: str
    sent_at: dt.datetime
    read_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class PageStanding:
    """What each of a worker's pages shows or looks at."""

    study: StudyRow | None
    """Of the worker's environment."""
    consent: bool | None
    """Whether they agreed to this version of the study; None where they have not answered it."""
    unread: int
    """Messages that they have not seen yet."""
    is_blocked: bool
    """Whether the requester keeps them from all HITs."""
    visit_id: int | None
    """The panel visit that they are on: the newest open one, else the newest; None for invited workers."""


_GIVEN = select(Consent.given).where(Consent.worker_id == CrowdWorker.id, Consent.version == Study.version)
_UNREAD = select(func.count()).where(Message.worker_id == CrowdWorker.id, Message.read_at.is_(None))
_LATEST_VISIT = (
    select(PanelVisit.id)
    .where(PanelVisit.worker_id == CrowdWorker.id)
    .order_by(case((PanelVisit.state == VisitState.OPEN, 0), else_=1), PanelVisit.id.desc())
    .limit(1)
)
_STANDING = Prepared(
    select(
        *columns(WorkerRow, CrowdWorker),
        _GIVEN.scalar_subquery(),
        _UNREAD.scalar_subquery(),
        select(WorkerBlock.worker_id).where(WorkerBlock.worker_id == CrowdWorker.id).scalar_subquery(),
        _LATEST_VISIT.scalar_subquery(),
        *columns(StudyRow, Study),
    )
    .select_from(CrowdWorker)
    .outerjoin(Study, Study.environment == CrowdWorker.environment)
    .where(CrowdWorker.mturk_id == bindparam("mturk_id"), _NOT_REVOKED)
)


def find_standing(connection: Connection, mturk_id: str) -> tuple[WorkerRow, PageStanding] | None:
    """The worker of this id, unless their invitation was revoked, and what every page of theirs looks at, at once."""
    rows = _STANDING.rows(connection, {"mturk_id": mturk_id})
    if not rows:
        return None
    row = rows[0]
    worker, (given, unread, blocked, visit_id), study = row[:4], row[4:8], row[8:]
    shown = StudyRow(*study) if study[0] is not None else None
    return WorkerRow(*worker), PageStanding(shown, given, unread, blocked is not None, visit_id)


def tell(books: Books, worker_id: int, subject: str, text: str) -> None:
    """Write a message to a worker, by the key of their row; their pages then show one more as unread."""
    message = {"worker_id": worker_id, "subject": subject, "text": text, "sent_at": books.now}
    add_row(books.connection, Message, environment=books.environment, **message)


def messages_of(
    connection: Connection, worker_id: int, *, before: int | None, limit: int
) -> list[MessageRow]:
    """A worker's messages, newest first, older than the one of id ``before``."""
    query = select(*columns(MessageRow, Message)).where(Message.worker_id == worker_id)
    if before is not None:
        query = query.where(Message.id < before)
    return every(connection, MessageRow, query.order_by(Message.id.desc()).limit(limit))


def mark_read(connection: Connection, worker_id: int, ids: Iterable[int], now: dt.datetime) -> None:
    """Note that a worker saw these messages of theirs."""
    connection.execute(
        update(Message)
        .where(Message.worker_id == worker_id, Message.id.in_(list(ids)), Message.read_at.is_(None))
        .values(read_at=now)
    )


def acquaintances(books: Books, mturk_ids: Iterable[str]) -> dict[str, tuple[int, bool, bool]]:
    """For those ids that are workers: (key of the row, whether work was decided, whether work waits)."""
    decided = CrowdAssignment.state.in_((AssignmentState.APPROVED, AssignmentState.REJECTED))
    waits = CrowdAssignment.state == AssignmentState.SUBMITTED
    query: Wide = select(
        CrowdWorker.mturk_id,
        CrowdWorker.id,
        exists().where(CrowdAssignment.worker_id == CrowdWorker.id, decided),
        exists().where(CrowdAssignment.worker_id == CrowdWorker.id, waits),
    ).where(CrowdWorker.environment == books.environment, CrowdWorker.mturk_id.in_(list(mturk_ids)))
    rows = books.connection.execute(query)
    return {mturk_id: (own_id, bool(decided), bool(waits)) for mturk_id, own_id, decided, waits in rows}
