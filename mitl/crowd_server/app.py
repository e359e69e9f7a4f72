"""The crowd server as a Starlette application."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from mitl.core.clock import Clock, utc_now
from mitl.crowd_server import admin, media
from mitl.crowd_server.api.dispatch import RequesterApi
from mitl.crowd_server.api.registry import OPERATIONS
from mitl.crowd_server.middleware import meter, refusals
from mitl.crowd_server.operator import groups, invitations, page, payments, session
from mitl.crowd_server.pages.site import NoticeError, Site
from mitl.crowd_server.pages.templates import PAGES
from mitl.crowd_server.protocol.html_page import FRAME_SCRIPTS, MEDIA_TYPES, VENDORED, AllowedSources
from mitl.crowd_server.store import accounts
from mitl.crowd_server.store.database import Database, in_thread
from mitl.crowd_server.work import entry, hit_frame, listing, qualifications, visitor
from mitl.db.base import MOST_ROW
from mitl.db.explain import is_outage, reason

log = logging.getLogger(__name__)

Handler = Callable[..., Any]
STATIC = (
    *("style.css", "worker.js", "operator.css", "operator.js"),
    *("qualification.css", "qualification.js", "form_rules.js"),
    *FRAME_SCRIPTS,
)
MODULES: tuple[Any, ...] = (
    visitor,
    entry,
    listing,
    hit_frame,
    qualifications,
    page,
    session,
    groups,
    invitations,
    payments,
    meter,
)
"""Each names its pages in ``ROUTES``: path, handler(site, request), and methods other than GET."""


def create_app(
    engine: Engine,
    *,
    clock: Clock = utc_now,
    signing_clock: Clock = utc_now,
    public: Sequence[Path] = (),
    sources: AllowedSources | None = None,
    workers: int = 1,
) -> Starlette:
    """The server over ``crowd.db``, which is made ready where it is new.

    Args:
        clock: the crowd's time, by which HITs expire, leases end and work is approved by itself.
        signing_clock: the time by which signatures are judged, which clients take from their machine.
        public: folders whose images, sounds and videos are served under ``/i/``.
        sources: where requesters' pages may take scripts and styles from; nowhere by default.
        workers: how many processes, forked from this one, will answer.

    Raises:
        StoreError: the database is of another version, or not the crowd server's.
    """
    admin.prepare(engine, clock=clock)
    database = Database(engine)
    with database.read() as connection:
        settings = accounts.settings(connection)
    site = Site(
        server_id=settings["server_id"],
        database=database,
        clock=clock,
        secret=settings["secret"],
        operator_token=settings["operator_token"],
        public=tuple(public),
        sources=sources or AllowedSources(),
    )

    def healthz(request: Request) -> Response:
        about = {"server_id": site.server_id, "service": "mitl-crowd", "charges_fee": False}
        about |= {"workers": counted.workers, "workers_wanted": counted.wanted}
        asked = request.query_params.get("question", "")[:64]
        # The first connection may be one that the database's restart cut, and then the second is a new one.
        if place := _place(engine, asked) or _place(engine, asked):
            return JSONResponse({"status": "ok", "place": place, **about})
        return JSONResponse({"status": "no database", **about}, 503)

    def no_database(request: Request, error: Exception) -> Response:
        if not is_outage(error):
            raise error
        _tell(error, engine)
        return refusals.no_database().response(request.scope)

    def notice(request: Request, error: Exception) -> Response:
        return site.notice(*error.args)

    def vendored(request: Request) -> Response:
        path = site.sources.file(request.path_params["address"])
        if path is None:
            return Response("no such file", 404, media_type="text/plain")
        return _file(path, request)

    app = Starlette(
        routes=[
            # Tried from the first to the last: what is asked most comes first.
            Route("/", RequesterApi(site, signing_clock).answer, methods=["POST"]),
            *_pages(site),
            Route("/i/{name}", partial(media.serve, site.public)),
            Route("/w/static/{name}", _static),
            Route(VENDORED + "{address:path}", vendored),
            Route("/healthz", healthz),
            Route("/mturk-public/externalHIT_v1.js", _external_hit),
            Route("/", _home),
        ],
        exception_handlers={DBAPIError: no_database, NoticeError: notice},
    )
    # As the log names them: without what the parts of a path must look like.
    paths = {one.endpoint: re.sub(r":\w+}", "}", one.path) for one in app.routes if isinstance(one, Route)}
    app.state.paths = paths
    app.state.spans = session.KeptSpans()
    app.state.meter = counted = meter.Meter({*OPERATIONS, *paths.values()}, workers)
    app.state.site = site
    return app


def _place(engine: Engine, question: str) -> str | None:
    """Of the database; None, and a line in the log, while it does not answer."""
    try:
        return admin.place(engine, question)
    except DBAPIError as error:
        _tell(error, engine)
        return None


def _tell(error: DBAPIError, engine: Engine) -> None:
    log.error("the database does not answer: %s", reason(error, engine.url))


def _home(request: Request) -> Response:
    return RedirectResponse("/w", 303)


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        return Response("no such file", 404, media_type="text/plain")
    return _file(PAGES / name, request)


def _external_hit(request: Request) -> Response:
    """The script under the name that it had on Amazon's storage, for pages on other sites that load it."""
    return _file(PAGES / "externalHIT_v1.js", request)


def _file(path: Path, request: Request) -> Response:
    """A script, a style or what styles use; a page within a frame has no origin, yet may load modules and fonts.

    A browser asks at each page whether it changed, and is sent it when it did.
    """
    headers = {
        "Access-Control-Allow-Origin": "*",
        "Cache-Control": "no-cache",
        "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; sandbox",
        "X-Content-Type-Options": "nosniff",
    }
    suffix = path.suffix.lower()
    answer = FileResponse(path, headers=headers, media_type=MEDIA_TYPES[suffix], stat_result=path.stat())
    return media.unless_kept(request, answer)


def _pages(site: Site) -> Iterator[Route]:
    """The routes of all pages; plain functions run in a thread, others are awaited."""
    for module in MODULES:
        for path, handler, *methods in module.ROUTES:
            yield Route(path, _endpoint(site, handler), methods=methods or ["GET"])


def _endpoint(site: Site, handler: Handler) -> Handler:
    """The handler with its site; one that runs in a thread reads all that it shows in one transaction."""

    async def await_answer(request: Request) -> Any:
        _require_something(request)
        return await handler(site, request)

    def answer(request: Request) -> Any:
        _require_something(request)
        with site.database.one_view():
            return handler(site, request)

    return await_answer if inspect.iscoroutinefunction(handler) else partial(in_thread, answer)


def _require_something(request: Request) -> None:
    """Refuse an address of which a part is one that no row has, and that a database refuses even to compare."""
    for part in request.path_params.values():
        if "\0" in part if isinstance(part, str) else part > MOST_ROW:
            raise NoticeError(404, "Nothing here", "This page does not exist.")
