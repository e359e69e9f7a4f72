"""Which worker a panel's participant is; the only table with panels' ids of people, so that it can be emptied."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, delete, insert, or_, select, update

from mitl.crowd_server.models import PanelIdentity, PanelVisit, Worker
from mitl.crowd_server.store.workers import WorkerRow
from mitl.records import Environment

FORGOTTEN = "forgotten-"
_FIND = (
    select(Worker.id, Worker.mturk_id, Worker.environment, Worker.invitation_id)
    .join(PanelIdentity, PanelIdentity.worker_id == Worker.id)
    .where(
        PanelIdentity.environment == bindparam("of"),
        PanelIdentity.profile == bindparam("by"),
        PanelIdentity.external_id == bindparam("known_as"),
    )
)


def find(connection: Connection, environment: Environment, scope: str, external_id: str) -> WorkerRow | None:
    """The worker whom this participant is; ``scope`` says where the id is unique."""
    row = connection.execute(_FIND, {"of": environment, "by": scope, "known_as": external_id}).one_or_none()
    return None if row is None else WorkerRow(*row)


def add(connection: Connection, worker: WorkerRow, scope: str, external_id: str) -> None:
    """Remember which worker this participant is."""
    connection.execute(
        insert(PanelIdentity).values(
            environment=worker.environment, profile=scope, external_id=external_id, worker_id=worker.id
        )
    )


def external_id(connection: Connection, worker_id: int) -> str | None:
    """The panel's id of this worker; None once it was forgotten."""
    return connection.execute(
        select(PanelIdentity.external_id).where(PanelIdentity.worker_id == worker_id).limit(1)
    ).scalar_one_or_none()


def known_as(connection: Connection, name: str) -> list[int]:
    """Rows of the workers with this worker id or this panel's id."""
    return list(
        connection.execute(
            select(PanelIdentity.worker_id)
            .join(Worker, Worker.id == PanelIdentity.worker_id)
            .where(or_(PanelIdentity.external_id == name, Worker.mturk_id == name))
        ).scalars()
    )


def of_environment(connection: Connection, environment: Environment) -> list[int]:
    """Rows of all workers of this environment whose panel's id is known."""
    return list(
        connection.execute(
            select(PanelIdentity.worker_id).where(PanelIdentity.environment == environment)
        ).scalars()
    )


def forget(connection: Connection, worker_ids: Sequence[int]) -> None:
    """Delete what a panel calls these workers, in their visits too; their work and what they are owed stay."""
    for worker_id in worker_ids:
        connection.execute(delete(PanelIdentity).where(PanelIdentity.worker_id == worker_id))
        visits = connection.execute(select(PanelVisit.id).where(PanelVisit.worker_id == worker_id)).scalars()
        for visit_id in visits.all():
            connection.execute(
                update(PanelVisit)
                .where(PanelVisit.id == visit_id)
                .values(session=f"{FORGOTTEN}{visit_id}", study="")
            )
