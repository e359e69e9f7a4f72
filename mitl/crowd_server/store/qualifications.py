"""Qualification types of requesters, who holds them, and workers' requests from the opened test to the decision."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, exists, func, select, update

from mitl.crowd_server.protocol.ids import entity_id
from mitl.crowd_server.store.database import Books, Portion, Wide, add_row, change_row, every, first
from mitl.crowd_server.store.leases import OpenGroup
from mitl.crowd_server.store.models import (
    CrowdHit,
    CrowdWorker,
    HitType,
    Qualification,
    QualificationRequest,
    QualificationType,
    RequestState,
)
from mitl.crowd_server.store.workers import WorkerRow
from mitl.db.base import columns


@dataclass(frozen=True, slots=True)
class QualificationTerms:
    """How a qualification is asked for."""

    test: str | None = None
    """QuestionForm XML."""
    answer_key: str | None = None
    test_duration_s: int | None = None
    retry_delay_s: int | None = None
    """None: a worker may ask once."""
    auto_granted_value: int | None = None
    """None: not granted by itself."""


@dataclass(frozen=True, slots=True)
class QualificationTypeValues:
    """What a qualification type is called and says of itself."""

    id: int
    mturk_id: str
    name: str
    description: str
    keywords: str
    active: bool
    created_at: dt.datetime


@dataclass(frozen=True, slots=True)
class QualificationTypeRow(QualificationTypeValues):
    """A qualification type."""

    terms: QualificationTerms


@dataclass(frozen=True, slots=True)
class QualificationRow:
    """A qualification that a worker holds or held."""

    id: int
    type: str
    worker: str
    value: int | None
    granted_at: dt.datetime
    revoked_at: dt.datetime | None


_SAID = columns(QualificationTypeValues, QualificationType)
_TYPE: Wide = select(*_SAID, *columns(QualificationTerms, QualificationType)).where(
    QualificationType.description != ""
)
"""A deleted type keeps its row, because HITs may still ask for it; its description, which no other lacks, is empty."""
_HELD: Wide = (
    select(
        *columns(
            QualificationRow, Qualification, type=QualificationType.mturk_id, worker=CrowdWorker.mturk_id
        )
    )
    .join(QualificationType, QualificationType.id == Qualification.qualification_type_id)
    .join(CrowdWorker, CrowdWorker.id == Qualification.worker_id)
)
_HELD_BY = (
    select(QualificationType.mturk_id, Qualification.value)
    .join(QualificationType, QualificationType.id == Qualification.qualification_type_id)
    .where(Qualification.worker_id == bindparam("me"), Qualification.revoked_at.is_(None))
)


def add_type(
    books: Books, *, name: str, description: str, keywords: str, active: bool, terms: QualificationTerms
) -> QualificationTypeRow | None:
    """A new type; None where the name is taken."""
    taken = (QualificationType.environment == books.environment, QualificationType.name == name)
    if books.connection.scalar(select(QualificationType.id).where(*taken)) is not None:
        return None
    values: dict[str, Any] = {
        "mturk_id": entity_id(),
        "name": name,
        "description": description,
        "keywords": keywords,
        "active": active,
        "created_at": books.now,
    }
    kept = {"environment": books.environment, **values, **asdict(terms)}
    return QualificationTypeRow(add_row(books.connection, QualificationType, **kept), **values, terms=terms)


def update_type(books: Books, own: QualificationTypeRow) -> None:
    """Keep a type's description, status and terms as they are in ``own``."""
    changes = {"description": own.description, "active": own.active, **asdict(own.terms)}
    change_row(books.connection, QualificationType, own.id, **changes)


def delete_type(books: Books, own: QualificationTypeRow) -> None:
    """Take a type out of use: its name is free again; who holds it goes on to meet the HITs that ask for it."""
    # Longer than any name that the API takes, so that no type can be in its way.
    name = f"deleted {own.mturk_id} ".ljust(240, "-")
    gone = {"name": name, "description": "", "keywords": "", "active": False}
    change_row(books.connection, QualificationType, own.id, **gone)


def find_type(books: Books, mturk_id: str) -> QualificationTypeRow | None:
    """The type of this id."""
    of_id = (QualificationType.mturk_id == mturk_id, QualificationType.environment == books.environment)
    return first(books.connection, _type_row, _TYPE.where(*of_id))


def list_types(
    books: Books, portion: Portion | None = None, *, query: str = "", requestable: bool = False
) -> list[QualificationTypeRow]:
    """Types whose name, description or keywords hold ``query``, oldest first."""
    wanted = _TYPE.order_by(QualificationType.id).where(QualificationType.environment == books.environment)
    if portion is not None:
        wanted = wanted.where(QualificationType.id > portion.after)
    if requestable:
        wanted = wanted.where(QualificationType.active)
    # Compared here: SQLite folds ASCII's case alone, PostgreSQL what its locale says.
    sought = query.casefold()
    rows = [
        row
        for row in every(books.connection, _type_row, wanted)
        if any(sought in text.casefold() for text in (row.name, row.description, row.keywords))
    ]
    return rows if portion is None else rows[: portion.limit]


def _type_row(*row: Any) -> QualificationTypeRow:
    record: list[Any] = [*row[: len(_SAID)], QualificationTerms(*row[len(_SAID) :])]
    return QualificationTypeRow(*record)


def find(connection: Connection, type_id: int, worker_id: int) -> QualificationRow | None:
    """What this worker holds, or held, of this type."""
    query = _HELD.where(Qualification.qualification_type_id == type_id, Qualification.worker_id == worker_id)
    return first(connection, QualificationRow, query)


def find_held(connection: Connection, type_id: int, worker_id: int) -> QualificationRow | None:
    """What this worker holds of this type now."""
    row = find(connection, type_id, worker_id)
    return None if row is None or row.revoked_at is not None else row


def list_held(connection: Connection, worker_id: int) -> dict[str, QualificationRow]:
    """What a worker holds, by type id."""
    query = _HELD.where(Qualification.worker_id == worker_id, Qualification.revoked_at.is_(None))
    return {row.type: row for row in every(connection, QualificationRow, query)}


def grant(books: Books, type_id: int, worker_id: int, value: int | None) -> None:
    """Give a worker a qualification, or change its value."""
    kept = find(books.connection, type_id, worker_id)
    granted = {"value": value, "granted_at": books.now, "revoked_at": None}
    if kept is None:
        holder = {"qualification_type_id": type_id, "worker_id": worker_id}
        add_row(books.connection, Qualification, **holder, **granted)
    else:
        change_row(books.connection, Qualification, kept.id, **granted)


def revoke(books: Books, qualification_id: int) -> None:
    """Take a qualification away; its row stays."""
    change_row(books.connection, Qualification, qualification_id, revoked_at=books.now)


def list_holders(
    connection: Connection, type_id: int, portion: Portion, *, granted: bool
) -> list[QualificationRow]:
    """Who holds this type, or whose was revoked, oldest first."""
    state = Qualification.revoked_at.is_(None) if granted else Qualification.revoked_at.is_not(None)
    of_type = (Qualification.qualification_type_id == type_id, Qualification.id > portion.after, state)
    query = _HELD.where(*of_type).order_by(Qualification.id).limit(portion.limit)
    return every(connection, QualificationRow, query)


def held_by(connection: Connection, worker: WorkerRow) -> dict[str, int | None]:
    """The values of the qualifications that a worker holds, by type id."""
    return dict(connection.execute(_HELD_BY, {"me": worker.id}).all())


def held_for(
    connection: Connection, worker: WorkerRow, offered: Iterable[OpenGroup]
) -> dict[str, int | None]:
    """The same, read only where one of these groups requires anything."""
    return held_by(connection, worker) if any(group.requirements != "[]" for group in offered) else {}


@dataclass(frozen=True, slots=True)
class RequestRow:
    """A request."""

    id: int
    mturk_id: str
    type_id: int
    type: str
    name: str
    """Of the type."""
    worker_id: int
    worker: str
    state: RequestState
    answer: str
    started_at: dt.datetime
    submitted_at: dt.datetime | None
    decided_at: dt.datetime | None
    reason: str
    test: str | None
    """As it was given; None where there was none."""
    test_duration_s: int | None

    @property
    def deadline(self) -> dt.datetime:
        """Until when the test may be sent."""
        return self.started_at + dt.timedelta(seconds=self.test_duration_s or 0)


_REQUEST: Wide = (
    select(
        *columns(
            RequestRow,
            QualificationRequest,
            type=QualificationType.mturk_id,
            name=QualificationType.name,
            worker=CrowdWorker.mturk_id,
        )
    )
    .join(QualificationType, QualificationType.id == QualificationRequest.type_id)
    .join(CrowdWorker, CrowdWorker.id == QualificationRequest.worker_id)
)
UNDECIDED = (RequestState.TESTING, RequestState.PENDING)


def add_request(
    books: Books, worker: WorkerRow, own: QualificationTypeRow, state: RequestState
) -> RequestRow:
    """A new request, as a test that starts or, without one, as sent and perhaps granted at once."""
    own_id = add_row(
        books.connection,
        QualificationRequest,
        mturk_id=entity_id(),
        environment=worker.environment,
        type_id=own.id,
        worker_id=worker.id,
        state=state,
        answer="",
        test=own.terms.test,
        test_duration_s=own.terms.test_duration_s,
        started_at=books.now,
        submitted_at=None if state is RequestState.TESTING else books.now,
        decided_at=books.now if state is RequestState.GRANTED else None,
        reason="",
    )
    return RequestRow(*books.connection.execute(_REQUEST.where(QualificationRequest.id == own_id)).one())


def find_request(books: Books, mturk_id: str) -> RequestRow | None:
    """The request of this id."""
    of_id = (QualificationRequest.mturk_id == mturk_id, QualificationRequest.environment == books.environment)
    return first(books.connection, RequestRow, _REQUEST.where(*of_id))


def latest_requests(
    connection: Connection, worker_id: int, type_id: int | None = None
) -> dict[str, RequestRow]:
    """A worker's last request for each type, or for one, by type id."""
    last = select(func.max(QualificationRequest.id)).where(QualificationRequest.worker_id == worker_id)
    if type_id is not None:
        last = last.where(QualificationRequest.type_id == type_id)
    query = _REQUEST.where(QualificationRequest.id.in_(last.group_by(QualificationRequest.type_id)))
    return {row.type: row for row in every(connection, RequestRow, query)}


def list_requests(books: Books, portion: Portion, *, type_id: int | None) -> list[RequestRow]:
    """Requests that wait for a decision, of all types or of one, oldest first."""
    query = _REQUEST.where(
        QualificationRequest.environment == books.environment,
        QualificationRequest.state == RequestState.PENDING,
        QualificationRequest.id > portion.after,
    )
    if type_id is not None:
        query = query.where(QualificationRequest.type_id == type_id)
    query = query.order_by(QualificationRequest.id).limit(portion.limit)
    return every(books.connection, RequestRow, query)


def restart_test(books: Books, request_id: int, terms: QualificationTerms) -> None:
    """Give the test that the type has by now its full time."""
    given = {"test": terms.test, "test_duration_s": terms.test_duration_s, "started_at": books.now}
    change_row(books.connection, QualificationRequest, request_id, **given)


def submit_test(books: Books, request_id: int, answer: str) -> None:
    """Keep the answers to a test; the request then waits for its decision."""
    sent = {"state": RequestState.PENDING, "answer": answer, "submitted_at": books.now}
    change_row(books.connection, QualificationRequest, request_id, **sent)


def decide_request(books: Books, request_id: int, state: RequestState, reason: str = "") -> None:
    """Grant or reject a request; who holds the qualification is noted elsewhere."""
    decision = {"state": state, "reason": reason, "decided_at": books.now}
    change_row(books.connection, QualificationRequest, request_id, **decision)


def reject_undecided(books: Books, type_id: int, reason: str) -> list[int]:
    """Reject all requests for a type, tests in hand too; gives the keys of the workers whose request waited."""
    mine = (QualificationRequest.type_id == type_id, QualificationRequest.state.in_(UNDECIDED))
    told = books.connection.scalars(select(QualificationRequest.worker_id).where(*mine).distinct()).all()
    rejected = {"state": RequestState.REJECTED, "reason": reason, "decided_at": books.now}
    books.connection.execute(update(QualificationRequest).where(*mine).values(rejected))
    return list(told)


def asked_for(books: Books) -> set[str]:
    """The types that workers need for a HIT which can be taken now; one that shuts its holders out is none."""
    is_open = (CrowdHit.slots_left > 0, CrowdHit.expires_at > books.now, CrowdHit.deleted_at.is_(None))
    query = (
        select(HitType.requirements)
        .where(HitType.environment == books.environment, HitType.requirements != "[]")
        .where(exists().where(CrowdHit.hit_type_id == HitType.id, *is_open))
        .distinct()
    )
    return {
        requirement["QualificationTypeId"]
        for requirements in books.connection.scalars(query)
        for requirement in json.loads(requirements)
        if requirement["Comparator"] != "DoesNotExist"
    }
