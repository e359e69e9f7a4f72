"""What extending a batch means for each of its HITs: which calls are due, and what they cost."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from mitl.core.pricing import fee_cents
from mitl.crowd.calls import Call
from mitl.crowd.client import ListedHit
from mitl.db.store import commitments
from mitl.db.store.hits import BatchRow, HitRow
from mitl.errors import UsageError
from mitl.records import Environment, HitState, JournalState

MANY = 10
"""MTurk refuses to raise a HIT of fewer assignments to so many: its fee doubles there."""
_NEAR = dt.timedelta(hours=1)
"""Two runs of the same command soon after one another mean the same time."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of the HITs of one batch."""

    batch: str
    assignments: int | None = None
    """Different workers per HIT in all."""
    days: int | None = None
    """From now on the HITs can be taken for so many days."""
    max_cost_cents: int | None = None

    def __post_init__(self) -> None:
        if self.assignments is None and self.days is None:
            raise UsageError(
                "say how to extend: --assignments N asks N workers of each HIT in all, --days D lets the HITs be "
                "taken for D days from now; both may be given"
            )


@dataclass(frozen=True, slots=True)
class More:
    """Asking more workers of one HIT."""

    hit: HitRow
    found: ListedHit
    wanted: int
    cost_cents: int
    """What it adds to what is promised, fees included."""

    @property
    def on_server(self) -> bool:
        """Whether the server asks for so many already, because an earlier call's reply was lost."""
        return self.found.max_assignments >= self.wanted

    @property
    def additional(self) -> int:
        """Assignments that are missing on the server."""
        return self.wanted - self.found.max_assignments

    def token(self, project_id: str) -> str:
        """The ``UniqueRequestToken``: 48 hexadecimal digits of a hash over what names the call."""
        name = f"mitl1:{project_id}:extend:{self.hit.key}:{self.wanted}"
        return hashlib.sha256(name.encode()).hexdigest()[:48]

    def call(self, project_id: str, environment: Environment) -> Call[More]:
        """The call as it is journalled."""
        request = {
            "environment": environment.value,
            "hit": self.found.hit_id,
            "additional": self.additional,
            commitments.COST: self.cost_cents,
        }
        return Call(f"{self.hit.key}:{self.wanted}", self, request, self.token(project_id))


@dataclass(frozen=True, slots=True)
class Longer:
    """Letting one HIT be taken until a later time."""

    key: str
    hit: HitRow
    until: dt.datetime

    def call(self, environment: Environment) -> Call[Longer]:
        """The call as it is journalled."""
        request = {
            "environment": environment.value,
            "hit": self.hit.mturk_hit_id,
            "until": self.until.isoformat(),
        }
        return Call(self.key, self, request)


def more(
    batch: BatchRow, out: list[tuple[HitRow, ListedHit]], wish: Wish, *, charges_fee: bool, now: dt.datetime
) -> list[More]:
    """The HITs that ask fewer workers than wished, those that are done and closed included.

    Raises:
        UsageError: MTurk's rule at ten assignments, or HITs whose time is over and no ``days``.
    """
    if wish.assignments is None:
        return []
    wanted = wish.assignments
    short = [(hit, found) for hit, found in out if hit.assignments < wanted]
    low = min((found.max_assignments for _, found in short), default=wanted)
    if low < MANY <= wanted:
        raise UsageError(
            f"the HITs of batch {batch.name} were posted for {low} workers each, and MTurk refuses to raise such a "
            f"HIT to {MANY} or more (its fee doubles there); ask for at most {MANY - 1}, or post a new batch"
        )
    over = [hit for hit, found in short if found.expires_at <= now]
    if over and wish.days is None:
        raise UsageError(
            f"{len(over):,} HITs of batch {batch.name} can no longer be taken, so more assignments alone would wait "
            "for ever; add --days D"
        )
    price = batch.reward_cents + (fee_cents(batch.reward_cents, wanted) if charges_fee else 0)
    return [More(hit, found, wanted, price * _new_work(hit, found, wanted)) for hit, found in short]


def _new_work(hit: HitRow, found: ListedHit, wanted: int) -> int:
    """Submissions that are promised on top of what is promised already: a closed HIT promises none."""
    before = hit.assignments if hit.state is HitState.POSTED else found.n_submitted
    return max(wanted - before, 0)


def longer(
    out: list[tuple[HitRow, ListedHit]],
    wish: Wish,
    states: Mapping[str, JournalState],
    planned: Mapping[str, dt.datetime],
    *,
    now: dt.datetime,
) -> list[Longer]:
    """The posted HITs that can be taken for less time than wished, and those whose time an interrupted run moved.

    Args:
        states: the journal's calls of this kind.
        planned: the time that each open call was to set.
    """
    if wish.days is None:
        return []
    done = Counter(key.rpartition(":")[0] for key, state in states.items() if state is JournalState.DONE)
    until = (now + dt.timedelta(days=wish.days)).replace(microsecond=0)
    found = []
    for hit, listed in out:
        name = f"{hit.key}:until"
        key = f"{name}:{done[name] + 1}"
        if key in planned:
            found.append(Longer(key, hit, planned[key]))
        elif hit.state is HitState.POSTED and listed.expires_at < until - _NEAR:
            found.append(Longer(key, hit, until))
    return found
