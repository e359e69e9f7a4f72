"""At most so many HITs a worker: whoever has done them is offered no further ones, and what they did counts.

The cap is kept by the project's own exclusion qualification, granted when a harvest finds that a worker has reached
it. A HIT that the worker took before that may still be handed in; it is paid and counts too. Raising the cap takes
the qualification back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from mitl.crowd.calls import Call, Operation, make_calls
from mitl.crowd.client import MTurkClient, exclusion_qualification
from mitl.crowd.context import Context
from mitl.crowd.paying import EXCLUDE
from mitl.db.store import answers as cap_store
from mitl.db.store import journal
from mitl.db.store.answers import WorkerLoad
from mitl.errors import CrowdError
from mitl.records import Environment, JournalState

CAP, UNCAP = "cap", "uncap"
_MAYBE_MADE = (JournalState.SENDING, JournalState.DONE)


@dataclass(frozen=True, slots=True)
class CapChange:
    """One worker whose cap is to be set or lifted."""

    load: WorkerLoad
    turn: int
    """Counts the times that this worker was capped, from 1."""
    capped: bool
    """What is to be."""

    def key(self, environment: Environment) -> str:
        """Names the call in the journal."""
        name = f"{CAP if self.capped else UNCAP}:{environment}:{self.load.worker}"
        return name if self.turn == 1 else f"{name}:{self.turn}"


def due_caps(context: Context) -> list[CapChange]:
    """The workers who have reached the cap and hold no qualification for it, and those who hold one below it.

    Nobody who is excluded is among them: they hold the same qualification for good.
    """
    most = context.settings.max_hits_per_worker
    granted, taken = (_calls(context, kind) for kind in (CAP, UNCAP))
    changes = []
    for load in cap_store.worker_loads(context.session, context.environment):
        if load.excluded:
            continue
        over = most is not None and load.hits >= most
        lifted = sum(state is JournalState.DONE for state in taken[load.worker])
        # A call whose reply was lost may have had its effect, though nothing else here says so yet.
        holds = load.capped or any(state in _MAYBE_MADE for state in granted[load.worker][lifted:])
        half_lifted = JournalState.SENDING in taken[load.worker]
        if half_lifted or (holds and not over):
            changes.append(CapChange(load, lifted + 1, capped=False))
        elif over and not load.capped:
            changes.append(CapChange(load, lifted + 1, capped=True))
    return changes


def cap_workers(context: Context, client: MTurkClient) -> tuple[int, tuple[str, ...]]:
    """Keep workers who have reached the cap from further HITs, and let in again those who are below it.

    What the server refuses is tried again by each harvest, and told by the first.

    Returns:
        how many workers that was, and what is to be told.

    Raises:
        CrowdError: a call failed; those that succeeded are booked.
    """
    changed, told = 0, []
    # What was half lifted when a run was killed is lifted whole, and may then be due again.
    for _ in range(2):
        changes = due_caps(context)
        if not changes:
            break
        made, news = _change(context, client, changes)
        changed += made
        told += news
    return changed, tuple(told)


def _change(context: Context, client: MTurkClient, changes: Sequence[CapChange]) -> tuple[int, list[str]]:
    states = journal.states(context.session, EXCLUDE)
    context.session.rollback()
    qualification = exclusion_qualification(client, context.settings.project_id)

    def send(change: CapChange) -> bool:
        if change.capped:
            client.associate_qualification(qualification, change.load.worker)
            return True
        return client.revoke_qualification(qualification, change.load.worker)

    def book(made: Sequence[tuple[CapChange, bool]]) -> None:
        for change, _ in made:
            cap_store.set_capped(context.session, change.load.id, context.now() if change.capped else None)

    calls = [
        Call(
            change.key(context.environment),
            change,
            {"worker": change.load.worker, "qualification": qualification, "hits": change.load.hits},
        )
        for change in changes
    ]
    refusals: dict[str, CrowdError] = {}
    made = make_calls(context, Operation(EXCLUDE, send, book), calls, label="cap", refusals=refusals)
    told = [
        f"the cap on HITs of worker {call.subject.load.worker} cannot be "
        f"{'set' if call.subject.capped else 'lifted'}; each harvest tries again: {refusals[call.key]}"
        for call in calls
        if call.key in refusals and states.get(call.key) is not JournalState.FAILED
    ]
    return made, told


def _calls(context: Context, kind: str) -> defaultdict[str, list[JournalState]]:
    """Worker → the states of the calls of this kind about them, oldest first."""
    prefix = f"{kind}:{context.environment}:"
    states = defaultdict(list)
    for row in journal.starting_with(context.session, EXCLUDE, prefix):
        states[row.key.removeprefix(prefix).partition(":")[0]].append(row.state)
    return states
