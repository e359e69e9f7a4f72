"""Everything that the crowd server holds about one person, for the person; nothing of others, no tokens or keys."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BindParameter, Connection, SQLColumnExpression, bindparam, case, or_, select, tuple_

from mitl.crowd_server.store.database import Wide, every
from mitl.crowd_server.store.models import (
    WORK,
    Bonus,
    Consent,
    CrowdAssignment,
    CrowdBase,
    CrowdHit,
    CrowdWorker,
    HitType,
    Invitation,
    LateAnswer,
    LedgerEntry,
    LedgerKind,
    Message,
    Panel,
    PanelIdentity,
    PanelVisit,
    Qualification,
    QualificationRequest,
    QualificationType,
    WorkerBlock,
)
from mitl.crowd_server.store.panels import FORGOTTEN
from mitl.db.base import columns
from mitl.errors import StoreError
from mitl.records import Environment
from mitl.records.persons import HeldData, HeldPart


def _own(table: type[CrowdBase], *others: SQLColumnExpression[Any]) -> Wide:
    """All of a table's columns but its keys, and these of others."""
    shown = [column for column in table.__table__.columns if column.name != "id" and not column.foreign_keys]
    return select(*shown, *others)


def _own_on_work(table: type[LateAnswer | Bonus | LedgerEntry]) -> Wide:
    """The same of a table whose rows belong to submissions, with the names of these and of their HITs."""
    work = CrowdAssignment.mturk_id.label("assignment"), CrowdHit.mturk_id.label("hit")
    query = _own(table, *work).select_from(WORK).join(table, table.assignment_id == CrowdAssignment.id)
    return query.where(CrowdAssignment.worker_id == _ME).order_by(table.id)


_ME: BindParameter[int] = bindparam("me")
_PARTS: Mapping[str, tuple[str, Wide]] = {
    "worker": (
        "Your worker id, when you came, and your invitation, with the requester's note if it was yours alone.",
        select(
            CrowdWorker.mturk_id.label("worker"),
            CrowdWorker.environment,
            CrowdWorker.created_at,
            case((Invitation.personal, Invitation.label)).label("invitation_note"),
            Invitation.personal.label("invitation_is_personal"),
            Invitation.created_at.label("invited_at"),
            Invitation.revoked_at.label("invitation_revoked_at"),
        )
        .join(Invitation)
        .where(CrowdWorker.id == _ME),
    ),
    "panel_ids": (
        "What a panel, such as Prolific, calls you. Empty if you did not come from one, or if that was deleted here.",
        select(PanelIdentity.profile.label("panel"), PanelIdentity.external_id).where(
            PanelIdentity.worker_id == _ME
        ),
    ),
    "visits": (
        "Your visits by a panel's study link, with the panel's own numbers for them, and how each ended.",
        _own(PanelVisit, Panel.slug.label("study_link"), Panel.profile.label("panel"))
        .join(Panel)
        .where(PanelVisit.worker_id == _ME)
        .order_by(PanelVisit.id),
    ),
    "consents": (
        "Your last answer to each version of the study's information, and when you gave it.",
        _own(Consent).where(Consent.worker_id == _ME).order_by(Consent.version),
    ),
    "blocks": (
        "Whether the requester keeps you from all HITs, since when, and why. Empty if not.",
        _own(WorkerBlock).where(WorkerBlock.worker_id == _ME),
    ),
    "qualifications": (
        "Qualifications that you hold or held, with their values, such as the score of a test.",
        _own(Qualification, QualificationType.name, QualificationType.description)
        .join(QualificationType)
        .where(Qualification.worker_id == _ME)
        .order_by(Qualification.id),
    ),
    "qualification_requests": (
        "Your requests for qualifications, your answers to their tests as you sent them (XML), and the decisions.",
        _own(QualificationRequest, QualificationType.name)
        .join(QualificationType)
        .where(QualificationRequest.worker_id == _ME)
        .order_by(QualificationRequest.id),
    ),
    "assignments": (
        "Each HIT that you took: when you accepted, sent or returned it, your answers as you sent them (XML), what was "
        "decided, and what the requester wrote about it.",
        _own(
            CrowdAssignment,
            CrowdHit.mturk_id.label("hit"),
            HitType.title,
            HitType.reward_cents,
        )
        .select_from(WORK)
        .where(CrowdAssignment.worker_id == _ME)
        .order_by(CrowdAssignment.id),
    ),
    "late_answers": (
        "Answers of yours that came after the time of their HIT, as you sent them (XML).",
        _own_on_work(LateAnswer),
    ),
    "bonuses": (
        "Bonuses granted to you, in cents, and why.",
        _own_on_work(Bonus),
    ),
    "ledger": (
        "Money booked as owed to you, in cents: rewards of approved HITs, and bonuses.",
        _own_on_work(LedgerEntry).where(LedgerEntry.kind.in_((LedgerKind.REWARD, LedgerKind.BONUS))),
    ),
    "messages": (
        "What requesters wrote to you here, and when you first saw it.",
        _own(Message).where(Message.worker_id == _ME).order_by(Message.id),
    ),
}


def held(connection: Connection, worker_id: int, folder: str = "server") -> HeldData:
    """What the server holds about the worker of this row; the parts are read as they are gone through."""
    names = select(CrowdWorker.mturk_id, CrowdWorker.environment).where(CrowdWorker.id == worker_id)
    worker, environment = connection.execute(names).one()
    parts = (
        HeldPart(name, means, _rows(connection, query, worker_id)) for name, (means, query) in _PARTS.items()
    )
    return HeldData(folder, f"The crowd server, {environment}, worker {worker}", parts)


def _rows(connection: Connection, wanted: Wide, worker_id: int) -> Iterator[dict[str, Any]]:
    for row in connection.execute(wanted, {"me": worker_id}).mappings():
        # What stands in the place of a session that was deleted is no word of the panel's.
        gone = "session" in row and row["session"].startswith(FORGOTTEN)
        yield dict(row) | ({"session": None, "study": None} if gone else {})


@dataclass(frozen=True, slots=True)
class NamedWorker:
    """A worker who answers to a name."""

    id: int
    worker: str
    environment: Environment
    scope: str | None
    """Which panel calls them so; None of a worker whom no panel calls anything."""


def find(
    connection: Connection, name: str, environments: Collection[Environment] = tuple(Environment)
) -> list[NamedWorker]:
    """The worker of this id, or else whoever a panel calls so; with the same person's worker of the other environment.

    Raises:
        StoreError: in these environments, panels call more than one person so.
    """
    worker = connection.scalar(select(CrowdWorker.id).where(CrowdWorker.mturk_id == name))
    called = PanelIdentity.external_id == name if worker is None else PanelIdentity.worker_id == worker
    known_as = select(PanelIdentity.profile, PanelIdentity.external_id).where(called).distinct()
    same = tuple_(PanelIdentity.profile, PanelIdentity.external_id).in_(known_as)
    query = (
        select(*columns(NamedWorker, CrowdWorker, worker=CrowdWorker.mturk_id, scope=PanelIdentity.profile))
        .outerjoin(PanelIdentity, PanelIdentity.worker_id == CrowdWorker.id)
        .where(or_(same, CrowdWorker.id == worker))
    )
    found = every(connection, NamedWorker, query.order_by(CrowdWorker.id))
    meant = [one for one in found if one.environment in environments]
    if len({one.scope for one in meant}) > 1:
        people = "; ".join(f"{one.worker} ({one.scope}, {one.environment})" for one in meant)
        raise StoreError(
            f"more than one panel calls somebody {name!r}: {people}; name the one you mean by the worker id"
        )
    return found


def submitted(connection: Connection, worker_id: int) -> set[str]:
    """The ids of what a worker submitted."""
    of_worker = (CrowdAssignment.worker_id == worker_id, CrowdAssignment.submitted_at.is_not(None))
    return set(connection.scalars(select(CrowdAssignment.mturk_id).where(*of_worker)))
