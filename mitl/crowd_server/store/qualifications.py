"""Qualification types of requesters and who holds them."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from mitl.crowd_server.protocol.ids import entity_id
from mitl.crowd_server.store.database import Wide, columns, every, first, new_id
from mitl.crowd_server.store.models import Qualification, QualificationType, Worker
from mitl.crowd_server.store.workers import WorkerRow
from mitl.records import Environment


@dataclass(frozen=True, slots=True)
class Terms:
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
class QualificationTypeRow:
    """A qualification type."""

    id: int
    mturk_id: str
    name: str
    description: str
    keywords: str
    active: bool
    created_at: dt.datetime
    terms: Terms


@dataclass(frozen=True, slots=True)
class QualificationRow:
    """A qualification that a worker holds or held."""

    id: int
    type: str
    worker: str
    value: int | None
    granted_at: dt.datetime
    revoked_at: dt.datetime | None


_TYPE: Wide = select(
    QualificationType.id,
    QualificationType.mturk_id,
    QualificationType.name,
    QualificationType.description,
    QualificationType.keywords,
    QualificationType.active,
    QualificationType.created_at,
    *columns(Terms, QualificationType),
).where(QualificationType.description != "")
"""A deleted type keeps its row, because HITs may still ask for it; its description, which no other lacks, is empty."""
_HELD: Wide = (
    select(
        Qualification.id,
        QualificationType.mturk_id,
        Worker.mturk_id,
        Qualification.value,
        Qualification.granted_at,
        Qualification.revoked_at,
    )
    .join(QualificationType, QualificationType.id == Qualification.qualification_type_id)
    .join(Worker, Worker.id == Qualification.worker_id)
)

_HELD_BY = (
    select(QualificationType.mturk_id, Qualification.value)
    .join(QualificationType, QualificationType.id == Qualification.qualification_type_id)
    .where(Qualification.worker_id == bindparam("me"), Qualification.revoked_at.is_(None))
)


def add_type(
    connection: Connection,
    environment: Environment,
    *,
    name: str,
    description: str,
    keywords: str,
    active: bool,
    terms: Terms,
    now: dt.datetime,
) -> QualificationTypeRow | None:
    """A new type; None where the name is taken."""
    taken = select(QualificationType.id).where(
        QualificationType.environment == environment, QualificationType.name == name
    )
    if connection.execute(taken).first() is not None:
        return None
    mturk_id = entity_id()
    result = connection.execute(
        insert(QualificationType).values(
            environment=environment,
            mturk_id=mturk_id,
            name=name,
            description=description,
            keywords=keywords,
            active=active,
            created_at=now,
            **asdict(terms),
        )
    )
    own_id = new_id(result)
    return QualificationTypeRow(own_id, mturk_id, name, description, keywords, active, now, terms)


def update_type(connection: Connection, own: QualificationTypeRow) -> None:
    """Keep a type's description, status and terms as they are in ``own``."""
    connection.execute(
        update(QualificationType)
        .where(QualificationType.id == own.id)
        .values(description=own.description, active=own.active, **asdict(own.terms))
    )


def delete_type(connection: Connection, own: QualificationTypeRow) -> None:
    """Take a type out of use: its name is free again; who holds it goes on to meet the HITs that ask for it."""
    connection.execute(
        update(QualificationType)
        .where(QualificationType.id == own.id)
        # Longer than any name that the API takes, so that no type can be in its way.
        .values(name=f"deleted {own.mturk_id} ".ljust(240, "-"), description="", keywords="", active=False)
    )


def find_type(connection: Connection, environment: Environment, mturk_id: str) -> QualificationTypeRow | None:
    """The type of this id."""
    row = connection.execute(
        _TYPE.where(QualificationType.mturk_id == mturk_id, QualificationType.environment == environment)
    ).one_or_none()
    return None if row is None else _type_row(row)


def list_types(
    connection: Connection,
    environment: Environment,
    *,
    query: str | None = None,
    requestable: bool = False,
    after: int = 0,
    limit: int | None = None,
) -> list[QualificationTypeRow]:
    """Types whose name, description or keywords hold ``query``, oldest first."""
    wanted = _TYPE.where(QualificationType.environment == environment, QualificationType.id > after)
    if query:
        wanted = wanted.where(
            QualificationType.name.icontains(query, autoescape=True)
            | QualificationType.description.icontains(query, autoescape=True)
            | QualificationType.keywords.icontains(query, autoescape=True)
        )
    if requestable:
        wanted = wanted.where(QualificationType.active)
    rows = connection.execute(wanted.order_by(QualificationType.id).limit(limit))
    return [_type_row(row) for row in rows]


def find_worker(connection: Connection, environment: Environment, mturk_id: str) -> WorkerRow | None:
    """The worker of this id, whether shut out or not."""
    wanted = select(*columns(WorkerRow, Worker)).where(
        Worker.mturk_id == mturk_id, Worker.environment == environment
    )
    return first(connection, WorkerRow, wanted)


def find(connection: Connection, type_id: int, worker_id: int) -> QualificationRow | None:
    """What this worker holds, or held, of this type."""
    wanted = _HELD.where(Qualification.qualification_type_id == type_id, Qualification.worker_id == worker_id)
    return first(connection, QualificationRow, wanted)


def find_held(connection: Connection, type_id: int, worker_id: int) -> QualificationRow | None:
    """What this worker holds of this type now."""
    row = find(connection, type_id, worker_id)
    return None if row is None or row.revoked_at is not None else row


def list_held(connection: Connection, worker_id: int) -> dict[str, QualificationRow]:
    """What a worker holds, by type id."""
    rows = connection.execute(
        _HELD.where(Qualification.worker_id == worker_id, Qualification.revoked_at.is_(None))
    )
    return {row.type: row for row in (QualificationRow(*values) for values in rows)}


def grant(connection: Connection, type_id: int, worker_id: int, value: int | None, now: dt.datetime) -> None:
    """Give a worker a qualification, or change its value."""
    kept = find(connection, type_id, worker_id)
    if kept is None:
        connection.execute(
            insert(Qualification).values(
                qualification_type_id=type_id,
                worker_id=worker_id,
                value=value,
                granted_at=now,
                revoked_at=None,
            )
        )
    else:
        connection.execute(
            update(Qualification)
            .where(Qualification.id == kept.id)
            .values(value=value, granted_at=now, revoked_at=None)
        )


def revoke(connection: Connection, qualification_id: int, now: dt.datetime) -> None:
    """Take a qualification away; its row stays."""
    connection.execute(
        update(Qualification).where(Qualification.id == qualification_id).values(revoked_at=now)
    )


def list_holders(
    connection: Connection, type_id: int, *, granted: bool, after: int, limit: int
) -> list[QualificationRow]:
    """Who holds this type, or whose was revoked, oldest first."""
    state = Qualification.revoked_at.is_(None) if granted else Qualification.revoked_at.is_not(None)
    wanted = (
        _HELD.where(Qualification.qualification_type_id == type_id, Qualification.id > after, state)
        .order_by(Qualification.id)
        .limit(limit)
    )
    return every(connection, QualificationRow, wanted)


def held_by(connection: Connection, worker: WorkerRow) -> dict[str, int | None]:
    """The values of the qualifications that a worker holds, by type id."""
    return dict(connection.execute(_HELD_BY, {"me": worker.id}).all())


def _type_row(row: Row[Any]) -> QualificationTypeRow:
    own_id, mturk_id, name, description, keywords, active, created_at, *terms = tuple(row)
    own_terms = Terms(*terms)
    return QualificationTypeRow(own_id, mturk_id, name, description, keywords, active, created_at, own_terms)
