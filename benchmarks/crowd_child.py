"""A crowd server in a forked child, which starts in a moment because everything is imported already."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mitl.crowd_server.middleware.exposure import plan
from mitl.crowd_server.protocol.html_page import allow
from mitl.settings import load
from mitl.stages.serve import Serving, serve

START_WITHIN_S = 60


@contextlib.contextmanager
def fork_server() -> Iterator[Any]:
    """A multiprocessing context whose children are forked from a process without threads."""
    here = str(Path(__file__).resolve().parent)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = here if before is None else f"{here}{os.pathsep}{before}"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["crowd_child"])
    try:
        yield context
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


class ForkedServer:
    """What ``mitl serve`` runs, in a child that can be killed."""

    def __init__(self, context: Any, url: str, port: int, project: Path, processes: int = 1) -> None:
        """Start it and wait until it can be reached."""
        ours, theirs = context.Pipe(duplex=False)
        # A daemon in the sense of multiprocessing may have no children.
        self._process = context.Process(
            target=run, args=(url, port, project, processes, theirs), daemon=processes == 1
        )
        self._process.start()
        theirs.close()
        if not ours.poll(START_WITHIN_S):
            self.kill()
            raise RuntimeError("the server did not start")
        ours.recv()
        ours.close()

    def workers(self) -> list[int]:
        """The processes that answer, by id; those that are dead already are among them for a moment."""
        stats = [path.read_text().rpartition(")") for path in Path("/proc").glob("[0-9]*/stat")]
        return [
            int(name.partition(" ")[0])
            for name, _, rest in stats
            if int(rest.split()[1]) == self._process.pid and rest.split()[0] != "Z"
        ]

    def kill(self) -> None:
        """End it at once, as a failing machine would: ``kill -9``."""
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.join()


def run(url: str, port: int, project: Path, processes: int, ready: Connection) -> None:
    """Serve in this process until killed."""

    def announce(result: object) -> None:
        ready.send("ready")
        ready.close()

    settings = load(project, crowd_db=url, environ={})
    serve(settings, Serving(plan("127.0.0.1"), port, (), allow((), None), workers=processes), announce)
