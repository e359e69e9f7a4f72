"""A proxy between a client and the crowd server that spoils exchanges, each in its own way.

It sees what a network sees: requests and replies. Calls are counted as they arrive, by operation, so that ``CreateHIT
2`` is the second one. What passes is passed on byte for byte, for requests are signed.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from fault_kinds import JSON, Fault, LostError, Reply, Request, Rows, head

_HOP = {"connection", "keep-alive", "content-length", "transfer-encoding"}


@dataclass
class FaultProxy:
    """Listens on a free port, for the block of a ``with``; without a fault it passes everything on."""

    upstream: int
    """The server's port."""
    late_s: float = 1.0
    """How long a late reply is held back."""
    seen: list[str] = field(default_factory=list)
    """The calls so far, as ``CreateHIT 2``."""
    held: list[Request] = field(default_factory=list)
    """Requests that are still under way."""

    def __enter__(self) -> FaultProxy:
        self._lock = threading.Lock()
        self.clear()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def clear(self) -> None:
        """Pass everything on, and count from one."""
        with self._lock:
            self.seen.clear()
            self._counts: Counter[str] = Counter()
            self._fault: Fault | None = None
            self._at = ""
            self._lasting = self._begun = False
            self._arrange: Callable[[Rows, int], list[Rows]] | None = None
            self._pages: dict[str, tuple[str, list[Rows]]] = {}

    def spoil(self, fault: Fault, at: str, *, lasting: bool = False) -> None:
        """Spoil this call; where it is lasting, all that come after it too."""
        self.clear()
        self._fault, self._at, self._lasting = fault, at, lasting

    def disorder(self, arrange: Callable[[Rows, int], list[Rows]], keys: tuple[str, str]) -> None:
        """Cut all listings into other pages. Args: keys: a key pair of the server, to fetch them whole."""
        self.clear()
        self._arrange, self._keys = arrange, keys

    def release(self) -> int:
        """Let the requests that are under way arrive; how many there were."""
        held, self.held = self.held, []
        for request in held:
            self.forward(request)
        return len(held)

    def answer(self, request: Request) -> Reply:
        """What the client gets for this request; LostError where it gets nothing."""
        with self._lock:
            self._counts[request.step] += 1
            call = f"{request.step} {self._counts[request.step]}"
            self.seen.append(call)
            spoilt = call == self._at or (self._lasting and self._begun)
            self._begun = self._begun or spoilt
        if spoilt and self._fault is not None:
            return self._fault(self, request)
        if self._arrange is not None and request.step.startswith("List"):
            return self._page(request, self._arrange)
        return self.forward(request)

    def forward(self, request: Request) -> Reply:
        """What the server says to this request."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.upstream)) as connection:
            connection.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers:
                if name.lower() not in _HOP:
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(request.body)))
            connection.endheaders(request.body)
            reply = connection.getresponse()
            body = reply.read()
        headers = {name: value for name, value in reply.getheaders() if name.lower() not in _HOP}
        return Reply(reply.status, headers, body)

    def _page(self, request: Request, arrange: Callable[[Rows, int], list[Rows]]) -> Reply:
        asked = json.loads(request.body)
        token = asked.pop("NextToken", None)
        if token is None:
            size = asked.pop("MaxResults", 10)
            whole = self._whole(request, asked)
            (member,) = (name for name, value in whole.items() if isinstance(value, list))
            token = f"pages-{len(self._pages)}:0"
            self._pages[token.partition(":")[0]] = (member, arrange(whole[member], size))
        listing, _, number = token.partition(":")
        member, pages = self._pages[listing]
        place = int(number)
        found: dict[str, Any] = {member: pages[place], "NumResults": len(pages[place])}
        if place + 1 < len(pages):
            found["NextToken"] = f"{listing}:{place + 1}"
        return Reply(200, JSON, json.dumps(found).encode())

    def _whole(self, request: Request, asked: dict[str, Any]) -> dict[str, Any]:
        """A listing in one page, asked for in the proxy's own name."""
        body = json.dumps(asked | {"MaxResults": 100}).encode()
        target = next(value for name, value in request.headers if name.lower() == "x-amz-target")
        own = AWSRequest("POST", f"http://127.0.0.1:{self.upstream}/", {**JSON, "X-Amz-Target": target}, body)
        SigV4Auth(Credentials(*self._keys), "mturk-requester", "us-east-1").add_auth(own)
        headers = [("Host", f"127.0.0.1:{self.upstream}"), *own.headers.items()]
        reply = self.forward(Request("POST", "/", headers, body))
        assert reply.status == 200, reply.body
        found: dict[str, Any] = json.loads(reply.body)
        assert "NextToken" not in found, "a listing is longer than one page of a hundred"
        return found


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    proxy: FaultProxy


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _exchange(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = Request(self.command, self.path, list(self.headers.items()), body)
        with contextlib.suppress(ConnectionError):
            try:
                reply = self.server.proxy.answer(request)
            except LostError as lost:
                self.wfile.write(lost.sent)
                self.close_connection = True
                return
            self.wfile.write(head(reply) + reply.body)

    do_GET = do_POST = do_HEAD = _exchange

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
