"""Several processes that answer on one socket, and the parent that starts, watches and ends them.

The parent answers nothing. It binds the socket and forks the workers, which take connections from it as they have time;
what waits in the socket's queue outlives any of them. A worker that dies is started again at once. Workers end by
themselves when the parent is gone, however it went.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import NoReturn

from mitl.errors import EndpointError
from mitl.interrupts import interrupts_ignored

log = logging.getLogger(__name__)

TICK_S = 0.1
DRAIN_S = 8.0
"""A worker gives what is asked 5 s to be answered; one that is not gone by then is killed."""
FAILED_STARTS = 3
"""For each worker, in a row; then starting again will not help."""
RETRY_S = 0.5
DEATHS = 10
"""For each worker, within ``DEATHS_WITHIN_S``."""
DEATHS_WITHIN_S = 10.0
_FORK = multiprocessing.get_context("fork")
_ENDING = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Crew:
    """How many workers there are, and what a place among them begins and ends with."""

    workers: int
    begin: Callable[[int], None] = lambda place: None
    """In a new worker, before it answers: leave alone what it has from the parent, such as open connections."""
    gone: Callable[[int], None] = lambda place: None
    """In the parent, when the worker of this place is gone."""


@dataclass(slots=True)
class _Worker:
    process: ForkProcess
    reports: Connection
    is_ready: bool = False


Work = Callable[[Callable[[], None], int], None]
"""Serve until told to end: given what tells that it can be reached, and a pipe that ends with the parent."""


class Supervisor:
    """The parent of a crew."""

    def __init__(self, crew: Crew, work: Work) -> None:
        self._crew = crew
        self._work = work
        self._workers: dict[int, _Worker] = {}
        self._due = dict.fromkeys(range(crew.workers), 0.0)
        """When a place that is empty is filled."""
        self._alive, self._alive_end = os.pipe()
        self._deaths: deque[float] = deque(maxlen=crew.workers * DEATHS)
        self._failed_starts = 0
        self._signals: list[int] = []

    def run(self, ready: Callable[[], None], closing: Callable[[], None]) -> NoReturn:
        """Keep the crew until a signal ends it, which then ends this process too.

        Args:
            ready: called once, when all can be reached.
            closing: called before the workers end, so that nobody new waits for them.

        Raises:
            EndpointError: workers keep dying.
        """
        with self._signals_noted():
            try:
                is_told = False
                while not self._signals:
                    self._fill()
                    self._look()
                    if not is_told and all(
                        place in self._workers and self._workers[place].is_ready
                        for place in range(self._crew.workers)
                    ):
                        is_told = True
                        ready()
            finally:
                closing()
                self._end()
        signal.raise_signal(self._signals[0])
        raise KeyboardInterrupt  # the signal was one that this process does not die of

    @contextlib.contextmanager
    def _signals_noted(self) -> Iterator[None]:
        """Note signals instead of dying of them."""
        before = {
            number: signal.signal(number, lambda came, frame: self._signals.append(came))
            for number in _heard()
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _fill(self) -> None:
        for place, at in list(self._due.items()):
            if at <= time.monotonic():
                del self._due[place]
                self._workers[place] = self._start(place)

    def _start(self, place: int) -> _Worker:
        ours, theirs = _FORK.Pipe(duplex=False)
        process = _FORK.Process(target=self._be, args=(place, theirs), name=f"worker-{place + 1}")
        # A signal must not reach the child while it still notes signals as the parent does.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        theirs.close()
        return _Worker(process, ours)

    def _be(self, place: int, reports: Connection) -> None:
        """The life of a worker, in its own process."""
        for number in _heard():
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        os.close(self._alive_end)
        self._crew.begin(place)
        self._work(lambda: reports.send(True), self._alive)

    def _look(self) -> None:
        """Wait a moment for news of the workers, and see to those that died."""
        watched = [worker.process.sentinel for worker in self._workers.values()]
        wait(
            [*watched, *(child.reports for child in self._workers.values() if not child.is_ready)],
            TICK_S,
        )
        for place, worker in list(self._workers.items()):
            if not worker.is_ready and worker.reports.poll():
                with contextlib.suppress(EOFError):
                    worker.is_ready = worker.reports.recv()
                    self._failed_starts = 0
            if worker.process.exitcode is not None:
                self._bury(place, worker)

    def _bury(self, place: int, worker: _Worker) -> None:
        """Count a death and have the place filled again; EndpointError where that goes on and on."""
        name, how = worker.process.name, _how(worker.process.exitcode)
        del self._workers[place]
        worker.reports.close()
        worker.process.close()
        self._crew.gone(place)
        now = time.monotonic()
        self._failed_starts += not worker.is_ready
        if self._failed_starts >= FAILED_STARTS * self._crew.workers:
            raise EndpointError(
                f"the server's processes do not start: {self._failed_starts} in a row died before they answered, "
                f"the last one {how}; what they logged says why"
            )
        is_often = len(self._deaths) == self._deaths.maxlen and now - self._deaths[0] < DEATHS_WITHIN_S
        self._deaths.append(now)
        if is_often:
            raise EndpointError(
                f"the server's processes keep dying: {self._deaths.maxlen} within {DEATHS_WITHIN_S:.0f} s, the last "
                f"one {how}; what they logged says why"
            )
        log.warning("%s died (%s) and is started again", name, how)
        self._due[place] = now if worker.is_ready else now + RETRY_S

    def _end(self) -> None:
        """Let the workers answer what is asked of them; those that take too long are killed."""
        passed_on = 0
        for worker in self._workers.values():
            worker.process.terminate()
        give_up = time.monotonic() + DRAIN_S
        while time.monotonic() < give_up and any(
            child.process.exitcode is None for child in self._workers.values()
        ):
            wait([child.process.sentinel for child in self._workers.values()], TICK_S)
            for number in self._signals[1 + passed_on :]:
                passed_on += 1
                for worker in self._workers.values():
                    if worker.process.exitcode is None and worker.process.pid is not None:
                        os.kill(worker.process.pid, number)
        for place, worker in self._workers.items():
            worker.process.kill()
            worker.process.join()
            self._crew.gone(place)
        os.close(self._alive)
        os.close(self._alive_end)


def _heard() -> list[signal.Signals]:
    """The signals that end the server: not a Ctrl-C that was ignored when it was started."""
    return [number for number in _ENDING if number != signal.SIGINT or not interrupts_ignored()]


def _how(status: int | None) -> str:
    """How a process ended, in words."""
    if status is not None and status < 0:
        with contextlib.suppress(ValueError):
            return f"by {signal.Signals(-status).name}"
        return f"by signal {-status}"
    return f"with status {status}"
