"""The operator's sign-in, by the link that `mitl serve` prints or by pasting its token."""

from __future__ import annotations

import datetime as dt
import functools
import hmac
import secrets
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias
from urllib.parse import parse_qs

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mitl.addresses import parse_address
from mitl.crowd_server.middleware.callers import key_of
from mitl.crowd_server.pages.site import NoticeError, Site, keep_cookie, read_form
from mitl.crowd_server.protocol.ids import keyed_hash, seal, token_hash, unseal
from mitl.crowd_server.store import accounts, allowances, progress
from mitl.crowd_server.store.database import in_thread
from mitl.crowd_server.store.progress import Span
from mitl.records import Environment

COOKIE = "mitl_operator"
BACK = ("/operator", "Back to the operator's page")
SESSION = dt.timedelta(hours=12)
MAX_FORM = 16_384
_MAX_FIELDS = 30

Fields: TypeAlias = Mapping[str, str]
Page: TypeAlias = Callable[[Site, Request], Response]
Action: TypeAlias = Callable[[Site, Request, Fields], Response]
FREE_ATTEMPTS = 5
LONGEST_WAIT_S = 300
SPANS_FOR = dt.timedelta(minutes=1)


class KeptSpans:
    """From first to last answer by HIT type: read again at most once a minute, and only after new answers."""

    def __init__(self) -> None:
        self._found: dict[int, Span] = {}
        self._done: tuple[tuple[int, int], ...] = ()
        self._asked_at: dt.datetime | None = None
        self._lock = threading.Lock()

    def of(
        self, connection: Connection, done: tuple[tuple[int, int], ...], now: dt.datetime
    ) -> dict[int, Span]:
        """The spans; ``done`` are HIT types with their submissions, by which changes are noticed."""
        with self._lock:
            is_fresh = self._asked_at is not None and abs(now - self._asked_at) < SPANS_FOR
            if done != self._done and not is_fresh:
                self._found, self._done, self._asked_at = progress.spans(connection), done, now
            return self._found


def is_signed_in(site: Site, request: Request) -> bool:
    """Whether this browser has a session of the last twelve hours that was not signed out."""
    session = _session(site, request)
    if session is None or site.clock() >= _ends_at(session):
        return False
    with site.database.read() as connection:
        return not allowances.has_ended(connection, session)


def page(handler: Page) -> Page:
    """A page or file for the operator alone, of the books as they are now; others get the sign-in form."""

    @functools.wraps(handler)
    def answer(site: Site, request: Request) -> Response:
        if not is_signed_in(site, request):
            return ask(site, request)
        settle(site)
        return handler(site, request)

    return answer


def settle(site: Site) -> None:
    """Write what fell due by the clock, so that states and sums are true."""
    for environment in Environment:
        accounts.settle_due(site.database, environment, site.clock())


def action(handler: Action) -> Callable[[Site, Request], Awaitable[Response]]:
    """Something that a form of the operator's own pages does; ``handler`` gets the form's fields."""

    def answer(site: Site, request: Request, fields: Fields) -> Response:
        return handler(site, request, fields) if is_signed_in(site, request) else ask(site, request)

    return _form(answer)


def back(done: str) -> Response:
    """Back to the overview, which says what was done."""
    return RedirectResponse(f"/operator?done={done}", 303)


def nothing_here(text: str) -> NoticeError:
    """The page for an address that leads to nothing."""
    return NoticeError(404, "Nothing here", text, BACK)


def ask(site: Site, request: Request, *, status: int = 403, problem: str = "") -> Response:
    """The sign-in form.

    A strict cookie is held back on the way from another site's page or from a mail. The form then asks the
    browser to load the page again by itself, which comes from here and brings the cookie.
    """
    again = request.method == "GET" and request.headers.get("sec-fetch-site") == "cross-site"
    return site.page("operator_sign_in.html.j2", status=status, problem=problem, again=again)


def enter(site: Site, request: Request, given: str) -> Response:
    """Open a session where the token is right; after several wrong ones, a caller's next wrong one has to wait.

    The right one never does: nobody guesses it, and another site's images can send wrong ones from here.
    """
    now = site.clock()
    address = key_of(parse_address(request.client.host if request.client else ""))
    caller = keyed_hash(site.secret, "caller", address)  # no address is kept
    if not hmac.compare_digest(given.encode(), site.operator_token.encode()):
        with site.database.read() as connection:
            wait_s = _wait_s(*allowances.failed_sign_ins(connection, caller, now), now)
        if wait_s:
            problem = f"Too many wrong tokens. Wait {wait_s} s, then try again."
            refusal = ask(site, request, status=429, problem=problem)
            refusal.headers["Retry-After"] = str(wait_s)
            return refusal
        with site.database.write() as connection:
            allowances.fail_sign_in(connection, caller, now)
        return ask(
            site, request, problem="That is not this server's token. `mitl serve` prints it when it starts."
        )
    with site.database.write() as connection:
        allowances.forget_sign_ins(connection, caller)
    response = RedirectResponse("/operator", 303, {"Cache-Control": "no-store"})
    session = seal(site.secret, _purpose(site), f"{int(now.timestamp())}-{secrets.token_hex(8)}")
    terms = {"max_age": int(SESSION.total_seconds()), "path": "/operator", "samesite": "strict"}
    keep_cookie(request, response, COOKIE, session, **terms)
    return response


def _wait_s(failed: int, last: dt.datetime, now: dt.datetime) -> int:
    """How many seconds a caller waits until another try counts: after a few wrong ones, each doubles it."""
    if failed < FREE_ATTEMPTS:
        return 0
    wait_s = min(LONGEST_WAIT_S, 1 << min(failed - FREE_ATTEMPTS + 1, 10))
    # A last try of a time to come is of a clock that ran ahead and was set right.
    return max(0, wait_s - max(0, int((now - last).total_seconds())))


def _sign_in(site: Site, request: Request, fields: Fields) -> Response:
    return enter(site, request, _token_in(fields.get("token", "")))


def _sign_out(site: Site, request: Request, fields: Fields) -> Response:
    session = _session(site, request)
    if session is not None:
        with site.database.write() as connection:
            allowances.end_session(connection, session, _ends_at(session), site.clock())
    response = RedirectResponse("/operator", 303)
    response.delete_cookie(COOKIE, path="/operator", httponly=True, samesite="strict")
    return response


def _form(answer: Action) -> Callable[[Site, Request], Awaitable[Response]]:
    @functools.wraps(answer)
    async def read(site: Site, request: Request) -> Response:
        pairs = await read_form(request, MAX_FORM, _MAX_FIELDS, BACK)
        if pairs is None:
            return site.notice(413, "Not done", "That form is longer than any of this page's own.", BACK)
        fields = {name: value.strip() for name, value in reversed(pairs)}
        return await in_thread(answer, site, request, fields)

    return read


def _token_in(pasted: str) -> str:
    """The token in what was pasted: the token itself, or the whole link."""
    _, has_query, query = pasted.partition("?")
    return parse_qs(query.partition("#")[0]).get("token", [""])[0] if has_query else pasted


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
