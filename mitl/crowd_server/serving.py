"""Running the server: in the foreground for people, or in a thread for one command."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, ClassVar

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mitl.crowd_server.middleware.exposure import Tls
from mitl.crowd_server.middleware.limits import has_body
from mitl.crowd_server.supervising import Crew, Supervisor
from mitl.errors import EndpointError
from mitl.interrupts import interrupts_ignored

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8765
START_WITHIN_S = 20.0
MAX_CONNECTIONS = 2000
MOST_FILES = MAX_CONNECTIONS + 500
"""Files and connections that a process may open: of the latter, and of what else it needs."""
BACKLOG = 1024
TICK_S = 0.1
TICKS_A_DAY = 864_000
"""uvicorn renews its Date header at every tenth tick."""


def serve(
    app: ASGIApp,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    *,
    tls: Tls | None = None,
    ready: Callable[[str], None] = lambda url: None,
    crew: Crew | None = None,
) -> None:
    """Serve until interrupted.

    Args:
        tls: the certificate and key to speak TLS with; plain HTTP without them.
        ready: is given the server's address, with the port that it got, once it can be reached.
        crew: the processes that answer, forked from this one; this process itself without them.

    Raises:
        EndpointError: the port is in use, or the address is not this machine's; processes keep dying.
    """
    # Many systems allow a process 1,024 files, and more to one that asks; without a file, no connection is taken.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < MOST_FILES:
        most = MOST_FILES if hard < 0 else min(hard, MOST_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    with bind(host, port) as listener:
        url = _address(host, listener, tls)
        if crew is None:
            _Announcing(_config(app, tls), lambda: ready(url)).run(sockets=[listener])
            return

        def work(reached: Callable[[], None], alive: int) -> None:
            config = _config(app, tls)
            config.backlog = (
                1  # a connection at a time, so that none has a crowd while others have nothing to do
            )
            _Announcing(config, reached, threads_of(crew.workers), alive).run(sockets=[listener])

        Supervisor(crew, work).run(lambda: ready(url), listener.close)


MOST_THREADS, LEAST_THREADS = 16, 8


def threads_of(workers: int) -> int:
    """How many pages each of so many processes works on at once; each may hold a connection to the database."""
    return max(LEAST_THREADS, MOST_THREADS // workers)


MOST_BEGUN = 400
"""Connections that have not got through TLS yet; with ``MAX_CONNECTIONS`` fewer than ``MOST_FILES``."""


class _Listener(socket.socket):
    """A listening socket whose queue keeps its length, whatever length each process asks for.

    Whoever connects and never gets through TLS would hold a file of the process for a minute: the oldest make room.
    """

    begun: ClassVar[dict[int, socket.socket]] = {}

    def accept(self) -> tuple[socket.socket, Any]:
        """Take a connection, and note it until TLS is through."""
        connection, address = super().accept()
        self.begun.pop(connection.fileno(), None)  # of one that ended before
        self.begun[connection.fileno()] = connection
        if len(self.begun) > MOST_BEGUN:
            with contextlib.suppress(OSError):  # it ended before
                self.begun.pop(next(iter(self.begun))).shutdown(socket.SHUT_RDWR)
        return connection, address

    def listen(self, backlog: int = 0, /) -> None:
        """Listen, with a queue of ``BACKLOG``."""
        super().listen(BACKLOG)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; EndpointError in one line where it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = _Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio then sets no-delay
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise EndpointError(
                f"port {port} on {host} is in use; stop what listens there, or choose another with --port"
            ) from error
        if error.errno == errno.EACCES:
            raise EndpointError(f"port {port} is reserved; choose one above 1023 with --port") from error
        raise EndpointError(f"cannot listen on {host!r} port {port}: {error.strerror or error}") from error
    except OverflowError as error:
        listener.close()
        raise EndpointError(f"port is {port}, but ports are 0 to 65535") from error
    return listener


class RunningServer:
    """A server in a thread of this process, on a free port of the loopback address, for the block of a ``with``."""

    def __init__(self, app: ASGIApp, *, port: int = 0, tls: Tls | None = None) -> None:
        self._server = _Prompt(_config(app, tls))
        self._port = port
        self._tls = tls
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it answers, without a slash at the end."""
        assert self._listener is not None, "the server is not running"
        return _address(DEFAULT_HOST, self._listener, self._tls)

    def __enter__(self) -> RunningServer:
        self._listener = bind(DEFAULT_HOST, self._port)
        self._thread = threading.Thread(
            target=self._server.run,
            kwargs={"sockets": [self._listener]},
            name="mitl-crowd-server",
            daemon=True,
        )
        self._thread.start()
        deadline = time.monotonic() + START_WITHIN_S
        while not self._server.begun.wait(TICK_S):
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self.__exit__(None, None, None)
                raise EndpointError("the crowd server did not start within this process")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.end()
        if self._thread is not None:
            self._thread.join()
        if self._listener is not None:
            self._listener.close()


def _address(host: str, listener: socket.socket, tls: Tls | None = None) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{name}:{listener.getsockname()[1]}"


class _Prompt(uvicorn.Server):
    """Ends as soon as it is told to and nothing is being answered.

    uvicorn looks ten times a second whether it should end, and then waits a tenth more: 0.16 s for each command that
    runs the server within its own process.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.begun = threading.Event()
        self._wake: Callable[[], object] = lambda: None

    def end(self) -> None:
        """Stop once all is answered; from any thread, at any time."""
        self.should_exit = True
        with contextlib.suppress(RuntimeError):  # its loop is closed: it has ended by itself
            self._wake()

    async def main_loop(self) -> None:
        """Tick as uvicorn does, until told to end."""
        self.begun.set()
        told = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._wake = lambda: loop.call_soon_threadsafe(told.set)
        ticks = 0
        while not await self.on_tick(ticks):
            ticks = (ticks + 1) % TICKS_A_DAY
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(told.wait(), TICK_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close what is idle, and leave to uvicorn what is not answered within a tick."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        deadline = time.monotonic() + TICK_S
        while self.server_state.connections or self.server_state.tasks:
            if time.monotonic() > deadline:
                await super().shutdown(sockets)
                return
            await asyncio.sleep(0.001)


class _Announcing(uvicorn.Server):
    """Tells that it can be reached once it really can, and once Ctrl-C is in its own hands.

    Told any earlier, an interruption could fall between this process's signal handlers and uvicorn's, and be lost.
    Where Ctrl-C was ignored before, it stays so; uvicorn would hear it all the same.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        ready: Callable[[], None],
        threads: int = MOST_THREADS,
        alive: int | None = None,
    ) -> None:
        """``alive`` is a pipe's end, which ends this server when the other end is closed."""
        super().__init__(config)
        self._ready = ready
        self._threads = threads
        self._alive = alive

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections, then tell."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(self._threads, "pages"))
        if self._alive is not None:
            asyncio.get_running_loop().add_reader(self._alive, self._orphaned)
        await super().startup(sockets)
        self._ready()

    def _orphaned(self) -> None:
        assert self._alive is not None
        asyncio.get_running_loop().remove_reader(self._alive)
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Have signals end the server, but for one that this process was told to ignore."""
        ignored = interrupts_ignored()
        with super().capture_signals():
            if ignored:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            yield


WARNS_AGAIN_S = 60.0


class _Seldom(logging.Filter):
    """Lets each warning through once a minute: uvicorn has one for every odd request, and strangers can send many."""

    def __init__(self) -> None:
        super().__init__()
        self._again_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log it."""
        now = time.monotonic()
        if record.levelno != logging.WARNING:
            return True
        if now < self._again_at.get(record.msg, now):
            return False
        self._again_at[record.msg] = now + WARNS_AGAIN_S
        return True


_SELDOM = _Seldom()


def _config(app: ASGIApp, tls: Tls | None = None) -> uvicorn.Config:
    logging.getLogger("uvicorn.error").addFilter(_SELDOM)
    options: dict[str, Any] = {
        "http": PatientProtocol,
        "loop": "asyncio",  # uvicorn would take uvloop if it is installed, which sets the queue to `backlog`
        "ws": "none",
        "log_config": None,  # what it has to say goes where mitl logs, in the same form
        "log_level": "warning",
        "access_log": False,  # it would write tokens and ids; request_log says what may be said
        "lifespan": "off",
        "backlog": BACKLOG,
        "limit_concurrency": MAX_CONNECTIONS,
        "timeout_graceful_shutdown": 5,
        "timeout_keep_alive": 75,
        "server_header": False,
        "proxy_headers": False,  # on by default, and then anybody on this machine could claim an address
    }
    if tls is not None:
        options |= {"ssl_certfile": str(tls.certificate), "ssl_keyfile": str(tls.key)}
    return uvicorn.Config(app, **options)


HEAD_WITHIN_S = 15.0
MOST_PENDING = 16 * 1024
"""Bytes that may come without a head or a piece of a body being whole: of a head, of a chunk's size, of trailers."""


class PatientProtocol(HttpToolsProtocol):
    """Has patience with a request, within limits that neither uvicorn nor the parser sets.

    uvicorn limits how long a connection may be idle between requests only, so a few thousand callers that send
    one byte a minute would hold every connection. While there are too many connections it refuses every request,
    though most of them may ask nothing, or not take what they asked for: of those, the one that waited longest makes
    room for a new one. The parser
    takes heads and trailers of any length, and any number of requests before the first is answered, which browsers
    and proxies do not send: those end the connection.
    """

    head_within_s = HEAD_WITHIN_S
    _head_timer: asyncio.TimerHandle | None = None
    _pending = 0
    _waits_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first request."""
        super().connection_made(transport)
        _Listener.begun.pop(transport.get_extra_info("socket").fileno(), None)
        self._waits_since = self.loop.time()
        self._await_head()
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer with the connection."""
        self._forget_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came; what belongs to no request that is being answered has its time running."""
        self._pending += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._pending > MOST_PENDING:
            self.send_400_response("The head of the request is too long.")
        elif self._head_timer is None and not self._is_answering():
            self._await_head()

    def on_message_begin(self) -> None:
        """Begin a request, unless another is being answered; who sent a HEAD has the answer once it starts."""
        if self._is_answering() and not (
            self.cycle.response_started and self.cycle.scope["method"] == "HEAD"
        ):
            raise BlockingIOError("the last request is not answered yet")
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Begin to answer; what comes as a header later is a trailer, and goes nowhere."""
        self._pending = 0
        self._forget_timer()
        if self.parser.should_upgrade() and has_body(self.headers):
            raise ValueError("the parser would take the body for a request of its own")
        super().on_headers_complete()
        self.headers = []

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._pending = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Have the whole request."""
        self._pending = 0
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Wait for who asked to take more of the answer."""
        self._waits_since = self.loop.time()
        super().pause_writing()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._waits_since = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what makes no sense; after a whole request, once that is answered."""
        if self._is_answering() and not self.cycle.more_body:
            self.cycle.keep_alive = False
            self.transport.pause_reading()
        elif self._is_answering() and self.cycle.response_started:
            self.transport.abort()
        else:
            super().send_400_response(msg)

    def _unsupported_upgrade_warning(self) -> None:
        """Answer as if no other protocol was asked for; uvicorn would advise to install one, which no page uses."""

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _make_room(self) -> None:
        ours = (peer for peer in self.connections if isinstance(peer, PatientProtocol) and peer is not self)
        idle = (peer for peer in ours if peer.flow.write_paused or not peer._is_answering())
        # Who takes none of an answer may be a slow reader, and goes last.
        longest = min(idle, key=lambda peer: (peer.flow.write_paused, peer._waits_since), default=None)
        if longest is not None:
            self.connections.discard(longest)
            longest.transport.abort()  # who asks nothing may not say goodbye either, which TLS would wait for

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_within_s, self.timeout_keep_alive_handler)

    def _forget_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
