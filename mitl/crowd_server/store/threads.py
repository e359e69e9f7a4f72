"""Threads in which a process waits for its database while the event loop reads requests and sends answers.

anyio's threads serve any kind of event loop, and to hand a page over to them takes about twice as long.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")
_Job = tuple[Callable[[], Any], asyncio.Future[Any], asyncio.AbstractEventLoop]

MOST = 16
"""At once in one process, unless told otherwise; two cores have no more from forty."""


class _Threads:
    """Daemons that share one queue; as many as were ever busy at once, up to ``most``."""

    def __init__(self) -> None:
        self.most = MOST
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._open = 0
        """Jobs that wait or run."""
        self._threads = 0

    def put(self, job: _Job) -> None:
        """Have a job done."""
        with self._lock:
            self._open += 1
            is_short = self._open > self._threads < self.most
            self._threads += is_short
        self._jobs.put(job)
        if is_short:
            threading.Thread(target=self._work, name="pages", daemon=True).start()

    def _work(self) -> None:
        while True:
            function, answer, loop = self._jobs.get()
            try:
                done = answer.set_result, function()
            except BaseException as error:
                done = answer.set_exception, error
            with self._lock:
                self._open -= 1
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(_tell, answer, *done)
            del function, answer, loop, done


def _tell(answer: asyncio.Future[Any], tell: Callable[[Any], None], value: Any) -> None:
    if not answer.done():
        tell(value)


_THREADS = _Threads()


def _begin_anew() -> None:
    """In a child, which has none of its parent's threads."""
    global _THREADS
    _THREADS = _Threads()


os.register_at_fork(after_in_child=_begin_anew)


def limit(most: int) -> None:
    """Run at most so many functions at once in this process."""
    _THREADS.most = most


async def in_thread(function: Callable[..., ResultT], *args: Any) -> ResultT:
    """What the function returns or raises for these arguments; it runs in a thread."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[ResultT] = loop.create_future()
    _THREADS.put((partial(function, *args), answer, loop))
    return await answer
