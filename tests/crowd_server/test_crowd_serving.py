"""How a server within this process ends: at once where nothing is asked, and not before what is asked is answered."""

from __future__ import annotations

import asyncio
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from mitl.crowd_server.serving import TICK_S, RunningServer
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
