"""What surrounds every worker's page: whose it is, where to ask, what is unread, and the panel visit it belongs to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

from sqlalchemy import Connection
from starlette.requests import Request

from mitl.crowd_server.ids import seal, unseal
from mitl.crowd_server.site import Site
from mitl.crowd_server.store import blocks, messages, panels, studies
from mitl.crowd_server.store.panels import VisitRow
from mitl.crowd_server.store.workers import WorkerRow
from mitl.records import Environment

VISIT_COOKIE = "mitl_visit"
_MAIL = re.compile(r"[^\s@<>\"']+@[^\s@<>\"']+\.[A-Za-z]{2,}")
_WEB = re.compile(r"https://[^\s<>\"']+")


@dataclass(frozen=True, slots=True)
class Shell:
    """What ``base.html.j2`` shows around a page; hand it over as ``shell=``."""

    worker: WorkerRow
    contact: str
    """Whom to ask, as the operator wrote it; empty where no study is described."""
    warning: str
    """The study's content warning."""
    unread: int
    """Messages."""
    visit: VisitRow | None
    """The panel visit; its pages lead only to what the visit gives."""
    is_blocked: bool
    """Whether the requester keeps this worker from all HITs."""

    @property
    def practice(self) -> bool:
        """Whether this is the sandbox, where nothing is paid."""
        return self.worker.environment is Environment.SANDBOX

    @property
    def contact_href(self) -> str:
        """The contact as a link's address where it is an e-mail or https address; else empty."""
        return contact_href(self.contact)


def contact_href(contact: str) -> str:
    """``mailto:`` or https; empty for any other text."""
    if _MAIL.fullmatch(contact):
        return "mailto:" + quote(contact, safe="@+._-")
    return contact if _WEB.fullmatch(contact) else ""


def shell(site: Site, request: Request, worker: WorkerRow) -> Shell:
    """What surrounds this worker's page."""
    with site.database.read() as connection:
        study = studies.find(connection, worker.environment)
        return Shell(
            worker=worker,
            contact=study.contact if study is not None else "",
            warning=study.warning if study is not None else "",
            unread=messages.unread(connection, worker.id),
            visit=find_visit(site, request, worker, connection),
            is_blocked=blocks.is_blocked(connection, worker.id),
        )


def visit_of(site: Site, request: Request, worker: WorkerRow) -> VisitRow | None:
    """The panel visit that this browser is on; None for workers who came by invitation."""
    with site.database.read() as connection:
        return find_visit(site, request, worker, connection)


def find_visit(site: Site, request: Request, worker: WorkerRow, connection: Connection) -> VisitRow | None:
    """As ``visit_of``, within a transaction; a browser without the visit's cookie is on the latest one."""
    own_id = unseal(site.secret, "visit", request.cookies.get(VISIT_COOKIE, ""))
    if own_id is not None:
        visit = panels.visit(connection, int(own_id))
        if visit is not None and visit.worker_id == worker.id:
            return visit
    return panels.latest_visit(connection, worker.id)


def seal_visit(site: Site, visit_id: int) -> str:
    """The value of a visit's cookie."""
    return seal(site.secret, "visit", str(visit_id))
