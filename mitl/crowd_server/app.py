"""The crowd server as a Starlette application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from sqlalchemy import Engine
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from mitl.crowd_server import admin, frames, images, operator_page, sessions, worker_pages
from mitl.crowd_server.api.dispatch import RequesterApi
from mitl.crowd_server.clock import Clock, utc_now
from mitl.crowd_server.site import PAGES, Site
from mitl.crowd_server.store import accounts
from mitl.crowd_server.store.database import Database

Page = Callable[[Site, Request], Response | Awaitable[Response]]


def create_app(
    engine: Engine,
    *,
    clock: Clock = utc_now,
    signing_clock: Clock = utc_now,
    public: Sequence[Path] = (),
) -> Starlette:
    """The server over ``crowd.db``, which is made ready where it is new.

    Args:
        clock: the crowd's time, by which HITs expire, leases end and work is approved by itself.
        signing_clock: the time by which signatures are judged, which clients take from their machine.
        public: folders whose images are served under ``/i/``.

    Raises:
        StoreError: the database is of another version, or not the crowd server's.
    """
    admin.prepare(engine, clock=clock)
    database = Database(engine)
    with database.read() as connection:
        settings = accounts.settings(connection)
    server_id = settings["server_id"]
    site = Site(
        database=database,
        clock=clock,
        secret=settings["secret"],
        operator_token=settings["operator_token"],
        public=tuple(public),
    )

    def page(path: str, handler: Page, *methods: str) -> Route:
        return Route(path, _bound(handler, site), methods=list(methods or ("GET",)))

    def healthz(request: Request) -> Response:
        return JSONResponse(
            {"status": "ok", "server_id": server_id, "service": "mitl-crowd", "charges_fee": False}
        )

    def image(request: Request) -> Response:
        return images.image(site.public, request)

    def operator(request: Request) -> Response:
        return operator_page.operator(site, server_id, request)

    def home(request: Request) -> Response:
        return RedirectResponse("/w", 303)

    def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in ("style.css", "worker.js"):
            return Response("no such file", 404, media_type="text/plain")
        return FileResponse(
            PAGES / name, headers={"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
        )

    app = Starlette(
        routes=[
            Route("/", RequesterApi(database, clock, signing_clock).answer, methods=["POST"]),
            Route("/", home),
            Route("/healthz", healthz),
            Route("/i/{name}", image),
            Route("/operator", operator),
            Route("/w/static/{name}", static),
            page("/w", worker_pages.listing),
            page("/w/join/{token}", sessions.join),
            page("/w/accept", worker_pages.accept, "POST"),
            page("/w/preview/{hit_id}", worker_pages.preview),
            page("/w/preview/{token}/frame", frames.preview_frame),
            page("/w/a/{token}", worker_pages.around),
            page("/w/a/{token}/return", worker_pages.give_back, "POST"),
            page("/w/a/{token}/frame", frames.frame),
            page("/s/{token}/mturk/externalSubmit", frames.submit, "POST"),
        ]
    )
    app.state.server_id = server_id
    return app


def _bound(handler: Page, site: Site) -> Callable[[Request], Response | Awaitable[Response]]:
    """The handler with its site; Starlette runs plain functions in a thread and awaits the others."""
    return partial(handler, site)
