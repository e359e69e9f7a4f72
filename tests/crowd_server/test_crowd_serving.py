"""How a server within this process ends, and what it makes of requests that no browser sends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tls_kit import self_signed

from mitl.crowd_server import serving
from mitl.crowd_server.serving import MOST_PENDING, TICK_S, PatientProtocol, RunningServer
from mitl.crowd_server.store.database import in_thread


class Slow:
    """Answers once it is let."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_answer = threading.Event()

    async def __call__(self, scope, receive, send) -> None:
        """One ASGI request, half of its answer before the wait."""
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"8")]})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        self.begun.set()
        while not self.may_answer.is_set():
            await asyncio.sleep(0.005)
        await send({"type": "http.response.body", "body": b"half"})


async def echo(scope, receive, send) -> None:
    """Answer with how long the body was and with the names of headers; refuse what asks for ``/early`` unread."""
    size, more = 0, scope["path"] != "/early"
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    body = f"{size} {' '.join(name.decode() for name, _ in scope['headers'])}".encode()
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-length", b"%d" % len(body))],
        }
    )
    await send({"type": "http.response.body", "body": body})


def exchange(*parts: bytes) -> bytes:
    """All that comes back for these bytes, sent piece by piece, until the server hangs up."""
    reply = b""
    with RunningServer(echo) as server:
        port = int(server.url.rpartition(":")[2])
        # The server may hang up before all is sent.
        with (
            socket.create_connection(("127.0.0.1", port), timeout=20) as connection,
            contextlib.suppress(ConnectionError),
        ):
            for part in parts:
                connection.sendall(part)
                threading.Event().wait(0.05)
            while piece := connection.recv(65536):
                reply += piece
    return reply


HEAD = b"POST / HTTP/1.1\r\nHost: here\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
LONG = b"x" * (MOST_PENDING // 2 + 1)


@pytest.mark.parametrize(
    "parts",
    [
        (HEAD + b"Long: ", LONG, LONG),
        (b"GET /", LONG, LONG),
        (CHUNKED + b"2;", LONG, LONG),
        (CHUNKED + b"2\r\nab\r\n0\r\nLong: ", LONG, LONG),
        (CHUNKED + b"2\r\nab\r\nz\r\n",),
        (HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",),
        (HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc",),
        (HEAD + b"Transfer-Encoding: gzip\r\n\r\n",),
        (HEAD + b"Folded: a\r\n b\r\n\r\n",),
        (HEAD + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nab",),
        (b"CONNECT elsewhere:443 HTTP/1.1\r\nHost: here\r\n\r\n",),
        (b"\x16\x03\x01\x02\x00\x01\x00",),
    ],
)
def test_what_makes_no_sense_is_refused_and_hung_up_on(parts):
    """Heads, sizes of chunks and trailers that are too long, and whatever two servers might read in two ways."""
    reply = exchange(*parts)

    assert reply.startswith(b"HTTP/1.1 400 ") and reply.count(b"HTTP/1.1") == 1
    assert b"connection: close" in reply


def test_strangers_do_not_fill_the_log(caplog, monkeypatch):
    """The same warning about what they send comes once a minute; none advises to install what no page uses."""
    monkeypatch.setattr(serving._SELDOM, "_again_at", {})

    for _ in range(3):
        exchange(b"no request\r\n\r\n")
        exchange(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n")

    said = [record.getMessage() for record in caplog.records if record.name == "uvicorn.error"]
    assert said == ["Invalid HTTP request received."]


def test_a_long_body_in_small_pieces_is_no_long_head():
    """Only what stands between the pieces of a body is counted."""
    chunk = b"%x\r\n%s\r\n" % (len(LONG), LONG)
    last = HEAD + b"Connection: close\r\n\r\n"
    reply = exchange(CHUNKED, chunk, chunk, chunk, b"0\r\n\r\n", last)

    assert b"\r\n\r\n%d host" % (3 * len(LONG)) in reply and reply.endswith(b"0 host connection")


def test_trailers_are_no_headers():
    """What comes after a body was not checked as a header, so no page gets it."""
    reply = exchange(
        HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX: y\r\n\r\n"
    )

    assert reply.endswith(b"2 host connection transfer-encoding")


@pytest.mark.parametrize("rest", [b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" * 1000, b"\0\0\r\n\r\n"])
def test_what_is_asked_before_the_last_answer_ends_the_connection_after_it(rest):
    """The first request is answered whole, the rest is dropped however much it is, and the client is told."""
    reply = exchange(HEAD + b"Content-Length: 2\r\n\r\nab" + rest)

    assert reply.startswith(b"HTTP/1.1 200 ") and reply.count(b"HTTP/1.1") == 1
    assert b"connection: close" in reply and reply.endswith(b"2 host content-length")


def test_the_head_of_an_answer_is_all_that_a_client_waits_for_who_asks_for_no_more():
    """The next request on the connection may come while what is not sent is still being made."""
    app = Slow()
    with (
        RunningServer(app) as server,
        httpx.Client(trust_env=False) as client,
        ThreadPoolExecutor(1) as thread,
    ):
        assert client.head(server.url).status_code == 200

        reply = thread.submit(client.get, server.url)
        threading.Event().wait(0.05)
        app.may_answer.set()

        assert reply.result(20).content == b"halfhalf"


@pytest.mark.parametrize(
    "parts",
    [
        (b"GET /early HTTP/1.1\r\nHost: here\r\n\r\n", b"\r\n"),
        (HEAD.replace(b" / ", b" /early ") + b"Content-Length: 400\r\n\r\n", b"x"),
    ],
)
def test_drops_after_an_answer_hold_no_connection(parts, monkeypatch):
    """Neither empty lines nor the rest of a body that nobody waits for put off the end of a connection."""
    monkeypatch.setattr(PatientProtocol, "head_within_s", 0.4)
    reply = exchange(*parts)

    assert reply.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("ticks", [0, 3])
def test_what_was_asked_is_answered_before_the_end(ticks):
    """Whether the answer takes longer than the server's own look or not."""
    app = Slow()
    with ThreadPoolExecutor(2) as threads:
        server = RunningServer(app)
        server.__enter__()
        reply = threads.submit(httpx.get, server.url, trust_env=False)
        assert app.begun.wait(20)

        end = threads.submit(server.__exit__, None, None, None)
        threading.Event().wait(ticks * TICK_S)
        app.may_answer.set()

        assert reply.result(20).content == b"halfhalf"
        end.result(20)


def test_a_connection_that_asks_nothing_does_not_hold_the_end():
    """Clients keep connections open for their next request; theirs are closed."""
    app = Slow()
    app.may_answer.set()
    with httpx.Client(trust_env=False) as client:
        with RunningServer(app) as server:
            assert client.get(server.url).status_code == 200
            url = server.url
        with pytest.raises(httpx.TransportError):
            client.get(url)


def test_connections_that_ask_nothing_make_room(monkeypatch):
    """More of them than there may be keep nobody out, and end nothing that is being answered."""
    monkeypatch.setattr("mitl.crowd_server.serving.MAX_CONNECTIONS", 5)
    app = Slow()
    with RunningServer(app) as server, ThreadPoolExecutor(1) as threads, contextlib.ExitStack() as stack:
        earlier = threads.submit(httpx.get, server.url, trust_env=False)
        assert app.begun.wait(20)
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        for beginning in [b"", b"GET / HTTP/1.1\r\n"] * 5:
            stack.enter_context(socket.create_connection(address)).sendall(beginning)
        app.may_answer.set()
        later = httpx.get(server.url, trust_env=False)

    assert (earlier.result().content, later.content) == (b"halfhalf", b"halfhalf")


async def endless(scope, receive, send) -> None:
    """More than any buffer takes on ``/all`` (at once) and ``/more`` (in pieces), else a word."""
    size = 50_000_000 if scope["path"] in ("/all", "/more") else 4
    headers = [(b"content-length", b"%d" % size)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    piece = size if scope["path"] == "/all" else min(size, 1_000_000)
    for left in range(size - piece, -1, -piece):
        await send({"type": "http.response.body", "body": b"x" * piece, "more_body": left > 0})


@pytest.mark.parametrize("path", [b"/all", b"/more"])
@pytest.mark.parametrize("then", [b"", b"Connection: close\r\n"])
def test_connections_that_take_no_answer_make_room(path, then, monkeypatch):
    """Whoever asks for much and reads none of it keeps nobody out."""
    monkeypatch.setattr("mitl.crowd_server.serving.MAX_CONNECTIONS", 5)
    with RunningServer(endless) as server, contextlib.ExitStack() as stack:
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        for _ in range(8):
            greedy = stack.enter_context(socket.create_connection(address, timeout=20))
            greedy.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: here\r\n" + then + b"\r\n")
            assert greedy.recv(12) == b"HTTP/1.1 200"
        assert httpx.get(server.url, trust_env=False).content == b"xxxx"


def test_connections_that_never_get_through_tls_make_room(tmp_path, monkeypatch):
    """The oldest is hung up on when more come than may, and who speaks TLS is answered."""
    monkeypatch.setattr("mitl.crowd_server.serving.MOST_BEGUN", 5)
    with (
        RunningServer(echo, tls=self_signed(tmp_path, "IP:127.0.0.1")) as server,
        contextlib.ExitStack() as stack,
    ):
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        silent = [stack.enter_context(socket.create_connection(address, timeout=20)) for _ in range(9)]

        assert [connection.recv(1) for connection in silent[:4]] == [b""] * 4
        assert httpx.get(server.url, verify=False, trust_env=False).status_code == 200


def test_the_end_may_be_told_again():
    """Also after the server has ended."""
    server = RunningServer(Slow())
    with server:
        pass
    server.__exit__(None, None, None)


def test_another_event_loop_that_happens_to_be_installed_is_not_taken(monkeypatch):
    """uvloop would set the listening queue to one connection for each process, and turn a crowd away."""
    loops = types.ModuleType("uvloop")
    loops.new_event_loop = lambda: pytest.fail("uvloop was asked for a loop")
    monkeypatch.setitem(sys.modules, "uvloop", loops)
    app = Slow()
    app.may_answer.set()

    with RunningServer(app) as server:
        assert httpx.get(server.url, trust_env=False).status_code == 200


def test_a_thread_gives_what_its_function_gives():
    """A value or an error, and never on the event loop's own thread."""

    def fail() -> None:
        raise LookupError("nothing there")

    assert asyncio.run(in_thread(threading.current_thread)) is not threading.current_thread()
    with pytest.raises(LookupError, match="nothing there"):
        asyncio.run(in_thread(fail))
