"""Commands as a person types them, in processes of their own that can be ended by SIGKILL at a named point.

Run as a program, this is the fork server: it has imported everything, has no threads, and forks a child for each line
of JSON that it reads, so that a child costs milliseconds.
"""

from __future__ import annotations

import gc
import io
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

PATIENCE_S = 60
KILLED = -signal.SIGKILL
CRASHED = 70

Command = Sequence[str]


@dataclass(frozen=True)
class Job:
    """Commands to run."""

    folder: str
    """The project."""
    port: int
    """Where the crowd server answers."""
    commands: Sequence[Command]
    kill_at: str | None = None
    """The point at which the process is sent the signal."""
    by: int = signal.SIGKILL
    """The signal: it dies of SIGKILL; SIGINT is Ctrl-C."""
    page: int | None = None
    """How many rows of a listing are asked for at once; None leaves it to the client."""
    patience_s: float = 60
    """How long a reply is waited for."""
    rehearsal: bool = False
    """Run it in the fork server itself, whose children then have all in memory that is made at first use."""


@dataclass(frozen=True)
class Run:
    """How the commands ended."""

    exit_status: int
    """Of the process: 0, or ``KILLED``."""
    points: tuple[str, ...] = ()
    """The points that it came by, in order."""
    statuses: tuple[int, ...] = ()
    """Of the commands; the rest is not run after one that failed."""
    said: str = ""
    """What the commands printed, errors included."""

    @property
    def failed(self) -> bool:
        """Whether a command ended with an error."""
        return self.exit_status != 0 or any(self.statuses)

    @property
    def crashed(self) -> bool:
        """Whether a command ended otherwise than by success or one clear line."""
        return self.exit_status not in (0, KILLED) or CRASHED in self.statuses


class Clients:
    """Runs commands in new processes, for the block of a ``with``."""

    def __enter__(self) -> Clients:
        environ = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MITL_", "AWS_", "PYTEST_"))
        }
        environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.communicate()

    def run(self, job: Job) -> Run:
        """Run a job in a new process and say how it ended."""
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps(asdict(job)) + "\n")
        self._server.stdin.flush()
        status, reply = json.loads(self._server.stdout.readline())
        if not reply:
            return Run(status)
        names, statuses, said = json.loads(reply)
        return Run(status, tuple(names), tuple(statuses), said)


def _serve() -> None:
    import kill_preload  # noqa: F401 - imported once, for all children

    # Whatever a library prints must not come between our own lines.
    own = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        job = Job(**json.loads(line))
        own.write(json.dumps([0, _work(job)] if job.rehearsal else _in_a_child(job)) + "\n")
        own.flush()
        gc.collect()
        gc.freeze()


def _in_a_child(job: Job) -> list[object]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        gc.disable()  # it is over before its garbage matters
        signal.alarm(PATIENCE_S)
        os.close(reading)
        with os.fdopen(writing, "w") as pipe:
            pipe.write(_work(job))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        reply = pipe.read()
    _, status = os.waitpid(child, 0)
    return [os.waitstatus_to_exitcode(status), reply]


def _work(job: Job) -> str:
    from kill_points import Points

    points = Points(job.kill_at, job.by)
    said = io.StringIO()
    statuses: list[int] = []
    try:
        _aim(job)
        if not job.rehearsal:
            points.watch()
        with redirect_stdout(said), redirect_stderr(said):
            for words in job.commands:
                statuses.append(_mitl([*words, "--project", job.folder]))
                if statuses[-1]:
                    break
    except BaseException:
        statuses.append(CRASHED)
        said.write(traceback.format_exc())
    return json.dumps([points.names, statuses, said.getvalue()])


def _mitl(words: list[str]) -> int:
    from mitl.cli import group
    from mitl.cli.app import run

    return run(group, words)


def _aim(job: Job) -> None:
    """The crowd server is looked for at the job's port; pages of listings and patience are as it says."""
    from mitl.crowd import transport
    from mitl.crowd.endpoint import open_endpoint

    def call(self: Any, operation: str, read: Any, **parameters: Any) -> Any:
        page = {"MaxResults": job.page} if "MaxResults" in parameters else {}
        return whole(self, operation, read, **parameters | page)

    whole = transport.Transport.call
    if job.page is not None:
        transport.Transport.call = call  # type: ignore[assignment, method-assign]
    transport.READ_TIMEOUT_S = job.patience_s  # type: ignore[assignment]
    open_endpoint.__wrapped__.__kwdefaults__["port"] = job.port  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    _serve()
