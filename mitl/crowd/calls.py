"""Making calls that cost or bind: each is journalled before it is made and booked once after.

A call's row in the journal goes planned → sending → done. ``failed`` means that the server refused it, so that it had
no effect; a call whose reply never came stays ``sending``, because it may have had one. Rows in ``sending`` are
made again under the same key and token, and a call that is done is never made again.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy.orm import Session

from mitl.db.store import journal
from mitl.errors import CrowdError
from mitl.interrupts import interrupts_held
from mitl.progress import Progress
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
    pool = ThreadPoolExecutor(1 if in_order else THREADS, thread_name_prefix=kind)
    run = _Run(session, kind, call, book, not_made, pool)
    try:
        with progress(label or kind, len(calls)) as advance:
            for start in range(0, len(calls), WINDOW):
                window = calls[start : start + WINDOW]
                if before_window is not None:
                    before_window(window)
                # What is announced must be in flight before Ctrl-C is heard, or nobody would take it back.
                with interrupts_held() as let_through:
                    sent = run.send(window)
                    let_through()
                advance(len(window) - len(sent))
                run.book_made(sent)
                for _ in as_completed(sent):
                    advance(1)
                if any(future.exception() for future in sent):
                    break
        run.book_made()
    except BaseException:
        run.stop()
        raise
    finally:
        # Nothing is in flight here, unless a second Ctrl-C asked not to wait for it.
        pool.shutdown(wait=False, cancel_futures=True)
    if run.failure is not None:
        raise run.failure
    return run.made


def plan_calls(session: Session, kind: str, calls: Sequence[Call[Any]]) -> None:
    """Write down calls that are to be made later, so that what they cost counts as promised; commits nothing."""
    journal.plan(session, kind, [(one.key, one.token, json.dumps(one.request)) for one in calls], _now())


class _Run(Generic[T, R]):
    """Windows of calls: each is announced and sent before the one ahead of it is booked, which costs no waiting.

    No transaction is open while calls are awaited, so that other processes can write meanwhile.
    """

    def __init__(
        self,
        session: Session,
        kind: str,
        call: Callable[[T], R],
        book_one: Callable[[T, R], None],
        not_made: Callable[[T], None] | None,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._session, self._kind, self._pool = session, kind, pool
        self._call, self._book_one, self._not_made = call, book_one, not_made
        self._open: dict[Future[R], Call[T]] = {}
        """Sent and not booked."""
        self._sent_at = _now()
        self.made = 0
        self.failure: BaseException | None = None
        """The first."""

    def send(self, calls: Sequence[Call[T]]) -> list[Future[R]]:
        """Write down that these calls are about to be made, and send those that are not done yet."""
        done = journal.done_keys(self._session, self._kind, [one.key for one in calls])
        left = [one for one in calls if one.key not in done]
        plan_calls(self._session, self._kind, left)
        journal.mark(
            self._session, self._kind, [one.key for one in left], JournalState.SENDING, self._sent_at
        )
        self._session.commit()
        sent = {self._pool.submit(self._call, one.subject): one for one in left}
        self._open.update(sent)
        return list(sent)

    def book_made(self, awaited: Collection[Future[R]] = ()) -> None:
        """Book what became of the calls that were sent, but for those that are still awaited; in one transaction."""
        over = {future: one for future, one in self._open.items() if future not in awaited}
        if not over:
            return
        replies: dict[str, str] = {}
        unsent = [one for future, one in over.items() if future.cancelled()]
        failed = [(one, fault) for future, one in over.items() if (fault := _fault(future)) is not None]
        for future, one in over.items():
            if not future.cancelled() and _fault(future) is None:
                self._book_one(one.subject, future.result())
                replies[one.key] = json.dumps(future.result())
        for one, fault in failed:
            state = JournalState.SENDING if _is_unclear(fault) else JournalState.FAILED
            journal.mark(self._session, self._kind, [one.key], state, _now(), error=str(fault))
        journal.mark_done(self._session, self._kind, replies, _now())
        journal.take_back(self._session, self._kind, [one.key for one in unsent], self._sent_at)
        if self._not_made is not None:
            for one in unsent:
                self._not_made(one.subject)
        self._session.commit()
        for future in over:
            del self._open[future]
        self.made += len(replies)
        self.failure = self.failure or next((fault for _, fault in failed), None)

    def stop(self) -> None:
        """Start no further call, wait for those in flight, and book all that is not booked."""
        for future in self._open:
            future.cancel()
        wait(self._open)
        self._session.rollback()
        self.book_made()


def _fault(future: Future[Any]) -> BaseException | None:
    """Why a call failed; None where it was made, or never sent."""
    return None if future.cancelled() else future.exception()


def _is_unclear(failure: BaseException) -> bool:
    """Whether a call that failed may have had its effect all the same."""
    return failure.unclear if isinstance(failure, CrowdError) else True


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
