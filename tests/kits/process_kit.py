"""Stages in processes of their own: side by side, or dying at a chosen moment.

Children are forked from a server process that has imported everything and started no thread, so that a child costs
milliseconds and inherits no lock. A child counts events (each call of the requester API, each commit of either
database, each file that is put in place) and dies at the one it was told, as a killed process does: at once, with no
handler run and nothing flushed.
"""

from __future__ import annotations

import inspect
import multiprocessing
import os
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

KILLED = 137
PATIENCE_S = 120

Work = Callable[..., Any]
"""A function of a module, called with a project's settings and further arguments."""


@dataclass(frozen=True)
class Outcome:
    """How a child ended."""

    exit_status: int
    events: int | None = None
    value: Any = None
    error: str | None = None
    """The traceback of what it raised."""
    error_type: str | None = None
    message: str | None = None


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def fork_server() -> Iterator[Any]:
    """A multiprocessing context whose children are forked from a process without threads."""
    changed = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["process_preload"])
    try:
        yield context
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class Child:
    """A stage in a process of its own."""

    def __init__(
        self,
        context: Any,
        work: Work,
        folder: Path,
        *args: Any,
        kill_at: int | None = None,
        start: Any = None,
        **given: Any,
    ) -> None:
        """Args: start: a barrier at which children wait for each other; given: the databases' URLs."""
        self._pipe, theirs = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_main, args=(theirs, work, folder, kill_at, start, args, given), daemon=True
        )
        self._process.start()
        theirs.close()

    def outcome(self) -> Outcome:
        """Wait for the end."""
        found = Outcome(-1)
        try:
            if self._pipe.poll(PATIENCE_S):
                found = self._pipe.recv()
        except EOFError:
            pass  # it died before it could say anything
        self._process.join(PATIENCE_S)
        status = self._process.exitcode
        if status is None:
            self._process.kill()
            self._process.join()
        self._pipe.close()
        self._process.close()
        return replace(found, exit_status=-1 if status is None else status)

    def value(self) -> Any:
        """What the work returned; AssertionError with its traceback where it raised."""
        outcome = self.outcome()
        assert outcome.error is None, f"the child raised:\n{outcome.error}"
        assert outcome.exit_status == 0, f"the child ended with {outcome.exit_status}"
        return outcome.value


def _main(
    pipe: Connection,
    work: Work,
    folder: Path,
    kill_at: int | None,
    start: Any,
    args: tuple[Any, ...],
    given: dict[str, Any],
) -> None:
    events = Events(kill_at)
    try:
        if start is not None:
            start.wait(PATIENCE_S)
        with events.watched():
            value = work(project_settings(folder, **given), *args)
        pipe.send(Outcome(0, events.count, value))
    except BaseException as error:
        pipe.send(Outcome(1, events.count, None, traceback.format_exc(), type(error).__name__, str(error)))


def project_settings(folder: Path, *, db_url: str | None = None, crowd_url: str | None = None) -> Any:
    """The settings of a project folder, untouched by this machine's environment."""
    from mitl.settings import load

    return replace(load(folder, db=db_url, crowd_db=crowd_url, environ={}), endpoint=None)


def side_by_side(context: Any, folder: Path, *works: tuple[Any, ...], **given: Any) -> list[Outcome]:
    """Run these works, each a function with its arguments, at the same time in processes of their own."""
    start = context.Barrier(len(works))
    children = [Child(context, work, folder, *args, start=start, **given) for work, *args in works]
    return [child.outcome() for child in children]


class Events:
    """Counts what leaves a trace outside the process, and ends the process at the chosen one."""

    def __init__(self, kill_at: int | None) -> None:
        self.count = 0
        self._kill_at = kill_at
        self._lock = threading.Lock()

    def is_last(self) -> bool:
        """Count one; whether the process is to die here."""
        with self._lock:
            self.count += 1
            return self.count == self._kill_at

    def happen(self, *_: Any) -> None:
        """Count one, and die where it is the last."""
        if self.is_last():
            os._exit(KILLED)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Put the events in place; the process is a throw-away one, so they stay."""
        from sqlalchemy import Engine, event
        from sqlalchemy.orm import Session

        from mitl.crowd.client import MTurkClient

        for name, method in inspect.getmembers(MTurkClient, inspect.isfunction):
            if not name.startswith("_") and name != "close":
                setattr(MTurkClient, name, self._around(method))
        setattr(Session, "commit", self._around(Session.commit))  # noqa: B010
        event.listen(Engine, "commit", self._in_the_server)
        for name in ("replace", "rename", "link"):
            setattr(os, name, self._around(getattr(os, name)))
        setattr(Path, "write_bytes", self._half_way(Path.write_bytes))  # noqa: B010
        yield

    def _in_the_server(self, connection: Any) -> None:
        # The crowd server runs in this process and dies with it; the pipeline's commits are counted already.
        if "crowd" in str(connection.engine.url.database):
            self.happen()

    def _around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.happen()
            value = function(*args, **kwargs)
            if inspect.isgenerator(value):
                value = iter(list(value))
            self.happen()
            return value

        return wrapped

    def _half_way(self, write: Callable[[Path, bytes], int]) -> Callable[[Path, bytes], int]:
        def wrapped(path: Path, content: bytes) -> int:
            if self.is_last():
                write(path, content[: len(content) // 2])
                os._exit(KILLED)
            return write(path, content)

        return wrapped
