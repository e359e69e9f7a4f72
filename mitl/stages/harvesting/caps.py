"""At most so many HITs a worker: whoever has done them is offered no further ones, and what they did counts.

The cap is kept by the project's own exclusion qualification, granted when a harvest finds that a worker has reached
it. A HIT that the worker took before that may still be handed in; it is paid and counts too. Raising the cap takes
the qualification back.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.crowd.calls import Call, make_calls
from mitl.crowd.client import MTurkClient
from mitl.crowd.paying import EXCLUDE
from mitl.crowd.worker_calls import exclusion_qualification
from mitl.db.store import caps as cap_store
from mitl.db.store import desk as desk_store
from mitl.db.store.caps import WorkerLoad
from mitl.progress import Progress, no_progress
from mitl.records import Environment, JournalState
from mitl.settings import Settings

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


def due_caps(session: Session, settings: Settings, environment: Environment) -> list[CapChange]:
    """The workers who have reached the cap and hold no qualification for it, and those who hold one below it.

    Nobody who is excluded is among them: they hold the same qualification for good.
    """
    granted, taken = (_calls(session, kind, environment) for kind in (CAP, UNCAP))
    changes = []
    for load in cap_store.worker_loads(session, environment):
        if load.excluded:
            continue
        over = settings.max_hits_per_worker is not None and load.hits >= settings.max_hits_per_worker
        lifted = sum(state is JournalState.DONE for state in taken[load.worker])
        # A call whose reply was lost may have had its effect, though nothing else here says so yet.
        holds = load.capped or any(state in _MAYBE_MADE for state in granted[load.worker][lifted:])
        half_lifted = JournalState.SENDING in taken[load.worker]
        if half_lifted or (holds and not over):
            changes.append(CapChange(load, lifted + 1, capped=False))
        elif over and not load.capped:
            changes.append(CapChange(load, lifted + 1, capped=True))
    return changes


def cap_workers(
    session: Session,
    client: MTurkClient,
    settings: Settings,
    environment: Environment,
    *,
    progress: Progress = no_progress,
) -> int:
    """Keep workers who have reached the cap from further HITs, and let in again those who are below it.

    Returns:
        how many workers that was.

    Raises:
        CrowdError: the server refuses a call; those that succeeded are booked.
    """
    changed = 0
    for _ in range(
        2
    ):  # what was half lifted when a run was killed is lifted whole, and may then be due again
        changes = due_caps(session, settings, environment)
        session.rollback()
        if not changes:
            break
        changed += _change(session, client, settings.project_id, environment, changes, progress)
    return changed


def _change(
    session: Session,
    client: MTurkClient,
    project_id: str,
    environment: Environment,
    changes: Sequence[CapChange],
    progress: Progress,
) -> int:
    qualification = exclusion_qualification(client, project_id)

    def call(change: CapChange) -> bool:
        if change.capped:
            client.associate_qualification(qualification, change.load.worker)
            return True
        return client.revoke_qualification(qualification, change.load.worker)

    def book(change: CapChange, _: bool) -> None:
        cap_store.set_capped(session, change.load.id, dt.datetime.now(dt.UTC) if change.capped else None)

    calls = [
        Call(
            change.key(environment),
            change,
            {"worker": change.load.worker, "qualification": qualification, "hits": change.load.hits},
        )
        for change in changes
    ]
    return make_calls(session, EXCLUDE, calls, call=call, book=book, progress=progress, label="cap")


def _calls(session: Session, kind: str, environment: Environment) -> defaultdict[str, list[JournalState]]:
    """Worker → the states of the calls of this kind about them, oldest first."""
    prefix = f"{kind}:{environment}:"
    found = defaultdict(list)
    for row in desk_store.calls(session, EXCLUDE, prefix):
        found[row.key.removeprefix(prefix).partition(":")[0]].append(row.state)
    return found
