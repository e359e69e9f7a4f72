"""What can happen to a request and its reply on the way: each fault a function, given the proxy that it happens in."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Rows = list[Any]
JSON = {"Content-Type": "application/x-amz-json-1.1"}


@dataclass(frozen=True)
class Request:
    """One request as it came."""

    method: str
    path: str
    headers: Sequence[tuple[str, str]]
    body: bytes

    @property
    def step(self) -> str:
        """The operation, or the page."""
        target = next((value for name, value in self.headers if name.lower() == "x-amz-target"), "")
        path = "/i/…" if self.path.startswith("/i/") else self.path.partition("?")[0]
        return target.rpartition(".")[2] or f"{self.method} {path}"


@dataclass(frozen=True)
class Reply:
    """One reply, to be passed on or not."""

    status: int
    headers: dict[str, str]
    body: bytes


def head(reply: Reply) -> bytes:
    """A reply up to its body, as it goes over the wire."""
    lines = [f"HTTP/1.1 {reply.status} {http.client.responses.get(reply.status, '')}"]
    lines += [f"{name}: {value}" for name, value in reply.headers.items()]
    lines.append(f"Content-Length: {len(reply.body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class LostError(Exception):
    """The connection is to break off here."""

    def __init__(self, sent: bytes = b"") -> None:
        """Args: sent: what still comes through."""
        super().__init__()
        self.sent = sent


class Proxy(Protocol):
    """What faults need of the proxy."""

    late_s: float
    """How long a late reply is held back."""
    held: list[Request]
    """Requests that are still under way."""

    def forward(self, request: Request) -> Reply:
        """What the server says to this request."""
        ...


Fault = Callable[[Proxy, Request], Reply]


def request_lost(proxy: Proxy, request: Request) -> Reply:
    """The connection breaks before the server has the request."""
    raise LostError


def reply_lost(proxy: Proxy, request: Request) -> Reply:
    """The server does what is asked, and the connection breaks before it can say so."""
    proxy.forward(request)
    raise LostError


def reply_cut(proxy: Proxy, request: Request) -> Reply:
    """The connection breaks in the middle of the reply."""
    reply = proxy.forward(request)
    raise LostError(head(reply) + reply.body[: len(reply.body) // 2])


def headers_cut(proxy: Proxy, request: Request) -> Reply:
    """The connection breaks in the middle of the reply's headers."""
    lines = head(proxy.forward(request)).split(b"\r\n")
    raise LostError(b"\r\n".join([*lines[:2], lines[2][:5]]))


def reply_empty(proxy: Proxy, request: Request) -> Reply:
    """The server does what is asked, and of its reply nothing is left but an empty object."""
    proxy.forward(request)
    return Reply(200, JSON, b"{}")


def reply_null(proxy: Proxy, request: Request) -> Reply:
    """All members of the reply are null."""
    return _changed(proxy.forward(request), lambda members: dict.fromkeys(members))


def reply_mistyped(proxy: Proxy, request: Request) -> Reply:
    """Each text of the reply is a number, each number a text, each list a text and each structure a list."""
    return _changed(
        proxy.forward(request), lambda members: {name: _mistyped(members[name]) for name in members}
    )


def _changed(reply: Reply, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Reply:
    if "json" not in reply.headers.get("content-type", ""):
        return reply
    return Reply(reply.status, reply.headers, json.dumps(change(json.loads(reply.body))).encode())


def _mistyped(value: Any) -> Any:
    if isinstance(value, dict):
        return list(value)
    return 7 if isinstance(value, str) else str(value)


def signed_out(proxy: Proxy, request: Request) -> Reply:
    """The network answers in the server's place, with its sign-in page."""
    return Reply(
        200, {"Content-Type": "text/html"}, b"<html><title>Sign in to the guest network</title></html>"
    )


def reply_late(proxy: Proxy, request: Request) -> Reply:
    """The reply comes when the client has given up on it."""
    reply = proxy.forward(request)
    time.sleep(proxy.late_s)
    return reply


def request_late(proxy: Proxy, request: Request) -> Reply:
    """The connection breaks, and the request reaches the server when the command is over."""
    proxy.held.append(request)
    raise LostError


def throttled(proxy: Proxy, request: Request) -> Reply:
    """The server refuses the call as one too many."""
    return Reply(400, JSON, b'{"__type": "ThrottlingException", "message": "Rate exceeded"}')


def failed(proxy: Proxy, request: Request) -> Reply:
    """The server answers 500 and has done nothing."""
    return Reply(500, JSON, b'{"__type": "ServiceFault", "Message": "The service is unavailable."}')


def failed_after(proxy: Proxy, request: Request) -> Reply:
    """The server does what is asked, and answers 500."""
    proxy.forward(request)
    return failed(proxy, request)


def repeated(rows: Rows, size: int) -> list[Rows]:
    """Each page of a listing comes twice."""
    return [page for page in _chunks(rows, size) for _ in range(2)]


def reordered(rows: Rows, size: int) -> list[Rows]:
    """The last row of a listing comes first."""
    return _chunks(rows[::-1], size)


def _chunks(rows: Rows, size: int) -> list[Rows]:
    return [rows[start : start + size] for start in range(0, len(rows), size)] or [[]]
