"""Workers' requests for qualifications, from the opened test to the decision."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, insert, select, update

from mitl.crowd_server.protocol.ids import entity_id
from mitl.crowd_server.store.database import Wide, every, first, new_id
from mitl.crowd_server.store.models import (
    Hit,
    HitType,
    QualificationRequest,
    QualificationType,
    RequestState,
    Worker,
)
from mitl.crowd_server.store.workers import WorkerRow
from mitl.records import Environment


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
    test_duration_s: int | None

    @property
    def deadline(self) -> dt.datetime:
        """Until when the test may be sent."""
        return self.started_at + dt.timedelta(seconds=self.test_duration_s or 0)


_ROW: Wide = (
    select(
        QualificationRequest.id,
        QualificationRequest.mturk_id,
        QualificationRequest.type_id,
        QualificationType.mturk_id,
        QualificationType.name,
        QualificationRequest.worker_id,
        Worker.mturk_id,
        QualificationRequest.state,
        QualificationRequest.answer,
        QualificationRequest.started_at,
        QualificationRequest.submitted_at,
        QualificationRequest.decided_at,
        QualificationRequest.reason,
        QualificationType.test_duration_s,
    )
    .join(QualificationType, QualificationType.id == QualificationRequest.type_id)
    .join(Worker, Worker.id == QualificationRequest.worker_id)
)
UNDECIDED = (RequestState.TESTING, RequestState.PENDING)


def add(
    connection: Connection, worker: WorkerRow, type_id: int, state: RequestState, now: dt.datetime
) -> RequestRow:
    """A new request, as a test that starts or, without one, as sent and perhaps granted at once."""
    sent = state is not RequestState.TESTING
    result = connection.execute(
        insert(QualificationRequest).values(
            mturk_id=entity_id(),
            environment=worker.environment,
            type_id=type_id,
            worker_id=worker.id,
            state=state,
            answer="",
            started_at=now,
            submitted_at=now if sent else None,
            decided_at=now if state is RequestState.GRANTED else None,
            reason="",
        )
    )
    row = connection.execute(_ROW.where(QualificationRequest.id == new_id(result))).one()
    return RequestRow(*row)


def find(connection: Connection, environment: Environment, mturk_id: str) -> RequestRow | None:
    """The request of this id."""
    wanted = _ROW.where(
        QualificationRequest.mturk_id == mturk_id, QualificationRequest.environment == environment
    )
    return first(connection, RequestRow, wanted)


def latest(connection: Connection, worker_id: int, type_id: int | None = None) -> dict[str, RequestRow]:
    """A worker's last request for each type, or for one, by type id."""
    last = select(func.max(QualificationRequest.id)).where(QualificationRequest.worker_id == worker_id)
    if type_id is not None:
        last = last.where(QualificationRequest.type_id == type_id)
    rows = connection.execute(
        _ROW.where(QualificationRequest.id.in_(last.group_by(QualificationRequest.type_id)))
    )
    return {row.type: row for row in (RequestRow(*values) for values in rows)}


def list_pending(
    connection: Connection, environment: Environment, *, type_id: int | None, after: int, limit: int
) -> list[RequestRow]:
    """Requests that wait for a decision, of all types or of one, oldest first."""
    wanted = _ROW.where(
        QualificationRequest.environment == environment,
        QualificationRequest.state == RequestState.PENDING,
        QualificationRequest.id > after,
    )
    if type_id is not None:
        wanted = wanted.where(QualificationRequest.type_id == type_id)
    return every(connection, RequestRow, wanted.order_by(QualificationRequest.id).limit(limit))


def tests_of(connection: Connection, type_ids: Sequence[int]) -> dict[int, str]:
    """The tests of those types that have one."""
    rows = connection.execute(
        select(QualificationType.id, QualificationType.test).where(
            QualificationType.id.in_(type_ids), QualificationType.test.is_not(None)
        )
    )
    return {own_id: test for own_id, test in rows if test is not None}


def restart(connection: Connection, request_id: int, now: dt.datetime) -> None:
    """Give a test its full time again."""
    connection.execute(
        update(QualificationRequest).where(QualificationRequest.id == request_id).values(started_at=now)
    )


def submit(connection: Connection, request_id: int, answer: str, now: dt.datetime) -> None:
    """Keep the answers to a test; the request then waits for its decision."""
    connection.execute(
        update(QualificationRequest)
        .where(QualificationRequest.id == request_id)
        .values(state=RequestState.PENDING, answer=answer, submitted_at=now)
    )


def decide(
    connection: Connection, request_id: int, state: RequestState, now: dt.datetime, *, reason: str = ""
) -> None:
    """Grant or reject a request; who holds the qualification is noted elsewhere."""
    connection.execute(
        update(QualificationRequest)
        .where(QualificationRequest.id == request_id)
        .values(state=state, reason=reason, decided_at=now)
    )


def reject_undecided(connection: Connection, type_id: int, reason: str, now: dt.datetime) -> list[int]:
    """Reject all requests for a type, tests in hand too; gives the keys of the workers whose request waited."""
    mine = (QualificationRequest.type_id == type_id, QualificationRequest.state.in_(UNDECIDED))
    told = connection.execute(select(QualificationRequest.worker_id).where(*mine).distinct()).scalars().all()
    connection.execute(
        update(QualificationRequest)
        .where(*mine)
        .values(state=RequestState.REJECTED, reason=reason, decided_at=now)
    )
    return list(told)


def asked_for(connection: Connection, environment: Environment, now: dt.datetime) -> set[str]:
    """The types that workers need for a HIT which can be taken now; one that shuts its holders out is none."""
    open_hit = (
        select(Hit.id)
        .where(
            Hit.hit_type_id == HitType.id,
            Hit.slots_left > 0,
            Hit.expires_at > now,
            Hit.deleted_at.is_(None),
        )
        .exists()
    )
    rows = connection.execute(
        select(HitType.requirements)
        .where(HitType.environment == environment, HitType.requirements != "[]", open_hit)
        .distinct()
    )
    return {
        requirement["QualificationTypeId"]
        for (requirements,) in rows
        for requirement in json.loads(requirements)
        if requirement["Comparator"] != "DoesNotExist"
    }
