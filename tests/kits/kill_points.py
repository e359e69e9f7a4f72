"""The moments at which a command can be killed, counted and named where bytes leave the process.

A point lies before and after every request that is sent (in botocore and in httpx, below all of our own code) and
before and after every commit that writes. Its name is made of what happens and how often it happened before, not of
a running number, so that it is the same in every run however the threads take turns.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

BEFORE, AFTER = "before", "after"
_WRITES = re.compile(r'\s*(?:INSERT(?:\s+OR\s+\w+)?\s+INTO|UPDATE|DELETE\s+FROM)\s+"?(\w+)', re.IGNORECASE)
_DRAWN = re.compile(r"(?<=/i)/[^/]+|(?<=/s)/[^/]+|(?<=/w/a)/[^/]+|(?<=/join)/[^/]+")
"""Names that are drawn, another in each run."""
_TABLES = "kill_points_tables"


def point_name(when: str, step: str, number: int) -> str:
    """As in ``after CreateHIT 3``: the third call's reply has come, and nothing was done with it yet."""
    return f"{when} {step} {number}"


class Points:
    """Counts the points of this process, and sends it a signal at the chosen one, by default SIGKILL."""

    def __init__(self, kill_at: str | None = None, by: int = signal.SIGKILL) -> None:
        self.names: list[str] = []
        self._by = by
        self._kill_at = kill_at
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def reach(self, when: str, step: str) -> None:
        """Count one point; a process that is killed does not live on where it is the chosen one."""
        with self._lock:
            self._counts[when, step] += 1
            name = point_name(when, step, self._counts[when, step])
            self.names.append(name)
            if name == self._kill_at:
                os.kill(os.getpid(), self._by)

    def watch(self) -> None:
        """Put the points in place; the process is a throw-away one, so they stay."""
        import httpx
        from botocore.httpsession import URLLib3Session
        from sqlalchemy import Connection, Engine, event

        self._around(URLLib3Session, "send", lambda session, request: _operation(request))
        self._around(httpx.HTTPTransport, "handle_request", lambda transport, request: _page(request))
        event.listen(Engine, "before_cursor_execute", _note_write)
        event.listen(Engine, "rollback", lambda connection: connection.info.pop(_TABLES, None))
        self._around(Connection, "_commit_impl", _commit)

    def _around(self, owner: type, name: str, step_of: Callable[..., str | None]) -> None:
        inner = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            step = step_of(*args, **kwargs)
            if step is None:
                return inner(*args, **kwargs)
            self.reach(BEFORE, step)
            value = inner(*args, **kwargs)
            self.reach(AFTER, step)
            return value

        setattr(owner, name, wrapped)


def _operation(request: Any) -> str:
    target = request.headers.get("X-Amz-Target", b"")
    text = target.decode() if isinstance(target, bytes) else str(target)
    return text.rpartition(".")[2] or "unknown call"


def _page(request: Any) -> str:
    return f"{request.method} {_DRAWN.sub('/…', request.url.path)}"


def _note_write(
    connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
) -> None:
    found = _WRITES.match(statement)
    if found is not None:
        connection.info.setdefault(_TABLES, set()).add(found[1])


def _commit(connection: Any) -> str | None:
    """A commit's name, by the tables that it makes last; None for one that writes nothing."""
    tables = connection.info.pop(_TABLES, None)
    return f"commit of {', '.join(sorted(tables))}" if tables else None
