"""Workers whom a requester keeps from all of their HITs."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select, update

from mitl.crowd_server.models import Worker, WorkerBlock
from mitl.crowd_server.store.workers import WorkerRow
from mitl.records import Environment


@dataclass(frozen=True, slots=True)
class BlockRow:
    """A block; ``id`` is the key of the worker's row."""

    id: int
    worker: str
    reason: str


def is_blocked(connection: Connection, worker_id: int) -> bool:
    """Whether this worker is kept from all HITs."""
    found = connection.execute(select(WorkerBlock.worker_id).where(WorkerBlock.worker_id == worker_id))
    return found.first() is not None


def add(connection: Connection, worker: WorkerRow, reason: str, now: dt.datetime) -> bool:
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


def remove(connection: Connection, worker_id: int) -> bool:
    """Lift a block; whether there was one."""
    result = connection.execute(delete(WorkerBlock).where(WorkerBlock.worker_id == worker_id))
    return result.rowcount == 1


def list_blocks(
    connection: Connection, environment: Environment, *, after: int, limit: int
) -> list[BlockRow]:
    """Who is blocked, in the order in which they joined."""
    rows = connection.execute(
        select(WorkerBlock.worker_id, Worker.mturk_id, WorkerBlock.reason)
        .join(Worker, Worker.id == WorkerBlock.worker_id)
        .where(WorkerBlock.environment == environment, WorkerBlock.worker_id > after)
        .order_by(WorkerBlock.worker_id)
        .limit(limit)
    )
    return [BlockRow(*row) for row in rows]
