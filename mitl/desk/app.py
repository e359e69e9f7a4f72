"""The review desk: its pages behind their guard, and running them."""

from __future__ import annotations

import secrets
import webbrowser
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypedDict

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from mitl.crowd.context import choose_environment
from mitl.crowd_server.serving import serve as run_server
from mitl.db.session import open_database
from mitl.desk import guard, overview_page, queue_pages, worker_pages
from mitl.desk.decision_sender import DecisionSender
from mitl.desk.desk import PAGES, Access, Desk, require_loopback
from mitl.desk.guard import Guard
from mitl.interrupts import how_to_stop
from mitl.records import Environment, StageResult
from mitl.records.results import printed_by
from mitl.settings import Settings
from mitl.stages.reviewing.decisions import carry_out_kept

STATIC = ("desk.css", "desk.js")
MODULES: tuple[Any, ...] = (overview_page, worker_pages, queue_pages)
"""Each names its pages in ``ROUTES`` (path, handler(desk, request)) and the forms that it takes in ``FORMS``
(path, handler(desk, request, fields))."""


def create_app(desk: Desk) -> Starlette:
    """The desk's pages behind its guard."""
    routes = [Route("/static/{name}", _static)]
    for module in MODULES:
        routes += [Route(path, partial(guard.page, desk, handler)) for path, handler in module.ROUTES]
        routes += [
            Route(path, partial(guard.form, desk, handler), methods=["POST"])
            for path, handler in module.FORMS
        ]

    def unknown(request: Request, error: Exception) -> Response:
        return desk.notice(404, "No such page", "The desk has no page of this address.")

    def wrong_method(request: Request, error: Exception) -> Response:
        return desk.notice(405, "Not here", "This address takes no such request.")

    app = Starlette(routes=routes, exception_handlers={404: unknown, 405: wrong_method})
    app.add_middleware(Guard, desk=desk)
    return app


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        return Response("no such file", 404, media_type="text/plain")
    return FileResponse(PAGES / name, headers={"Cache-Control": "no-cache"})


def make_desk(settings: Settings, environment: Environment | None, *, port: int) -> Desk:
    """A desk over one environment of a project, with secrets of its own.

    Raises:
        StoreError: there is no database, or it is of another version.
    """
    with open_database(settings.db_url, read_only=True) as session:
        chosen = choose_environment(session, environment)
    sender = DecisionSender(partial(carry_out_kept, settings, chosen))
    return Desk(settings, chosen, Access(str(port) if port else secrets.token_hex(4)), sender)


@printed_by("desk")
class DeskCounts(TypedDict):
    """Where the desk can be reached."""

    environment: Annotated[str, "sandbox or live"]
    url: Annotated[str, "where the desk listens"]
    link: Annotated[str, "the address that opens it, with its token"]


def desk(
    settings: Settings,
    environment: Environment | None,
    *,
    host: str,
    port: int,
    browser: bool,
    announce: Callable[[StageResult], None],
) -> None:
    """Serve the desk until interrupted; calls that are under way are finished before it ends.

    Args:
        browser: open the link in this machine's browser, where it has one.
        announce: is given the link once the desk can be reached.

    Raises:
        UsageError: the address is not this machine's loopback.
        EndpointError: the port is in use.
        StoreError: there is no database, or it is of another version.
    """
    require_loopback(host)
    made = make_desk(settings, environment, port=port)

    def ready(url: str) -> None:
        link = f"{url}/?token={made.access.token}"
        announce(
            StageResult(
                counts=DeskCounts(url=url, link=link, environment=made.environment.value),
                lines=(
                    f"review desk on {url}, {made.environment} ({how_to_stop()})",
                    f"  open: {link}",
                    "  the link is of this start alone; give it to nobody",
                ),
            )
        )
        if browser and _has_window():
            webbrowser.open(link)

    try:
        run_server(create_app(made), host.strip("[]"), port, ready=ready)
    finally:
        made.sender.close()


def _has_window() -> bool:
    """Whether there is a browser with a window; one in the terminal would take it from the desk."""
    try:
        return type(webbrowser.get()) is not webbrowser.GenericBrowser
    except webbrowser.Error:
        return False
