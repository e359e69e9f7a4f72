"""What one process of the server remembers for the operator's page between requests."""

from __future__ import annotations

import datetime as dt
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from sqlalchemy import Connection
from starlette.requests import Request

from mitl.crowd_server.store import progress
from mitl.crowd_server.store.progress import Span

FREE_ATTEMPTS = 5
LONGEST_WAIT_S = 300
FORGET_AFTER = dt.timedelta(hours=1)
MAX_CALLERS = 1000
SPANS_FOR = dt.timedelta(minutes=1)


class Attempts:
    """Wrong tokens, counted by the address they came from: after a few, each one doubles the wait for the next."""

    def __init__(self) -> None:
        self._failed: OrderedDict[str, tuple[int, dt.datetime]] = OrderedDict()
        self._lock = threading.Lock()

    def wait_s(self, caller: str, now: dt.datetime) -> int:
        """How many seconds the caller has to wait before another attempt counts; 0 where it may try."""
        with self._lock:
            count, last = self._failed.get(caller, (0, now))
        if count < FREE_ATTEMPTS:
            return 0
        wait_s = min(LONGEST_WAIT_S, 1 << min(count - FREE_ATTEMPTS + 1, 10))
        return max(0, wait_s - int((now - last).total_seconds()))

    def fail(self, caller: str, now: dt.datetime) -> None:
        """Count a wrong token; callers who failed longest ago are forgotten when there are too many."""
        with self._lock:
            count, last = self._failed.pop(caller, (0, now))
            self._failed[caller] = ((count if now - last < FORGET_AFTER else 0) + 1, now)
            if len(self._failed) > MAX_CALLERS:
                self._failed.popitem(last=False)

    def succeed(self, caller: str) -> None:
        """Forget the caller's wrong tokens."""
        with self._lock:
            self._failed.pop(caller, None)


class EndedSessions:
    """Sessions that were signed out before their time, until their time is over."""

    def __init__(self) -> None:
        self._ends: dict[str, dt.datetime] = {}
        self._lock = threading.Lock()

    def add(self, session: str, ends_at: dt.datetime, now: dt.datetime) -> None:
        """Let this session be good for nothing any more."""
        with self._lock:
            self._ends = {name: at for name, at in self._ends.items() if at > now}
            self._ends[session] = ends_at

    def __contains__(self, session: str) -> bool:
        """Whether it was signed out."""
        return session in self._ends


class KeptSpans:
    """From first to last answer by HIT type: asked anew at most once a minute, and only after new answers."""

    def __init__(self) -> None:
        self._found: dict[int, Span] = {}
        self._done = 0
        self._asked_at: dt.datetime | None = None
        self._lock = threading.Lock()

    def of(self, connection: Connection, done: int, now: dt.datetime) -> dict[int, Span]:
        """The spans; ``done`` is the number of all submissions, by which changes are noticed."""
        with self._lock:
            is_fresh = self._asked_at is not None and abs(now - self._asked_at) < SPANS_FOR
            if done != self._done and not is_fresh:
                self._found, self._done, self._asked_at = progress.spans(connection), done, now
            return self._found


@dataclass(frozen=True, slots=True)
class Memory:
    """All of it."""

    attempts: Attempts = field(default_factory=Attempts)
    ended: EndedSessions = field(default_factory=EndedSessions)
    spans: KeptSpans = field(default_factory=KeptSpans)


_MAKING = threading.Lock()


def memory_of(request: Request) -> Memory:
    """The memory of the application that answers this request."""
    with _MAKING:
        state = request.app.state
        if not hasattr(state, "operator_memory"):
            state.operator_memory = Memory()
        memory: Memory = state.operator_memory
        return memory
