"""Making calls that cost or bind: each is journalled before it is made and booked once after.

A call's row in the journal goes planned → sending → done. ``failed`` means that the server refused it, so that it had
no effect; a call whose reply never came stays ``sending``, because it may have had one. Rows in ``sending`` are
made again under the same key and token, and a call that is done is never made again.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sqlalchemy.orm import Session

from mitl.db.store import journal
from mitl.errors import CrowdError
from mitl.interrupts import interrupts_held
from mitl.progress import Advance, Progress
from mitl.records import JournalState

T = TypeVar("T")
R = TypeVar("R")

WINDOW = 16
"""Calls that are marked as sending in one commit, made together, and booked in one commit."""
THREADS = 4


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One call to be made once."""

    key: str
    """Names it among the calls of its kind, for ever."""
    subject: T
    """What the call is made with and booked on."""
    request: Mapping[str, Any]
    """What is journalled about it before; JSON."""
    token: str | None = None
    """The request token that makes a repeat harmless for 24 hours, where the operation takes one."""


def make_calls(
    session: Session,
    kind: str,
    calls: Sequence[Call[T]],
    *,
    call: Callable[[T], R],
    book: Callable[[T, R], None],
    progress: Progress,
    label: str | None = None,
    in_order: bool = False,
    before_window: Callable[[Sequence[Call[T]]], None] | None = None,
    not_made: Callable[[T], None] | None = None,
) -> int:
    """Make these calls, window by window, and return how many were made.

    Calls that the journal knows as done are passed over. A first Ctrl-C starts no further call, waits for those in
    flight and books them; a second one leaves them to the next run.

    Args:
        call: is run in threads, and must not touch the session. Its value is journalled as JSON.
        book: writes the effect of one call that succeeded; in one transaction with the others of its window and
            their journal rows, which is begun anew where Ctrl-C breaks it.
        label: names the bar; the kind where it is left out.
        in_order: one after the other. A server in this process gains nothing by threads, and in the same order
            its workers meet the same HITs.
        before_window: is run before a window is journalled and may raise to stop there, before anything is spent.
            What it writes is committed with the journal's rows.
        not_made: takes that back for a call that Ctrl-C kept from being made.

    Raises:
        CrowdError: the first failure of a window, after what succeeded in it was booked.
    """
    assert len({one.key for one in calls}) == len(calls), f"two {kind} calls of one key"
    if not calls:
        return 0
    made = 0
    pool = ThreadPoolExecutor(1 if in_order else THREADS, thread_name_prefix=kind)
    try:
        with progress(label or kind, len(calls)) as advance:
            for start in range(0, len(calls), WINDOW):
                window = calls[start : start + WINDOW]
                if before_window is not None:
                    before_window(window)
                sending = _Window(session, kind, book, not_made, _now())
                made += sending.make(window, call, pool, advance)
    finally:
        # Nothing is in flight here, unless a second Ctrl-C asked not to wait for it.
        pool.shutdown(wait=False, cancel_futures=True)
    return made


def plan_calls(session: Session, kind: str, calls: Sequence[Call[Any]]) -> None:
    """Write down calls that are to be made later, so that what they cost counts as promised; commits nothing."""
    journal.plan(session, kind, [(one.key, one.token, json.dumps(one.request)) for one in calls], _now())


@dataclass(frozen=True, slots=True)
class _Window(Generic[T, R]):
    """Calls that are announced, made and booked together."""

    session: Session
    kind: str
    book_one: Callable[[T, R], None]
    not_made: Callable[[T], None] | None
    sent_at: dt.datetime
    futures: dict[Future[R], Call[T]] = field(default_factory=dict)

    def make(
        self, calls: Sequence[Call[T]], call: Callable[[T], R], pool: ThreadPoolExecutor, advance: Advance
    ) -> int:
        """Announce the calls, make them and book them, also where Ctrl-C comes between; returns how many succeeded."""
        # What is announced must be in flight before Ctrl-C is heard, or nobody would take it back.
        with interrupts_held() as let_through:
            to_make = self._announce(calls)
            for one in to_make:
                self.futures[pool.submit(call, one.subject)] = one
            try:
                let_through()
                advance(len(calls) - len(to_make))
                # What is done is booked, in order, while the rest of the window is still on its way.
                booked = set()
                for future in self.futures:
                    wait([future])
                    advance(1)
                    if future.exception() is None:
                        self.book_one(self.futures[future].subject, future.result())
                        booked.add(future)
                failure = self.book([], booked)
            except BaseException:
                for future in self.futures:
                    future.cancel()
                wait(self.futures)
                self.session.rollback()
                self.book([])
                raise
        if failure is not None:
            raise failure
        return len(to_make)

    def _announce(self, calls: Sequence[Call[T]]) -> list[Call[T]]:
        """Write down that these calls are about to be made; returns those that are not done yet."""
        done = journal.done_keys(self.session, self.kind, [one.key for one in calls])
        left = [one for one in calls if one.key not in done]
        plan_calls(self.session, self.kind, left)
        journal.mark(self.session, self.kind, [one.key for one in left], JournalState.SENDING, self.sent_at)
        self.session.commit()
        return left

    def book(self, unsent: list[Call[T]], booked: Collection[Future[R]] = ()) -> BaseException | None:
        """Book what became of the calls, but for the effects that are booked already; returns the first failure."""
        first: BaseException | None = None
        replies: dict[str, str] = {}
        for future, one in self.futures.items():
            failure = None if future.cancelled() else future.exception()
            if future.cancelled():
                unsent.append(one)
            elif failure is None:
                if future not in booked:
                    self.book_one(one.subject, future.result())
                replies[one.key] = json.dumps(future.result())
            else:
                first = first or failure
                state = JournalState.SENDING if _is_unclear(failure) else JournalState.FAILED
                journal.mark(self.session, self.kind, [one.key], state, _now(), error=str(failure))
        journal.mark_done(self.session, self.kind, replies, _now())
        journal.take_back(self.session, self.kind, [one.key for one in unsent], self.sent_at)
        if self.not_made is not None:
            for one in unsent:
                self.not_made(one.subject)
        self.session.commit()
        return first


def _is_unclear(failure: BaseException) -> bool:
    """Whether a call that failed may have had its effect all the same."""
    return failure.unclear if isinstance(failure, CrowdError) else True


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
