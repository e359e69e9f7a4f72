"""Making calls that cost or bind: each is journalled before it is made and booked once after.

A call's row in the journal goes planned → sending → done. ``failed`` means that the server refused it, so that it had
no effect; a call whose reply never came stays ``sending``, because it may have had one. Rows in ``sending`` are
made again under the same key and token, and a call that is done is never made again.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Generic, TypeGuard, TypeVar

from mitl.crowd.context import Context
from mitl.crowd.listings import is_refusal
from mitl.db.store import journal
from mitl.errors import CrowdError, MitlError
from mitl.interrupts import interrupts_held
from mitl.records import JournalState, several

T = TypeVar("T")
R = TypeVar("R")

WINDOW = 16
"""Calls that are marked as sending in one commit, made together, and booked in one commit."""
THREADS = 4
_IN_FLIGHT = 2 * THREADS
"""Calls of a window that are still made while the next one is written down, so that the server never waits for that."""

_TURN_S = 0.0005


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


@dataclass(frozen=True, slots=True)
class Operation(Generic[T, R]):
    """One kind of call: how it is made, and what it leaves in the database."""

    kind: str
    """As the journal names it."""
    call: Callable[[T], R]
    """Is run in threads, and must not touch the session. Its value is journalled as JSON."""
    book: Callable[[Sequence[tuple[T, R]]], None] | None = None
    """Writes the effects of calls that succeeded; in one transaction with their journal rows, which is begun again
    where Ctrl-C breaks it."""
    before_window: Callable[[Sequence[Call[T]]], None] | None = None
    """Is run before a window is journalled and may raise to stop there, before anything is spent. What it writes is
    committed with the journal's rows."""
    not_made: Callable[[T], None] | None = None
    """Takes that back for a call that Ctrl-C kept from being made."""


def make_calls(
    context: Context,
    operation: Operation[T, R],
    calls: Sequence[Call[T]],
    *,
    label: str | None = None,
    in_order: bool = False,
    refusals: dict[str, CrowdError] | None = None,
) -> int:
    """Make these calls, window by window, and return how many were made, and by no other process beside this one.

    Calls that the journal knows as done are passed over. A first Ctrl-C starts no further call, waits for those in
    flight and books them; a second one leaves them to the next run.

    Args:
        label: names the bar; the kind where it is left out.
        in_order: one after the other. A server in this process gains nothing by threads, and in the same order
            its workers meet the same HITs.
        refusals: takes, by their keys, the calls that the server itself refuses; then these hold up no other call.

    Raises:
        CrowdError: the first failure of a window, after what succeeded in it was booked.
    """
    kind = operation.kind
    assert len({call.key for call in calls}) == len(calls), f"two {kind} calls of one key"
    if not calls:
        return 0
    pool = ThreadPoolExecutor(1 if in_order else THREADS, thread_name_prefix=kind)
    run = _Run(context, operation, pool, refusals, context.now())
    try:
        with quick_turns(), context.progress(label or kind, len(calls)) as advance:
            for start in range(0, len(calls), WINDOW):
                window = calls[start : start + WINDOW]
                if operation.before_window is not None:
                    operation.before_window(window)
                # What is announced must be in flight before Ctrl-C is heard, or nobody would take it back.
                with interrupts_held() as release:
                    sent = run.send(window)
                    release()
                advance(len(window) - len(sent))
                run.book_made(sent)
                if not run.await_all_but(_IN_FLIGHT, advance):
                    break
            run.await_all_but(0, advance)
        run.book_made()
    except BaseException as error:
        run.stop(cancel=not isinstance(error, MitlError))
        raise
    finally:
        # Nothing is in flight here, unless a second Ctrl-C asked not to wait for it.
        pool.shutdown(wait=False, cancel_futures=True)
    if run.failure is not None:
        raise run.failure
    return run.made


def require_none_refused(refusals: Mapping[str, CrowdError]) -> None:
    """What the server refused, once all other calls are made and booked.

    Raises:
        CrowdError: it refused something.
    """
    for key, refusal in refusals.items():
        refusal.args = (f"{several(len(refusals), 'call')} refused, all others made; first {key}: {refusal}",)
        raise refusal


@contextmanager
def quick_turns() -> Iterator[None]:
    """Let threads go on within half a millisecond of a reply while this one computes.

    Python lets it keep the interpreter for 5 ms, several times in the course of each call: longer than a call takes.
    """
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, _TURN_S))
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def plan_calls(context: Context, kind: str, calls: Sequence[Call[Any]]) -> None:
    """Write down calls that are to be made later, so that what they cost counts as promised; commits nothing."""
    journal.plan(context.session, kind, _rows(calls), context.now())


def _rows(calls: Sequence[Call[Any]]) -> list[tuple[str, str | None, str]]:
    return [(call.key, call.token, json.dumps(call.request)) for call in calls]


@dataclass
class _Run(Generic[T, R]):
    """Windows of calls: each is announced and sent while the last calls of the one ahead of it are made, and before
    that one is booked; so neither costs any waiting.

    No transaction is open while calls are awaited, so that other processes can write meanwhile.
    """

    context: Context
    operation: Operation[T, R]
    pool: ThreadPoolExecutor
    refusals: dict[str, CrowdError] | None
    sent_at: dt.datetime
    open: dict[Future[R], Call[T]] = field(default_factory=dict)
    """Sent and not booked."""
    over: SimpleQueue[Future[R]] = field(default_factory=SimpleQueue)
    in_flight: int = 0
    made: int = 0
    failure: BaseException | None = None
    """The first."""

    def send(self, calls: Sequence[Call[T]]) -> list[Future[R]]:
        """Write down that these calls are about to be made, and send those that are not done yet."""
        session, kind = self.context.session, self.operation.kind
        done = journal.announce(session, kind, _rows(calls), self.sent_at)
        left = [call for call in calls if call.key not in done]
        session.commit()
        sent = {self.pool.submit(self.operation.call, call.subject): call for call in left}
        for future in sent:
            future.add_done_callback(self.over.put)
        self.open.update(sent)
        self.in_flight += len(sent)
        return list(sent)

    def await_all_but(self, count: int, advance: Callable[[int], None]) -> bool:
        """Wait until no more than so many calls are in flight; False where one of those awaited has failed."""
        good = True
        while self.in_flight > count:
            future = self.over.get()
            self.in_flight -= 1
            good &= (fault := future.exception()) is None or self._is_taken(fault)
            advance(1)
        return good

    def _is_taken(self, fault: BaseException) -> TypeGuard[CrowdError]:
        """Whether it is a refusal of this call alone, which the caller takes."""
        return self.refusals is not None and is_refusal(fault)

    def book_made(self, awaited: Collection[Future[R]] = ()) -> None:
        """Wait for the calls that were sent, but for those of ``awaited``, and book them in one transaction."""
        over = {future: call for future, call in self.open.items() if future not in awaited}
        if not over:
            return
        session, kind, now = self.context.session, self.operation.kind, self.context.now
        booked: list[tuple[T, R]] = []
        replies: dict[str, str] = {}
        unsent: list[Call[T]] = []
        failed: list[tuple[Call[T], BaseException]] = []
        for future, call in over.items():
            if future.cancelled():
                unsent.append(call)
            elif (fault := future.exception()) is not None:
                failed.append((call, fault))
            else:
                booked.append((call.subject, future.result()))
                replies[call.key] = json.dumps(future.result())
        if booked and self.operation.book is not None:
            self.operation.book(booked)
        for call, fault in failed:
            # A call that failed may have had its effect all the same.
            unclear = fault.unclear if isinstance(fault, CrowdError) else True
            state = JournalState.SENDING if unclear else JournalState.FAILED
            journal.mark(session, kind, [call.key], state, now(), error=str(fault))
            if self.refusals is not None and self._is_taken(fault):
                self.refusals[call.key] = fault
        done = journal.mark_done(session, kind, replies, now())
        journal.take_back(session, kind, [call.key for call in unsent], self.sent_at)
        if self.operation.not_made is not None:
            for call in unsent:
                self.operation.not_made(call.subject)
        session.commit()
        for future in over:
            del self.open[future]
        self.made += done
        self.failure = self.failure or next((fault for _, fault in failed if not self._is_taken(fault)), None)

    def stop(self, *, cancel: bool) -> None:
        """Wait for what was announced and book it; where ``cancel`` is set, start no further call."""
        for future in self.open if cancel else ():
            future.cancel()
        wait(self.open)
        self.context.session.rollback()
        self.book_made()
