"""What requesters told workers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, func, insert, select, update

from mitl.crowd_server.store.database import every
from mitl.crowd_server.store.models import Assignment, AssignmentState, Message, Worker
from mitl.records import Environment


@dataclass(frozen=True, slots=True)
class MessageRow:
    """One message on a worker's page."""

    id: int
    subject: str
    text: str
    sent_at: dt.datetime
    read_at: dt.datetime | None


_ROW = (Message.id, Message.subject, Message.text, Message.sent_at, Message.read_at)
_UNREAD = select(func.count()).where(Message.worker_id == bindparam("me"), Message.read_at.is_(None))


def tell(
    connection: Connection,
    environment: Environment,
    worker_id: int,
    *,
    subject: str,
    text: str,
    now: dt.datetime,
) -> None:
    """Write a message to a worker, by the key of their row; their pages then show one more as unread."""
    connection.execute(
        insert(Message).values(
            environment=environment,
            worker_id=worker_id,
            subject=subject,
            text=text,
            sent_at=now,
            read_at=None,
        )
    )


def tell_worker(
    connection: Connection,
    environment: Environment,
    mturk_id: str,
    *,
    subject: str,
    text: str,
    now: dt.datetime,
) -> bool:
    """As ``tell``, by the worker's id on the wire; whether there is such a worker in this environment."""
    own_id = connection.execute(
        select(Worker.id).where(Worker.mturk_id == mturk_id, Worker.environment == environment)
    ).scalar_one_or_none()
    if own_id is not None:
        tell(connection, environment, own_id, subject=subject, text=text, now=now)
    return own_id is not None


def unread(connection: Connection, worker_id: int) -> int:
    """How many messages a worker has not seen yet."""
    return int(connection.execute(_UNREAD, {"me": worker_id}).scalar_one())


def page(connection: Connection, worker_id: int, *, before: int | None, limit: int) -> list[MessageRow]:
    """A worker's messages, newest first, older than the one of id ``before``."""
    wanted = select(*_ROW).where(Message.worker_id == worker_id)
    if before is not None:
        wanted = wanted.where(Message.id < before)
    return every(connection, MessageRow, wanted.order_by(Message.id.desc()).limit(limit))


def mark_read(connection: Connection, worker_id: int, ids: Iterable[int], now: dt.datetime) -> None:
    """Note that a worker saw these messages of theirs."""
    connection.execute(
        update(Message)
        .where(Message.worker_id == worker_id, Message.id.in_(list(ids)), Message.read_at.is_(None))
        .values(read_at=now)
    )


def acquaintances(
    connection: Connection, environment: Environment, mturk_ids: Iterable[str]
) -> dict[str, tuple[int, bool, bool]]:
    """For those ids that are workers: (key of the row, whether work was decided, whether work waits)."""
    decided = Assignment.state.in_((AssignmentState.APPROVED, AssignmentState.REJECTED))
    waits = Assignment.state == AssignmentState.SUBMITTED
    rows = connection.execute(
        select(
            Worker.mturk_id,
            Worker.id,
            select(Assignment.id).where(Assignment.worker_id == Worker.id, decided).exists(),
            select(Assignment.id).where(Assignment.worker_id == Worker.id, waits).exists(),
        ).where(Worker.environment == environment, Worker.mturk_id.in_(list(mturk_ids)))
    )
    return {mturk_id: (own_id, bool(is_decided), bool(waits)) for mturk_id, own_id, is_decided, waits in rows}
