"""The review desk: its pages behind their guard (host, session, origin of forms, headers), and running them."""

from __future__ import annotations

import secrets
import webbrowser
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mitl.campaign.kinds import kind_names, kind_of
from mitl.campaign.standing import keep_standings
from mitl.crowd.context import choose_environment
from mitl.crowd.paying import CarriedOut
from mitl.crowd_server.serving import serve as run_server
from mitl.db.migrate import revisions
from mitl.db.session import open_database
from mitl.desk import overview_page, queue_pages, worker_pages
from mitl.desk.decision_sender import DecisionSender
from mitl.desk.desk import PAGES, Access, Desk, is_own_host, require_loopback
from mitl.errors import MitlError
from mitl.interrupts import how_to_stop
from mitl.records import Environment, StageResult
from mitl.records.results import EnvironmentCounts, printed_by
from mitl.resources import read_all
from mitl.settings import Settings
from mitl.stages.reviewing.decisions import carry_out_kept

MAX_FORM = 64 * 1024
"""Bytes."""

POLICY = "Content-Security-Policy"
HEADERS = {
    POLICY: (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: https:; "
        "media-src 'self' https:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

Page = Callable[[Desk, Request], Response]
Form = Callable[[Desk, Request, dict[str, str]], Response]


class OwnHostOnly:
    """Answers only who asks for this machine by name, so that no page of another site can read along."""

    def __init__(
        self,
        app: ASGIApp,
        named: str,
        headers: Mapping[str, str] = HEADERS,
        refusal: Callable[[HTTPConnection], Response | None] = lambda connection: None,
    ) -> None:
        """``headers`` stand on every answer that has none of its own; ``refusal`` says whom else to refuse, and how."""
        self._app, self._named, self._headers, self._refusal = app, named, headers, refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on."""
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        connection = HTTPConnection(scope)
        if is_own_host(connection.headers.get("host", "")):
            refusal = self._refusal(connection)
        else:
            words = f"this {self._named} answers only as 127.0.0.1 or localhost\n"
            refusal = Response(words, 421, media_type="text/plain")
        await (refusal or self._app)(scope, receive, with_headers)


def _refuse_without_session(desk: Desk, connection: HTTPConnection) -> Response | None:
    token = connection.query_params.get("token")
    if token is not None and desk.access.opens(token):
        # A page that goes on by itself, not a redirect: a browser that was led here by another site's page (a terminal
        # in the browser, say) would not send a strict cookie along a redirect.
        response: HTMLResponse = desk.page("enter.html.j2", None)
        response.set_cookie(
            desk.access.cookie, desk.access.session, path="/", httponly=True, samesite="strict"
        )
        return response
    if desk.access.knows(connection) or connection.scope["path"].startswith("/static/"):
        return None
    return desk.notice(
        403,
        "Open the desk's own link",
        "Open the link that “mitl desk” printed when it was started. Each start has a link of its own, "
        "and an older one no longer works.",
        known=False,
    )


async def page(desk: Desk, handler: Page, request: Request) -> Response:
    """A page, made in a thread; what a person can mend is told as one line."""
    try:
        return await run_in_threadpool(handler, desk, request)
    except MitlError as error:
        return desk.failed(error)


async def form(desk: Desk, handler: Form, request: Request) -> Response:
    """What follows from a form of the desk's own."""
    fields = await _fields(request)
    if fields is None:
        return desk.notice(413, "Too long", f"A form of the desk has {MAX_FORM // 1024} KiB at most.")
    if not desk.access.allows(request, fields.get("form_token", "")):
        return desk.notice(
            403,
            "Not from this desk",
            "This form was not sent by a page of this desk, or by one of an earlier start. Nothing was done. "
            "Load the page again.",
        )
    return await page(desk, lambda desk, request: handler(desk, request, fields), request)


async def _fields(request: Request) -> dict[str, str] | None:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_FORM:
                return None
    except ClientDisconnect:
        return {}  # half a form is none, and nobody hears the answer
    # A browser sends the end of a line as two characters, and counts it as one against a field's most.
    pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {name: value.replace("\r\n", "\n") for name, value in pairs}


MODULES: tuple[Any, ...] = (overview_page, worker_pages, queue_pages)
"""Each names its pages in ``ROUTES`` (path, handler(desk, request)) and the forms that it takes in ``FORMS``
(path, handler(desk, request, fields))."""


def create_app(desk: Desk) -> Starlette:
    """The desk's pages behind its guard."""
    routes = [Route("/static/{name}", static({"desk.css": PAGES, "desk.js": PAGES}))]
    for module in MODULES:
        routes += [Route(path, partial(page, desk, handler)) for path, handler in module.ROUTES]
        routes += [
            Route(path, partial(form, desk, handler), methods=["POST"]) for path, handler in module.FORMS
        ]

    def unknown(request: Request, error: Exception) -> Response:
        return desk.notice(404, "No such page", "The desk has no page of this address.")

    def wrong_method(request: Request, error: Exception) -> Response:
        return desk.notice(405, "Not here", "This address takes no such request.")

    app = Starlette(routes=routes, exception_handlers={404: unknown, 405: wrong_method})
    headers = {**HEADERS, "Cache-Control": "no-store"}
    app.add_middleware(OwnHostOnly, "desk", headers, partial(_refuse_without_session, desk))
    return app


def static(homes: Mapping[str, Path]) -> Callable[[Request], Response]:
    """What answers for these files, by their names and the folders in which they lie."""

    def answer(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in homes:
            return Response("no such file", 404, media_type="text/plain")
        return FileResponse(homes[name] / name, headers={"Cache-Control": "no-cache"})

    return answer


def make_desk(settings: Settings, environment: Environment | None, *, port: int) -> Desk:
    """A desk over one environment of a project, with secrets of its own.

    Raises:
        StoreError: there is no database, or it is of another version.
    """
    with open_database(settings.db_url, read_only=True) as session:
        chosen = choose_environment(session, environment)

    def send() -> CarriedOut:
        done = carry_out_kept(settings, chosen)
        keep_standings(settings)  # a desk is open for days, and counts as a command does at its end
        return done

    return Desk(settings, chosen, Access(str(port) if port else secrets.token_hex(4)), DecisionSender(send))


LATE = ("mitl.audits.evidence", "mitl.crowd.transport", "mitl.crowd_server.admin", "mitl.crowd_server.app")
"""What commands load only where they need it."""


def _load_all() -> None:
    """Load what a page or a call would load late: mitl may be upgraded while a desk is open, and must not mix."""
    revisions("crowd")
    for name in kind_names():
        kind_of(name)
    for name in LATE:
        import_module(name)


@printed_by("desk")
class DeskCounts(EnvironmentCounts):
    """Where the desk can be reached."""

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
    _load_all()
    made = make_desk(settings, environment, port=port)
    read_all(made.templates)

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
        if browser and has_window():
            webbrowser.open(link)

    try:
        run_server(create_app(made), host.strip("[]"), port, ready=ready)
    finally:
        made.sender.close()


def has_window() -> bool:
    """Whether there is a browser with a window; one in the terminal would take it from the desk."""
    try:
        return type(webbrowser.get()) is not webbrowser.GenericBrowser
    except webbrowser.Error:
        return False
