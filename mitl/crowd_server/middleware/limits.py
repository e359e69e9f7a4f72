"""The outermost layer of the server: who may ask, how often, how much, and what every answer carries.

Pages need not know of any of it. In order: the request gets a number for the log and is counted; its sender
is found behind the operator's own proxies; the host must be one of the server's names; callers that ask too
often are told when to come back; the body is read whole within its limits; forms of other sites are turned
away; and every answer leaves with the headers that keep browsers from guessing and framing.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields

from sqlalchemy.exc import DBAPIError
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mitl.addresses import Address, names_loopback, parse_address
from mitl.core.clock import utc_now
from mitl.crowd_server.api.dispatch import MAX_BODY as MAX_API_BODY
from mitl.crowd_server.middleware import callers, refusals
from mitl.crowd_server.middleware.callers import DrawnTokens, Network, RequestRate, TokenBuckets
from mitl.crowd_server.middleware.meter import Meter
from mitl.crowd_server.middleware.refusals import RefusedError, is_api
from mitl.crowd_server.pages.site import Site, is_foreign
from mitl.crowd_server.protocol.ids import keyed_hash
from mitl.crowd_server.store.allowances import SharedAllowance
from mitl.crowd_server.work.visitor import COOKIE
from mitl.db.explain import reason

FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data")


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Sizes in bytes, times in seconds."""

    api: int = MAX_API_BODY
    form: int = 2 * 1024 * 1024
    other: int = 64 * 1024
    all_at_once: int = 128 * 1024 * 1024
    """What all requests together may hold in memory."""
    one_caller: int = 32 * 1024 * 1024
    """What the requests of one caller may; twenty people behind one address need 10 MiB for the longest answers."""
    least: int = 64 * 1024
    """What a body counts even before it comes, so that a caller has few connections on which one drips."""
    drained: int = 16 * 1024 * 1024
    """How much of a body that is too large is still read: a connection cut earlier may lose the answer."""
    chunk_within_s: float = 20.0
    whole_within_s: float = 120.0


class Bodies:
    """Reads bodies and counts what is held of them, by all callers and by each; ``None`` has no share to keep to."""

    def __init__(self, limits: BodyLimits) -> None:
        self.limits = limits
        self._held: Counter[str | None] = Counter()

    async def read(self, scope: Scope, receive: Receive, caller: str | None) -> bytearray | None:
        """The body; None where the sender went away. The caller gives it back by ``release``.

        Raises:
            RefusedError: the body is too large, too slow, or there is no room for it.
        """
        limit = self._limit(scope)
        body = bytearray()
        size = 0
        self._hold(caller, self.limits.least)
        try:
            async with asyncio.timeout(self.limits.whole_within_s):
                while True:
                    message: Message = await asyncio.wait_for(receive(), self.limits.chunk_within_s)
                    if message["type"] == "http.disconnect":
                        self.release(caller, body)
                        return None
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    if size <= limit:
                        self._hold(caller, max(0, size - max(len(body), self.limits.least)))
                        body += chunk
                    elif size > self.limits.drained:
                        break
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            self.release(caller, body)
            raise refusals.too_slow() from None
        except RefusedError:
            self.release(caller, body)
            raise
        if size > limit:
            self.release(caller, body)
            raise refusals.too_large(limit)
        return body

    def release(self, caller: str | None, body: bytearray) -> None:
        """Count a body as gone."""
        self._held[caller] -= max(len(body), self.limits.least)
        if not self._held[caller]:
            del self._held[caller]

    def _hold(self, caller: str | None, count: int) -> None:
        room = self.limits.all_at_once - self._held.total()
        if caller is not None:
            room = min(room, self.limits.one_caller - self._held[caller])
        if count > room:
            raise refusals.too_full()
        self._held[caller] += count

    def _limit(self, scope: Scope) -> int:
        if is_api(scope):
            return self.limits.api
        kind = Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()
        return self.limits.form if kind in FORM_TYPES else self.limits.other


def has_body(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a body follows the head of a request with these headers."""
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in headers)


def replay(body: bytearray, receive: Receive) -> Receive:
    """A ``receive`` that gives the body in one piece, then whatever else comes."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": bytes(body), "more_body": False}

    return again


SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
HSTS = "max-age=15552000"
PERMISSIONS = "camera=(), microphone=(), geolocation=(), payment=(), usb=()"
NO_FRAMES = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'"


_FILES = ("/i/", "/mturk-public/", "/w/static/", "/w/vendored/")
PAGES, FILES, API, WORKER = (
    RequestRate(10, 300),
    RequestRate(60, 1500),
    RequestRate(100, 300),
    RequestRate(2, 60),
)
"""A class of 20 people behind one address opens its list, its HIT and 20 pictures each within seconds: about 120
pages and 500 files at once. A person alone never comes near a worker's rate."""


@dataclass(frozen=True, slots=True)
class CallerRates:
    """How often one caller may ask, by kind of request; ``worker`` holds besides ``pages``."""

    pages: RequestRate = PAGES
    files: RequestRate = FILES
    api: RequestRate = API
    worker: RequestRate = WORKER


@dataclass(frozen=True, slots=True)
class Policy:
    """Who may reach the server and by which names."""

    hosts: frozenset[str] = frozenset()
    """Names in the Host header, without ports, beside those of loopback: a page of another name that points here is
    turned away."""
    proxies: tuple[Network, ...] = ()
    """The operator's own proxies, which may say whom they speak for."""
    only_by_proxy: bool = False
    """Whether plain connections count only from there."""
    public_scheme: str | None = None
    """How people reach the proxies, where these do not say."""
    exempt_loopback: bool = True
    """Whether programs on this machine are free of rates; never so behind proxies, named or not."""
    rates: CallerRates = field(default_factory=CallerRates)
    bodies: BodyLimits = field(default_factory=BodyLimits)
    clock: Callable[[], float] = time.monotonic


def wrap(app: ASGIApp, policy: Policy | None = None) -> ASGIApp:
    """The application behind the limits of ``policy``."""
    return _Limits(app, policy or Policy())


class _Limits:
    def __init__(self, app: ASGIApp, policy: Policy) -> None:
        self._app = app
        self._policy = policy
        self._meter: Meter | None = getattr(app.state, "meter", None) if isinstance(app, Starlette) else None
        self._bodies = Bodies(policy.bodies)
        site: Site | None = getattr(app.state, "site", None) if isinstance(app, Starlette) else None
        self._buckets = {
            rate.name: _buckets(rate.name, getattr(policy.rates, rate.name), policy, site)
            for rate in fields(CallerRates)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(scope, send)
        if self._meter is not None:
            self._meter.begin()
        try:
            await self._handle(scope, receive, answer)
        finally:
            seconds = time.perf_counter() - answer.began
            note(scope, answer.request_id, answer.status, seconds)
            if self._meter is not None:
                self._meter.end(kind_of(scope), scope["method"], answer.status, seconds)

    async def _handle(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        body: bytearray | None = None
        try:
            address = self._admit(scope)
            caller = None if self._is_exempt(scope, address) else callers.key_of(address)
            if caller is not None:
                await self._count(scope, caller)
            if has_body(scope["headers"]):
                body = await self._bodies.read(scope, receive, caller)
                if body is None:
                    return
                receive = replay(body, receive)
            _refuse_foreign(scope)
        except RefusedError as refusal:
            await refusal.response(scope)(scope, receive, answer.send)
            return
        try:
            await self._app(scope, receive, answer.send)
        finally:
            if body is not None:
                self._bodies.release(caller, body)

    def _admit(self, scope: Scope) -> Address | None:
        """Find the sender and the scheme behind proxies, and check the host against the server's names."""
        headers = Headers(scope=scope)
        peer = parse_address(scope["client"][0]) if scope.get("client") else None
        hosts = headers.getlist("host")
        host = host_name(hosts[0]) if len(hosts) == 1 else ""
        is_local = names_loopback(host)  # a program on this machine, which needs no encryption
        sender = peer
        if callers.is_trusted(peer, self._policy.proxies):
            sender = callers.sender(peer, ",".join(headers.getlist("x-forwarded-for")), self._policy.proxies)
            scope["client"] = (str(sender), 0)
            if not (is_local and callers.is_of_this_machine(peer, headers)):  # which came past the proxy
                usual = self._policy.public_scheme or scope["scheme"]
                scope["scheme"] = callers.forwarded_scheme(headers, usual)
        elif self._policy.only_by_proxy and not callers.is_of_this_machine(peer, headers):
            raise refusals.not_by_proxy()
        if not is_local and host not in self._policy.hosts:
            raise refusals.wrong_host()
        if self._policy.public_scheme == "https" and scope["scheme"] == "http" and not is_local:
            raise refusals.not_encrypted(str(Request(scope).url.replace(scheme="https")))
        return sender

    async def _count(self, scope: Scope, key: str) -> None:
        """Take one token of each bucket of a caller that this request falls into."""
        kind = "api" if is_api(scope) else "files" if scope["path"].startswith(_FILES) else "pages"
        wait = await _take(self._buckets[kind], key)
        if kind == "pages" and wait == 0 and (session := _session_of(scope)) is not None:
            wait = await _take(self._buckets["worker"], session)
        if wait:
            raise refusals.too_often(wait)

    def _is_exempt(self, scope: Scope, sender: Address | None) -> bool:
        policy = self._policy
        if policy.proxies or not policy.exempt_loopback:
            return False
        return callers.is_of_this_machine(sender, Headers(scope=scope))


def _buckets(kind: str, rate: RequestRate, policy: Policy, site: Site | None) -> TokenBuckets | DrawnTokens:
    """The buckets of one kind: in the database where other processes may serve from it too, else in memory."""
    if site is None or site.database.engine.dialect.name != "postgresql":
        return TokenBuckets(rate, clock=policy.clock)
    shared = SharedAllowance(site.database.engine, kind, rate.per_second, rate.burst)
    secret = site.secret

    def draw(key: str, wanted: int) -> tuple[int, float]:
        try:
            return shared.draw(keyed_hash(secret, "caller", key), wanted, utc_now())
        except DBAPIError as error:
            said = reason(error, site.database.engine.url)
            log.error("the database does not answer, so nobody's requests are counted: %s", said)
            return wanted, 0.0

    return DrawnTokens(rate, draw, clock=policy.clock)


async def _take(buckets: TokenBuckets | DrawnTokens, key: str) -> float:
    return buckets.take(key) if isinstance(buckets, TokenBuckets) else await buckets.take(key)


class _Answer:
    """One answer on its way out: its headers, its status, its number."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.began = time.perf_counter()
        self.request_id = str(uuid.uuid4())
        self.status = 0
        self._scope = scope
        self._send = send

    async def send(self, message: Message) -> None:
        """Pass a message on; the head gets what every answer carries."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._add_headers(MutableHeaders(scope=message))
        await self._send(message)

    def _add_headers(self, headers: MutableHeaders) -> None:
        self.request_id = headers.get("x-amzn-requestid") or self.request_id
        if is_api(self._scope):
            headers.setdefault("x-amzn-RequestId", self.request_id)
        else:
            headers.setdefault("X-Request-Id", self.request_id)
        headers.setdefault("X-Content-Type-Options", "nosniff")
        headers.setdefault("Content-Security-Policy", NO_FRAMES)
        headers.setdefault("Referrer-Policy", "same-origin")
        headers.setdefault("Permissions-Policy", PERMISSIONS)
        if self._scope["scheme"] == "https":
            headers.setdefault("Strict-Transport-Security", HSTS)


def host_name(host: str) -> str:
    """The name in a Host header or a network location, without its port."""
    host = host.strip().lower().rstrip(".")
    if host.startswith("["):
        name, _, port = host[1:].partition("]")
        return name if re.fullmatch(":?[0-9]*", port) else host
    name, _, port = host.rpartition(":")
    return name.rstrip(".") if name and ":" not in name and (port.isdigit() or not port) else host


def _session_of(scope: Scope) -> str | None:
    """What stands for one worker: the cookie on pages, the token in the address of a submission."""
    path = scope["path"]
    if path.startswith("/s/"):
        sealed: str | None = path.split("/")[2]
    else:
        sealed = cookie_parser(Headers(scope=scope).get("cookie", "")).get(COOKIE)
    # Hashed, so that the table of buckets holds no session and its keys are of one size.
    return hashlib.sha256(sealed.encode("utf-8", "replace")).hexdigest()[:32] if sealed else None


def _refuse_foreign(scope: Scope) -> None:
    """Turn away forms of other sites; the API has signatures, and a HIT's own form the token in its address."""
    if scope["method"] in SAFE_METHODS or is_api(scope) or scope["path"].startswith("/s/"):
        return
    if is_foreign(Request(scope)):
        raise refusals.foreign_form()


log = logging.getLogger("mitl.crowd_server.door.request_log")  # the name that operators' log filters know
_OPERATION = re.compile(r"MTurkRequesterServiceV20170117\.([A-Za-z]{1,60})")


def note(scope: Scope, request_id: str, status: int, seconds: float) -> None:
    """Write the line; ``status`` 0 says that the caller went away before an answer."""
    if log.isEnabledFor(logging.INFO):
        log.info("%s %s %s %d %.1f ms", request_id, _method(scope), kind_of(scope), status, seconds * 1000)


def kind_of(scope: Scope) -> str:
    """The path with names for the parts that differ, or the operation of the API."""
    if "endpoint" not in scope:
        # No page was reached: the address is whatever the caller made up.
        return "(no page)"
    path: str = scope["app"].state.paths[scope["endpoint"]]
    return (_operation(scope) or path) if path == "/" else path


def _operation(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"x-amz-target":
            operation = _OPERATION.fullmatch(value.decode("latin-1"))
            return operation[1] if operation else None
    return None


def _method(scope: Scope) -> str:
    method = str(scope["method"])
    return method if method.isalpha() and len(method) <= 10 else "?"
