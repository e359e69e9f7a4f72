"""Who asks for a worker's page: the session that an invitation opened, the panel visit, what surrounds every page."""

from __future__ import annotations

import datetime as dt
import functools
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, TypeAlias
from urllib.parse import quote

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mitl.core.paging import number_in
from mitl.crowd_server.pages.site import NoticeError, Site, keep_cookie, read_form
from mitl.crowd_server.protocol.ids import seal, token_hash, unseal
from mitl.crowd_server.store import leases, panels, workers
from mitl.crowd_server.store.database import Books, in_thread
from mitl.crowd_server.store.leases import LeaseRow
from mitl.crowd_server.store.panels import VisitRow
from mitl.crowd_server.store.workers import PageStanding, WorkerRow
from mitl.db.base import microseconds
from mitl.records import Environment

COOKIE = "mitl_worker"
PROBE_COOKIE = "mitl_keeps"
"""Says that this browser keeps cookies; without a session, an open invitation is asked for it first."""
COOKIE_AGE_S = 180 * 24 * 3600
VISIT_COOKIE = "mitl_visit"
BACK = ("/w", "Back to the list")
MAX_FORM = 4096
"""Bytes; the buttons of workers' pages send far less."""
_MAX_FIELDS = 20
NO_ENTRY = (
    403,
    "No entry",
    "This browser has no session here, or it is over. Open the link by which you came again: your invitation, or the "
    "study on your panel's site. If this page comes again then, allow cookies for this site and open the link once "
    "more. What you sent is kept, and what you had entered is still in this browser.",
)
NO_COOKIE = (
    403,
    "No entry",
    "Your browser did not keep this site's cookie. Allow cookies for it, then open the link by which you came again.",
)
WITHDRAWN = (
    403,
    "Your invitation was withdrawn",
    "You can take no more HITs here. What you sent is kept, also answers to a HIT that you had open, and what you are "
    "owed stays owed. Ask the person who invited you, or the panel that you came from.",
)
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


@dataclass(frozen=True, slots=True)
class Visitor:
    """The worker whose browser asks, with all that a page's handler needs to answer."""

    site: Site
    request: Request
    worker: WorkerRow
    _seen: dict[str, Any] = field(default_factory=dict, repr=False)
    """What was read since the last change."""

    @property
    def now(self) -> dt.datetime:
        """The crowd's time."""
        return self.site.clock()

    @contextmanager
    def read(self) -> Iterator[Books]:
        """The rows of this worker's environment, as they are now."""
        with self.site.database.read() as connection:
            yield Books(connection, self.worker.environment, self.now)

    @contextmanager
    def write(self) -> Iterator[Books]:
        """The same, to change them."""
        self._seen.clear()
        with self.site.database.write(self.worker.environment) as connection:
            yield Books(connection, self.worker.environment, self.now)
        self._seen.clear()

    def standing(self, connection: Connection) -> PageStanding:
        """The study, unread messages and block, read once for a page."""
        if "standing" not in self._seen:
            known = workers.find_standing(connection, self.worker.mturk_id)
            if known is None:
                raise NoticeError(*WITHDRAWN)  # since this page was asked for
            self._seen["standing"] = known[1]
        standing: PageStanding = self._seen["standing"]
        return standing

    def page(self, name: str, *, status: int = 200, **values: object) -> Response:
        """A page from its template, with what surrounds every worker's page."""
        return self.site.page(name, status=status, shell=self.shell(), **values)

    def notice(self, texts: Mapping[str, str]) -> str:
        """The text that the address asks for by ``notice``; empty for any other."""
        return texts.get(self.request.query_params.get("notice", ""), "")

    def shell(self) -> Shell:
        """What surrounds this worker's page."""
        with self.site.database.read() as connection:
            standing = self.standing(connection)
            return Shell(
                worker=self.worker,
                contact=standing.study.contact if standing.study is not None else "",
                warning=standing.study.warning if standing.study is not None else "",
                unread=standing.unread,
                visit=self.visit(connection),
                is_blocked=standing.is_blocked,
            )

    def visit(self, connection: Connection) -> VisitRow | None:
        """The panel visit that this browser is on; None for workers who came by invitation.

        A browser without the visit's cookie is on the latest one.
        """
        if "visit" not in self._seen:
            self._seen["visit"] = self._find_visit(connection)
        visit: VisitRow | None = self._seen["visit"]
        return visit

    def _find_visit(self, connection: Connection) -> VisitRow | None:
        latest = self.standing(connection).visit_id
        if latest is None:
            return None
        own_id = unseal(self.site.secret, "visit", self.request.cookies.get(VISIT_COOKIE, ""))
        if own_id is not None:
            visit = panels.visit(connection, int(own_id))
            if visit is not None and visit.worker_id == self.worker.id:
                return visit
        return panels.visit(connection, latest)


P = ParamSpec("P")
Fields: TypeAlias = Mapping[str, str]
Page: TypeAlias = Callable[[Site, Request], Response]
Form: TypeAlias = Callable[[Site, Request], Awaitable[Response]]


def for_workers(
    handler: Callable[Concatenate[Visitor, P], Response],
) -> Callable[Concatenate[Site, Request, P], Response]:
    """A page for workers alone; a browser without a session is told how to get one, who was shut out that they were."""

    @functools.wraps(handler)
    def answer(site: Site, request: Request, /, *args: P.args, **kwargs: P.kwargs) -> Response:
        visitor = visitor_of(site, request)
        if visitor is None:
            return site.notice(*(NO_ENTRY if worker_id_of(site, request) is None else WITHDRAWN))
        return handler(visitor, *args, **kwargs)

    return answer


def form(handler: Callable[[Visitor, Fields], Response]) -> Form:
    """What a form of the workers' own pages does; ``handler`` gets the first field of each name.

    It gets none where more came than those pages send.
    """
    answer = for_workers(handler)

    def in_one_view(site: Site, request: Request, fields: Fields) -> Response:
        with site.database.one_view():
            return answer(site, request, fields)

    @functools.wraps(handler)
    async def read(site: Site, request: Request) -> Response:
        pairs = await read_form(request, MAX_FORM, _MAX_FIELDS, BACK) or []
        # No page of ours sends a NUL, and PostgreSQL takes none.
        fields = {name: value.replace("\0", "") for name, value in reversed(pairs) if value}
        return await in_thread(in_one_view, site, request, fields)

    return read


def worker_id_of(site: Site, request: Request) -> str | None:
    """The worker whose session this browser holds, whether or not they were shut out since."""
    return unseal(site.secret, "worker", request.cookies.get(COOKIE, ""))


def visitor_of(site: Site, request: Request) -> Visitor | None:
    """Who asks; None without a session, or where the invitation was revoked."""
    mturk_id = worker_id_of(site, request)
    if mturk_id is None:
        return None
    with site.database.read() as connection:
        known = workers.find_standing(connection, mturk_id)
    return None if known is None else Visitor(site, request, known[0], {"standing": known[1]})


def join(site: Site, request: Request) -> Response:
    """Open an invitation: start a session and go to the list of HITs.

    A personal link leads to the same worker each time, on any browser, so that a lost cookie (or a chat
    program that previews links) costs nothing. Other links make a new worker for each new browser that keeps
    cookies: one that does not, or a preview, would take somebody's place each time it comes.
    """
    hashed = token_hash(request.path_params["token"])
    visitor = visitor_of(site, request)
    with site.database.write() as connection:
        invitation = workers.find_invitation(connection, hashed)
        if invitation is None:
            text = "This link is not known here. Check that it was copied whole."
            return site.notice(404, "No entry", text)
        now = site.clock()
        state = invitation.state(now)
        worker = None
        if visitor is not None and visitor.worker.invitation_id == invitation.id:
            worker = visitor.worker  # an open link, opened again in the same browser
        elif state == "joined":
            worker = workers.worker_of_invitation(connection, invitation.id)
        if worker is None and state != "open":
            text = f"This invitation is {state}. Ask the person who sent it for a new one."
            return site.notice(410, "No entry", text)
        if worker is None and not invitation.personal and not {COOKIE, PROBE_COOKIE} & request.cookies.keys():
            return site.notice(*NO_COOKIE) if "again" in request.query_params else _probe(request)
        if worker is None:
            worker = workers.add_worker(connection, invitation, now)
    response = RedirectResponse("/w", 303)
    start_session(site, request, response, worker)
    return response


def _probe(request: Request) -> Response:
    response = RedirectResponse(f"{request.url.path}?again=1", 303)
    keep_cookie(request, response, PROBE_COOKIE, "1", path="/w/join", samesite="lax")
    return response


def start_session(
    site: Site,
    request: Request,
    response: Response,
    worker: WorkerRow,
    others: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Make this browser the worker's, by a sealed cookie that lasts; ``others`` are cookies beside it."""
    for name, value in {COOKIE: seal(site.secret, "worker", worker.mturk_id), **others}.items():
        keep_cookie(request, response, name, value, max_age=COOKIE_AGE_S, path="/w", samesite="lax")


def seal_lease(site: Site, worker: str, assignment_id: int, accepted_at: dt.datetime) -> str:
    """The token of one worker's lease; taking the same HIT again after a return makes another."""
    return seal(site.secret, f"assignment {worker}", _lease(assignment_id, accepted_at))


def _lease(assignment_id: int, accepted_at: dt.datetime) -> str:
    return f"{assignment_id}-{microseconds(accepted_at)}"


def token_of(site: Site, lease: LeaseRow) -> str:
    """The token of this lease."""
    return seal_lease(site, lease.worker, lease.id, lease.accepted_at)


def lease_behind(site: Site, connection: Connection, token: str) -> LeaseRow | None:
    """The assignment that a token was made for, whether or not its HIT was taken again since.

    Once a backup was restored, the row may be another worker's, whose answers those behind the token are not.
    """
    row = number_in(token.partition("-")[0])
    lease = None if row is None else leases.find(connection, row)
    # The bare word is of tokens that earlier versions made and browsers still hold.
    purposes = () if lease is None else (f"assignment {lease.worker}", "assignment")
    return lease if any(unseal(site.secret, purpose, token) for purpose in purposes) else None


def is_newest(lease: LeaseRow, token: str) -> bool:
    """Whether this token, which is good for the assignment, is of its lease now: its HIT was not taken again since."""
    return token.startswith(f"{_lease(lease.id, lease.accepted_at)}.")


def current_lease(visitor: Visitor) -> tuple[LeaseRow, str] | None:
    """The HIT that this worker has open, and its token."""
    with visitor.read() as books:
        lease = leases.current(books, visitor.worker)
    return None if lease is None else (lease, token_of(visitor.site, lease))


def gone(back: tuple[str, str] = BACK) -> NoticeError:
    """The page for what is not there, or is another worker's."""
    return NoticeError(404, "Nothing here", "This page does not exist, or is not yours.", back)


def contact_href(contact: str) -> str:
    """``mailto:`` or https; empty for any other text."""
    if _MAIL.fullmatch(contact):
        return "mailto:" + quote(contact, safe="@+._-")
    return contact if _WEB.fullmatch(contact) else ""


ROUTES = (("/w/join/{token}", join),)
