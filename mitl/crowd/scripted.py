"""Scripted workers: they come by invitation link and answer HITs over HTTP, through the form a person uses.

They know of the crowd server what a browser knows: cookies, links, forms and frames. The truth that they err around
comes from the caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httpx

from mitl.crowd.populations import CHARACTERS, PlayedHit
from mitl.crowd.worker_session import Truths, WorkerSession
from mitl.errors import CrowdError, EndpointError, MitlError
from mitl.progress import Advance, Progress, no_progress

TruthOf = Callable[[str], Truths | None]
"""A HIT's id → its places' truth; None where the HIT is none of the caller's."""


@dataclass(frozen=True, slots=True)
class ScriptedWorker:
    """One worker to be played."""

    link: str
    """The invitation link."""
    character: str
    """A name of ``CHARACTERS``."""
    name: str
    """Seeds the answers; unlike the id that the crowd server gives, the same in every run."""


@dataclass(slots=True)
class SimulationResult:
    """What the scripted workers did."""

    skipped: int = 0
    """HITs handed out that the caller knew nothing about; they were given back."""
    by_worker: Counter[str] = field(default_factory=Counter)
    """HITs submitted, by the worker's name."""
    by_character: Counter[str] = field(default_factory=Counter)

    @property
    def submitted(self) -> int:
        """HITs."""
        return self.by_worker.total()


@dataclass(frozen=True, slots=True)
class ScriptedWork:
    """What workers do, and how much of it."""

    truth_of: TruthOf
    """The truth by place of a HIT, by the id that the crowd server gave it."""
    seed: int
    hits_per_worker: int | None = None
    """Nobody does more than these."""
    max_hits: int | None = None
    """All together do no more than these."""
    key_of: Callable[[str], str] = str
    """A name of the HIT that stays the same when it is posted again; the answers depend on the seed, the worker's name
    and this."""
    joining: Callable[[ScriptedWorker], None] = lambda worker: None
    """Is told of each worker before they open their link."""


def run_workers(
    workers: Sequence[ScriptedWorker],
    work: ScriptedWork,
    *,
    expected: int = 0,
    progress: Progress = no_progress,
) -> SimulationResult:
    """Let the workers take HITs in turn, one each, until none is left for any of them.

    Args:
        expected: the number of HITs that the progress bar ends at.

    Raises:
        CrowdError: the server refused an invitation, answered with an error, or showed a page that does not
            fit.
        EndpointError: nothing answers.
    """
    unknown = sorted({worker.character for worker in workers} - set(CHARACTERS))
    if unknown:
        raise CrowdError(f"no worker character called {unknown[0]!r}; known: {', '.join(CHARACTERS)}")
    # One pool of connections for all: a few hundred workers would run out of sockets.
    with progress("simulate", expected) as advance, httpx.HTTPTransport() as transport:
        shift = _Shift(work, work.max_hits, advance, transport)
        waiting = list(workers)
        while waiting:
            waiting = [worker for worker in waiting if shift.turn(worker)]
    return shift.result


def give_back(links: Sequence[str]) -> int:
    """Let workers who were interrupted return the HITs that they hold, unanswered; how many there were.

    Raises:
        EndpointError: nothing answers.
    """
    count = 0
    with httpx.HTTPTransport() as transport:
        for link in links:
            try:
                count += WorkerSession.join(link, transport).give_back_all()
            except EndpointError:
                raise
            except CrowdError:
                continue  # the invitation has ended, and with it what was held by it
    return count


@dataclass
class _Shift:
    """One run: what the workers share."""

    wanted: ScriptedWork
    left: int | None
    """HITs that may still be done; None sets no limit."""
    advance: Advance
    transport: httpx.BaseTransport
    sessions: dict[str, WorkerSession] = field(default_factory=dict)
    result: SimulationResult = field(default_factory=SimulationResult)

    def turn(self, worker: ScriptedWorker) -> bool:
        """Let the worker do one HIT; False when there is none left for them."""
        wanted, most, result = self.wanted, self.wanted.hits_per_worker, self.result
        if self.left == 0 or (most is not None and result.by_worker[worker.name] >= most):
            return False
        session = self.sessions.get(worker.name)
        if session is None:
            wanted.joining(worker)
            session = self.sessions[worker.name] = WorkerSession.join(worker.link, self.transport)
        while (task := session.next_task()) is not None:
            try:
                truths = wanted.truth_of(task.hit_id)
            except MitlError:
                session.give_back(task)  # nobody else could take it before its deadline
                raise
            if truths is not None:
                break
            session.give_back(task)
            result.skipped += 1
        else:
            return False
        character, key = CHARACTERS[worker.character], wanted.key_of(task.hit_id)
        session.submit(task, PlayedHit(character, wanted.seed, worker.name, key), truths)
        self.left = None if self.left is None else self.left - 1
        result.by_worker[worker.name] += 1
        result.by_character[worker.character] += 1
        self.advance(1)
        return True
