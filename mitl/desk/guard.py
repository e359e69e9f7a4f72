"""The desk's door: host, session, origin of forms, headers, and errors as one line."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mitl.desk.desk import Desk, is_own_host
from mitl.errors import CrowdError, MitlError, StoreError, UsageError

MAX_FORM = 64 * 1024
"""Bytes."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: https:; connect-src 'self'; "
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


class Guard:
    """Lets in what asks for this machine by name and has the session, and nothing else."""

    def __init__(self, app: ASGIApp, desk: Desk) -> None:
        self._app = app
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on."""
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(HTTPConnection(scope))
        await (refusal or self._app)(scope, receive, with_headers)

    def _refusal(self, connection: HTTPConnection) -> Response | None:
        desk = self._desk
        if not is_own_host(connection.headers.get("host", "")):
            return Response(
                "this desk answers only as 127.0.0.1 or localhost\n", 421, media_type="text/plain"
            )
        token = connection.query_params.get("token")
        if token is not None and desk.access.opens(token):
            return _enter(desk)
        if desk.access.knows(connection) or connection.scope["path"].startswith("/static/"):
            return None
        return desk.notice(
            403,
            "Open the desk's own link",
            "Open the link that “mitl desk” printed when it was started. Each start has a link of its own, "
            "and an older one no longer works.",
            known=False,
        )


def _enter(desk: Desk) -> Response:
    # A page that goes on by itself, not a redirect: a browser that was led here by another site's page (a terminal
    # in the browser, say) would not send a strict cookie along a redirect.
    response: HTMLResponse = desk.page("enter.html.j2", None)
    response.set_cookie(desk.access.cookie, desk.access.session, path="/", httponly=True, samesite="strict")
    return response


async def page(desk: Desk, handler: Page, request: Request) -> Response:
    """A page, made in a thread; what a person can mend is told as one line."""
    try:
        return await run_in_threadpool(handler, desk, request)
    except MitlError as error:
        return desk.notice(_status(error), "That did not work", _sentence(error))


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
    try:
        return await run_in_threadpool(handler, desk, request, fields)
    except MitlError as error:
        return desk.notice(_status(error), "That did not work", _sentence(error))


async def _fields(request: Request) -> dict[str, str] | None:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM:
            return None
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


def _status(error: MitlError) -> int:
    kinds: tuple[tuple[type[MitlError], int], ...] = (
        (UsageError, 422),
        (StoreError, 409),
        (CrowdError, 502),
    )
    return next((status for kind, status in kinds if isinstance(error, kind)), 500)


def _sentence(error: MitlError) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."
