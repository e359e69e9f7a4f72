"""A bare server that asks the database what the crowd server asks, and does nothing else with the answers.

``record`` walks one worker's path through the crowd server, in this process, and notes each statement with what it was
given and what came back. The bare server sends the same statements through psycopg, in the same transactions, with the
current worker's ids in place of the recorded one's, and answers with the recorded bytes.

    python benchmarks/crowd_replay.py URL PORT RECORDED PROCESSES
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import secrets
import string
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from html import unescape
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode, urlsplit

import psycopg
from sqlalchemy import Engine, event
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mitl.crowd_server.app import create_app
from mitl.crowd_server.serving import serve
from mitl.crowd_server.store.database import in_thread, wait_for_disk
from mitl.crowd_server.supervising import Crew

FIRST_ID = 1_000_000
"""Rows made before the recording have smaller numbers, so that a number is known for an id."""
TABLES = ("worker", "invitation", "assignment", "hit")
_MADE = re.compile(r"A[A-Z0-9]{13}|3[A-Z0-9]{29}")
_ALPHABET = string.ascii_uppercase + string.digits
_COOKIE = "replay"
HOME = "http://127.0.0.1:8765"
_TYPE = re.compile(r'name="hit_type_id"\s+value="([^"]+)"')
_FRAME = re.compile(r'<iframe[^>]*\ssrc="([^"]+)"')


@dataclass
class Page:
    """One request as it was recorded."""

    kind: str
    path: str
    status: int
    location: str
    body: str
    statements: list[tuple[str, Any, list[Any] | None]] = field(default_factory=list)
    """SQL, its parameters and the first row; BEGIN (and whether it shows one moment), COMMIT and ROLLBACK are among
    them. What is rolled back only read."""


def spread_ids(engine: Engine) -> None:
    """Let each table count from a number of its own, so that ids of two tables are never the same."""
    with engine.begin() as connection:
        for place, table in enumerate(TABLES, 1):
            first = place * FIRST_ID
            connection.exec_driver_sql(f"ALTER SEQUENCE {table}_id_seq RESTART WITH {first}")


@dataclass(frozen=True)
class Cost:
    """What one kind of request costs, in the median."""

    queries: int
    transactions: int
    cpu_ms: float
    size: int
    """Bytes of the answer."""


def measure(engine: Engine, links: list[str]) -> dict[str, Cost]:
    """The costs of each page of a worker's path; the processor's time is this thread's, without the network's."""
    noted = _noted(engine)
    app = create_app(engine)
    costs: dict[str, list[Cost]] = {}
    for link in links:
        for page, cpu_s in _walk(app, link, noted):
            words = [statement for statement, _, _ in page.statements]
            begun = words.count("BEGIN")
            ended = words.count("COMMIT") + words.count("ROLLBACK")
            cost = Cost(len(words) - begun - ended, begun, cpu_s * 1000, len(page.body.encode()))
            costs.setdefault(page.kind, []).append(cost)
    return {
        kind: Cost(*(median(getattr(own, name.name) for own in of) for name in fields(Cost)))
        for kind, of in costs.items()
    }


def record(engine: Engine, link: str) -> list[Page]:
    """The pages of one worker, from the invitation to the thanks."""
    noted = _noted(engine)
    return [page for page, _ in _walk(create_app(engine), link, noted)]


def _noted(engine: Engine) -> list[tuple[str, Any, list[Any] | None]]:
    """Where the engine's statements are noted from now on."""
    noted: list[tuple[str, Any, list[Any] | None]] = []

    def executed(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        row = None
        if cursor.description is not None and cursor.rowcount > 0:
            row = [value if isinstance(value, int | str) else None for value in cursor.fetchone()]
            cursor.scroll(0, "absolute")  # the server has yet to read it
        noted.append((statement, dict(parameters), row))

    event.listen(
        engine,
        "begin",
        lambda connection: noted.append(
            ("BEGIN", connection.connection.driver_connection.isolation_level is not None, None)
        ),
    )
    event.listen(engine, "commit", lambda connection: noted.append(("COMMIT", None, None)))
    event.listen(engine, "rollback", lambda connection: noted.append(("ROLLBACK", None, None)))
    event.listen(engine, "after_cursor_execute", executed)
    return noted


def _walk(app: Starlette, link: str, noted: list[Any]) -> Iterator[tuple[Page, float]]:
    """One worker's path, each request with the processor's seconds that it took."""
    cookies: dict[str, str] = {}
    loop = asyncio.new_event_loop()

    def ask(
        kind: str, address: str, form: dict[str, str] | None = None, origin: str = HOME
    ) -> tuple[Page, float]:
        noted.clear()
        sent = None if form is None else urlencode(form).encode()
        began = time.process_time()
        status, headers, body = loop.run_until_complete(_ask(app, address, cookies, sent, origin))
        took_s = time.process_time() - began
        for name, value in headers:
            if name == b"set-cookie":
                key, _, rest = value.decode().partition("=")
                cookies[key] = rest.partition(";")[0]
        location = dict(headers).get(b"location", b"").decode()
        return Page(kind, urlsplit(address).path, status, location, body.decode(), list(noted)), took_s

    yield ask("join", link)
    listing = ask("list", "/w")
    yield listing
    accepted = ask("accept", "/w/accept", {"hit_type_id": unescape(_TYPE.search(listing[0].body)[1])})
    yield accepted
    around = ask("around", accepted[0].location)
    yield around
    frame = unescape(_FRAME.search(around[0].body)[1])
    yield ask("frame", frame)
    answers = {f"p{place:02d}_label": "yes" for place in range(1, 21)}
    yield ask("submit", f"/s/{urlsplit(frame).path.split('/')[3]}/mturk/externalSubmit", answers, "null")
    yield ask("thanks", accepted[0].location)
    loop.close()


async def _ask(
    app: Starlette, address: str, cookies: dict[str, str], form: bytes | None, origin: str
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """One request, without a network: status, headers and body."""
    parts = urlsplit(address)
    kept = "; ".join(f"{name}={value}" for name, value in cookies.items()).encode()
    headers = [(b"host", b"127.0.0.1:8765"), (b"cookie", kept)]
    if form is not None:
        headers += [(b"origin", origin.encode()), (b"content-type", b"application/x-www-form-urlencoded")]
    scope = {
        "type": "http",
        "method": "GET" if form is None else "POST",
        "path": parts.path,
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "headers": headers,
        "scheme": "http",
        "server": ("127.0.0.1", 8765),
        "client": ("127.0.0.1", 1),
    }
    told: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": form or b"", "more_body": False}

    async def send(message: Any) -> None:
        told.append(message)

    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in told[1:])
    return told[0]["status"], told[0]["headers"], body


class Replay:
    """The recorded pages, asked again for other workers."""

    def __init__(self, url: str, pages: list[Page]) -> None:
        self._url = url
        self._pages = {page.kind: page for page in pages}
        self._token = self._pages["accept"].location.rpartition("/")[2]
        self._open = threading.local()

    def routes(self) -> list[Route]:
        """Where the crowd server has the same pages."""
        paths = {
            "/w/join/{token}": self._join,
            "/w": self._list,
            "/w/accept": self._accept,
            "/w/a/{token}": self._around,
            "/w/a/{token}/frame": self._frame,
            "/s/{token}/mturk/externalSubmit": self._submit,
        }
        # In as many threads as the crowd server's pages have; anyio would give each process 40.
        return [
            Route(path, partial(in_thread, page), methods=["GET", "POST"]) for path, page in paths.items()
        ]

    def _join(self, request: Request) -> Response:
        from mitl.crowd_server.protocol.ids import token_hash

        recorded = self._pages["join"].path.rpartition("/")[2]
        known = {token_hash(recorded): token_hash(request.path_params["token"])}
        return self._answer("join", known, cookie=True)

    def _list(self, request: Request) -> Response:
        return self._answer("list", _unpack(request.cookies[_COOKIE]))

    def _accept(self, request: Request) -> Response:
        return self._answer("accept", _unpack(request.cookies[_COOKIE]))

    def _around(self, request: Request) -> Response:
        kind = "thanks" if "done" in request.cookies else "around"
        return self._answer(kind, _unpack(request.path_params["token"]))

    def _frame(self, request: Request) -> Response:
        return self._answer("frame", _unpack(request.path_params["token"]))

    def _submit(self, request: Request) -> Response:
        reply = self._answer("submit", _unpack(request.path_params["token"]))
        reply.set_cookie("done", "1")
        return reply

    def _answer(self, kind: str, known: dict[Any, Any], *, cookie: bool = False) -> Response:
        """Ask what was recorded; ``known`` has this worker's value for each recorded one, and gets new ones."""
        page = self._pages[kind]
        connection = self._connection()
        must_wait = False
        for statement, given, row in page.statements:
            if statement == "BEGIN":
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ if given else None
            elif statement == "COMMIT":
                connection.commit()
                if must_wait:
                    wait_for_disk(connection)
                    must_wait = False
            elif statement == "ROLLBACK":
                connection.commit()  # as the server ends what only read
            else:
                must_wait |= "synchronous_commit" in given.values()
                self._execute(connection, statement, given, row, known)
        token = _pack(known)
        headers = {"location": page.location.replace(self._token, token)} if page.location else None
        reply = Response(
            page.body.replace(self._token, token), page.status, headers, media_type="text/html; charset=utf-8"
        )
        if cookie:
            reply.set_cookie(_COOKIE, token)
        return reply

    def _execute(
        self, connection: Any, statement: str, given: Any, row: list[Any] | None, known: dict[Any, Any]
    ) -> None:
        values = {}
        for name, value in given.items():
            is_made = statement.startswith("INSERT") and isinstance(value, str) and _MADE.fullmatch(value)
            if is_made and value not in known:
                known[value] = value[0] + "".join(secrets.choice(_ALPHABET) for _ in value[1:])
            values[name] = known.get(value, value)
        rows = connection.execute(statement, values)
        if rows.description is None:
            return
        first = rows.fetchall()
        if first and row is not None:
            pairs = zip(row, first[0], strict=True)
            known |= {
                old: new
                for old, new in pairs
                if isinstance(old, int) and old >= FIRST_ID and old < 10 * FIRST_ID
            }

    def _connection(self) -> Any:
        if not hasattr(self._open, "connection"):
            self._open.connection = psycopg.connect(self._url)
        return self._open.connection


def _pack(known: dict[Any, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(list(known.items())).encode()).decode().rstrip("=")


def _unpack(packed: str) -> dict[Any, Any]:
    pairs = json.loads(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)))
    return dict(pairs)


def write(pages: list[Page], path: Path) -> None:
    """Keep a recording."""
    path.write_text(json.dumps([asdict(page) for page in pages]))


def main() -> None:
    """Serve until killed."""
    url, port, recorded, processes = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    replay = Replay(url, [Page(**page) for page in json.loads(recorded.read_text())])
    app = Starlette(routes=replay.routes())
    crew = Crew(processes) if processes > 1 else None
    serve(app, port=port, ready=lambda told: print("ready", flush=True), crew=crew)


if __name__ == "__main__":
    main()
