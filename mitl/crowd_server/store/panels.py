"""Panels, the visits of their participants, and which worker a participant is.

What panels call people stands in one table, so that it can be emptied."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, bindparam, delete, func, select

from mitl.crowd_server.store.database import Books, Prepared, Wide, add_row, change_row, every, first
from mitl.crowd_server.store.models import (
    CrowdAssignment,
    CrowdWorker,
    Panel,
    PanelIdentity,
    PanelVisit,
    VisitState,
)
from mitl.crowd_server.store.workers import WorkerRow
from mitl.db.base import columns
from mitl.records import Environment


@dataclass(frozen=True, slots=True)
class PanelRow:
    """A study link given to a panel."""

    id: int
    environment: Environment
    slug: str
    profile: str
    invitation_id: int
    worker_parameter: str
    study_parameter: str
    session_parameter: str
    hits_per_visit: int
    ends: str
    created_at: dt.datetime
    closed_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class VisitRecord:
    """A visit as the operator compares it with the panel's own list."""

    worker: str
    external_id: str | None
    """The panel's id of the person; None once it was forgotten."""
    session: str
    study: str
    state: VisitState
    hits_done: int
    started_at: dt.datetime
    ended_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class VisitRow:
    """One participant's visit, with what its pages need of the panel."""

    id: int
    worker_id: int
    session: str
    study: str
    state: VisitState
    hits_done: int
    slug: str
    profile: str
    hits_per_visit: int
    ends: str

    @property
    def is_open(self) -> bool:
        """Whether HITs can still be done on this visit."""
        return self.state is VisitState.OPEN


_PANEL: Wide = select(*columns(PanelRow, Panel))
_VISIT: Wide = select(
    *columns(
        VisitRow,
        PanelVisit,
        slug=Panel.slug,
        profile=Panel.profile,
        hits_per_visit=Panel.hits_per_visit,
        ends=Panel.ends,
    )
).join(Panel, Panel.id == PanelVisit.panel_id)
_BY_ID = _VISIT.where(PanelVisit.id == bindparam("own"))
_OF_ASSIGNMENT = Prepared(
    select(PanelVisit.id, PanelVisit.hits_done, Panel.hits_per_visit)
    .join(Panel, Panel.id == PanelVisit.panel_id)
    .join(CrowdAssignment, CrowdAssignment.worker_id == PanelVisit.worker_id)
    .where(CrowdAssignment.id == bindparam("assignment"), PanelVisit.state == VisitState.OPEN)
    .order_by(PanelVisit.id.desc())
    .limit(1)
)


def add(connection: Connection, panel: PanelRow) -> int:
    """Keep a new panel; its ``id`` is not looked at."""
    return add_row(
        connection, Panel, **{name: value for name, value in asdict(panel).items() if name != "id"}
    )


def find(connection: Connection, slug: str) -> PanelRow | None:
    """The panel whose study link ends in this slug."""
    return first(connection, PanelRow, _PANEL.where(Panel.slug == slug))


def list_panels(connection: Connection) -> list[tuple[PanelRow, Mapping[VisitState, int]]]:
    """All panels, newest first, each with its number of visits by state."""
    counts: defaultdict[int, Counter[VisitState]] = defaultdict(Counter)
    by_state = (PanelVisit.panel_id, PanelVisit.state)
    for panel_id, state, count in connection.execute(select(*by_state, func.count()).group_by(*by_state)):
        counts[panel_id][state] = count
    return [(row, counts[row.id]) for row in every(connection, PanelRow, _PANEL.order_by(Panel.id.desc()))]


def visit_records(connection: Connection, panel_id: int) -> list[VisitRecord]:
    """All visits of a panel, oldest first."""
    known_as = select(func.min(PanelIdentity.external_id)).where(PanelIdentity.worker_id == CrowdWorker.id)
    names = {"worker": CrowdWorker.mturk_id, "external_id": known_as.scalar_subquery()}
    query = (
        select(*columns(VisitRecord, PanelVisit, **names))
        .join(CrowdWorker, CrowdWorker.id == PanelVisit.worker_id)
        .where(PanelVisit.panel_id == panel_id)
        .order_by(PanelVisit.id)
    )
    return every(connection, VisitRecord, query)


def close(connection: Connection, panel_id: int, now: dt.datetime) -> None:
    """Let nobody new in by this panel's link."""
    change_row(connection, Panel, panel_id, closed_at=now)


def change_ends(connection: Connection, panel_id: int, ends: str) -> None:
    """Send everybody who comes to an end from now on another way back."""
    change_row(connection, Panel, panel_id, ends=ends)


def is_closed(connection: Connection, panel_id: int) -> bool:
    """Whether nobody new is let in."""
    closed_at = connection.execute(select(Panel.closed_at).where(Panel.id == panel_id)).scalar_one()
    return closed_at is not None


def visit(connection: Connection, visit_id: int) -> VisitRow | None:
    """A visit by its row."""
    return first(connection, VisitRow, _BY_ID, own=visit_id)


def find_visit(connection: Connection, panel_id: int, session: str) -> VisitRow | None:
    """The visit of this panel's session."""
    query = _VISIT.where(PanelVisit.panel_id == panel_id, PanelVisit.session == session)
    return first(connection, VisitRow, query)


def add_visit(
    connection: Connection, panel_id: int, worker_id: int, session: str, study: str, now: dt.datetime
) -> int:
    """A new open visit."""
    of = {"panel_id": panel_id, "worker_id": worker_id, "session": session, "study": study}
    return add_row(connection, PanelVisit, **of, state=VisitState.OPEN, hits_done=0, started_at=now)


def set_state(connection: Connection, visit_id: int, state: VisitState, now: dt.datetime) -> None:
    """End a visit, or open it again."""
    ended_at = None if state is VisitState.OPEN else now
    change_row(connection, PanelVisit, visit_id, state=state, ended_at=ended_at)


def count_hit(connection: Connection, assignment_id: int, now: dt.datetime) -> None:
    """Count a submission for its worker's newest open visit, and end the visit with its last HIT."""
    rows = _OF_ASSIGNMENT.rows(connection, {"assignment": assignment_id})
    if not rows:
        return
    visit_id, hits_done, wanted = rows[0]
    change_row(connection, PanelVisit, visit_id, hits_done=PanelVisit.hits_done + 1)
    if hits_done + 1 >= wanted:
        set_state(connection, visit_id, VisitState.COMPLETED, now)


FORGOTTEN = "forgotten-"
_FIND_IDENTITY = (
    select(*columns(WorkerRow, CrowdWorker))
    .join(PanelIdentity, PanelIdentity.worker_id == CrowdWorker.id)
    .where(
        PanelIdentity.environment == bindparam("of"),
        PanelIdentity.profile == bindparam("by"),
        PanelIdentity.external_id == bindparam("known_as"),
    )
)


def find_identity(books: Books, scope: str, external_id: str) -> WorkerRow | None:
    """The worker whom this participant is; ``scope`` says where the id is unique."""
    values = {"of": books.environment, "by": scope, "known_as": external_id}
    return first(books.connection, WorkerRow, _FIND_IDENTITY, **values)


def add_identity(connection: Connection, worker: WorkerRow, scope: str, external_id: str) -> None:
    """Remember which worker this participant is."""
    owner = {"environment": worker.environment, "worker_id": worker.id}
    add_row(connection, PanelIdentity, **owner, profile=scope, external_id=external_id)


def external_id(connection: Connection, worker_id: int) -> str | None:
    """The panel's id of this worker; None once it was forgotten."""
    query = select(PanelIdentity.external_id).where(PanelIdentity.worker_id == worker_id)
    return connection.scalar(query.limit(1))


def identified(connection: Connection, environment: Environment) -> list[int]:
    """Rows of this environment's workers whose panel's id is known."""
    query = select(PanelIdentity.worker_id).where(PanelIdentity.environment == environment)
    return list(connection.scalars(query))


def forget(connection: Connection, worker_ids: Sequence[int]) -> None:
    """Delete what a panel calls these workers, in their visits too; their work and what they are owed stay."""
    for worker_id in worker_ids:
        connection.execute(delete(PanelIdentity).where(PanelIdentity.worker_id == worker_id))
        visits = connection.scalars(select(PanelVisit.id).where(PanelVisit.worker_id == worker_id))
        for visit_id in visits.all():
            change_row(connection, PanelVisit, visit_id, session=f"{FORGOTTEN}{visit_id}", study="")
