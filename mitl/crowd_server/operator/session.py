"""The operator's own sign-in: by the link that `mitl serve` prints, or by pasting its token."""

from __future__ import annotations

import datetime as dt
import functools
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias
from urllib.parse import parse_qs, parse_qsl, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mitl.addresses import parse_address
from mitl.crowd_server.door.proxies import key_of
from mitl.crowd_server.ids import seal, token_hash, unseal
from mitl.crowd_server.operator.memory import memory_of
from mitl.crowd_server.site import Site, is_foreign

COOKIE = "mitl_operator"
SESSION = dt.timedelta(hours=12)
MAX_FORM = 16_384
_MAX_FIELDS = 30

Fields: TypeAlias = Mapping[str, str]
Page: TypeAlias = Callable[[Site, Request], Response]
Action: TypeAlias = Callable[[Site, Request, Fields], Response]


def is_signed_in(site: Site, request: Request) -> bool:
    """Whether this browser has a session of the last twelve hours that was not signed out."""
    session = _session(site, request)
    if session is None or session in memory_of(request).ended:
        return False
    return site.clock() < _ends_at(session)


def page(handler: Page) -> Page:
    """A page for the operator alone; others get the sign-in form."""

    @functools.wraps(handler)
    def answer(site: Site, request: Request) -> Response:
        return handler(site, request) if is_signed_in(site, request) else ask(site, request)

    return answer


def action(handler: Action) -> Callable[[Site, Request], Awaitable[Response]]:
    """Something that a form of the operator's own pages does; ``handler`` gets the form's fields."""

    def answer(site: Site, request: Request, fields: Fields) -> Response:
        return handler(site, request, fields) if is_signed_in(site, request) else ask(site, request)

    return _form(answer)


def ask(site: Site, request: Request, *, status: int = 403, problem: str = "") -> Response:
    """The sign-in form.

    A strict cookie is held back on the way from another site's page or from a mail. The form then asks the
    browser to load the page again by itself, which comes from here and brings the cookie.
    """
    again = request.method == "GET" and request.headers.get("sec-fetch-site") == "cross-site"
    return site.page("operator_sign_in.html.j2", status=status, problem=problem, again=again)


def enter(site: Site, request: Request, given: str) -> Response:
    """Open a session where the token is right; after several wrong ones, each caller has to wait."""
    attempts, now = memory_of(request).attempts, site.clock()
    caller = key_of(parse_address(request.client.host if request.client else ""))
    wait_s = attempts.wait_s(caller, now)
    if wait_s:
        problem = f"Too many wrong tokens. Wait {wait_s} s, then try again."
        refusal = ask(site, request, status=429, problem=problem)
        refusal.headers["Retry-After"] = str(wait_s)
        return refusal
    if not hmac.compare_digest(given.encode(), site.operator_token.encode()):
        attempts.fail(caller, now)
        return ask(
            site, request, problem="That is not this server's token. `mitl serve` prints it when it starts."
        )
    attempts.succeed(caller)
    response = RedirectResponse("/operator", 303, {"Cache-Control": "no-store"})
    response.set_cookie(
        COOKIE,
        seal(site.secret, _purpose(site), f"{int(now.timestamp())}-{secrets.token_hex(8)}"),
        max_age=int(SESSION.total_seconds()),
        path="/operator",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


def _sign_in(site: Site, request: Request, fields: Fields) -> Response:
    return enter(site, request, _token_in(fields.get("token", "")))


def _sign_out(site: Site, request: Request, fields: Fields) -> Response:
    session = _session(site, request)
    if session is not None:
        memory_of(request).ended.add(session, _ends_at(session), site.clock())
    response = RedirectResponse("/operator", 303)
    response.delete_cookie(COOKIE, path="/operator", httponly=True, samesite="strict")
    return response


def _form(answer: Action) -> Callable[[Site, Request], Awaitable[Response]]:
    @functools.wraps(answer)
    async def read(site: Site, request: Request) -> Response:
        back = ("/operator", "Back to the operator's page")
        if is_foreign(request):
            text = "Another site sent this form. Use the buttons of this one."
            return site.notice(403, "Not done", text, back)
        fields = await _fields(request)
        if fields is None:
            return site.notice(413, "Not done", "That form is longer than any of this page's own.", back)
        return await run_in_threadpool(answer, site, request, fields)

    return read


async def _fields(request: Request) -> Fields | None:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM:
            return None
    try:
        pairs = parse_qsl(
            body.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="replace"
        )
    except ValueError:
        return None
    return {name: value.strip() for name, value in reversed(pairs)}


def _token_in(pasted: str) -> str:
    """The token in what was pasted: the token itself, or the whole link."""
    if "token=" not in pasted:
        return pasted
    return parse_qs(urlsplit(pasted).query).get("token", [""])[0]


def _session(site: Site, request: Request) -> str | None:
    return unseal(site.secret, _purpose(site), request.cookies.get(COOKIE, ""))


def _ends_at(session: str) -> dt.datetime:
    return dt.datetime.fromtimestamp(int(session.partition("-")[0]), dt.UTC) + SESSION


def _purpose(site: Site) -> str:
    """Another token ends the sessions that an earlier one opened."""
    return f"operator {token_hash(site.operator_token)}"


ROUTES = (
    ("/operator/sign-in", _form(_sign_in), "POST"),
    ("/operator/sign-out", _form(_sign_out), "POST"),
)
