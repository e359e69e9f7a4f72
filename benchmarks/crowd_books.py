"""What must hold in ``crowd.db`` after any load and any death of the server."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from sqlalchemy import Connection, Engine, func, select

from mitl.crowd_server.store.models import (
    DONE_STATES,
    Account,
    AssignmentState,
    CrowdAssignment,
    CrowdHit,
    HitType,
    LedgerEntry,
    LedgerKind,
)
from mitl.records import Environment

_WORD = re.compile(r"word[0-9a-f]{16}")


def faults(engine: Engine, confirmed: Sequence[str]) -> list[str]:
    """One line for each thing that does not hold; ``confirmed`` are the words of answers that workers saw taken."""
    with engine.execution_options(mitl_write=False).connect() as connection:
        found = _answers(connection, confirmed) + _places(connection)
        for environment in Environment:
            found += _money(connection, environment)
    return found


def submissions(engine: Engine) -> int:
    """How many answers are kept."""
    with engine.execution_options(mitl_write=False).connect() as connection:
        return connection.execute(
            select(func.count()).select_from(CrowdAssignment).where(CrowdAssignment.submitted_at.is_not(None))
        ).scalar_one()


def _answers(connection: Connection, confirmed: Sequence[str]) -> list[str]:
    rows = connection.execute(
        select(CrowdAssignment.answer, CrowdAssignment.state, CrowdAssignment.submitted_at)
    ).all()
    kept = Counter(word for answer, _, _ in rows for word in _WORD.findall(answer))
    found = [
        f"the confirmed answer {word} is there {kept[word]} times" for word in confirmed if kept[word] != 1
    ]
    found += [f"the answer {word} is there {times} times" for word, times in kept.items() if times > 1]
    half = sum(
        (state in DONE_STATES) != (at is not None) or (at is not None) != bool(answer)
        for answer, state, at in rows
    )
    return found + ([f"{half} assignments are half submitted"] if half else [])


def _places(connection: Connection) -> list[str]:
    """Each submission took one place of its HIT, and no HIT gave more than it had."""
    done = func.count(CrowdAssignment.id)
    rows = connection.execute(
        select(CrowdHit.id, CrowdHit.max_assignments, CrowdHit.slots_left, done)
        .outerjoin(
            CrowdAssignment,
            (CrowdAssignment.hit_id == CrowdHit.id) & CrowdAssignment.submitted_at.is_not(None),
        )
        .group_by(CrowdHit.id, CrowdHit.max_assignments, CrowdHit.slots_left)
    )
    return [
        f"HIT {own} has {places} places, {left} left and {count} taken"
        for own, places, left, count in rows
        if places - left != count or left < 0
    ]


def _money(connection: Connection, environment: Environment) -> list[str]:
    account = connection.execute(select(Account).where(Account.environment == environment)).one()
    moved: Counter[LedgerKind] = Counter()
    rows = connection.execute(
        select(LedgerEntry.kind, func.sum(LedgerEntry.cents), func.count())
        .where(LedgerEntry.environment == environment)
        .group_by(LedgerEntry.kind)
    ).all()
    for kind, cents, _ in rows:
        moved[kind] = int(cents)
    held = connection.execute(
        select(func.coalesce(func.sum(CrowdHit.held_slots * HitType.reward_cents), 0))
        .join(HitType, HitType.id == CrowdHit.hit_type_id)
        .where(CrowdHit.environment == environment)
    ).scalar_one()
    approved = connection.execute(
        select(func.count())
        .select_from(CrowdAssignment)
        .where(CrowdAssignment.environment == environment, CrowdAssignment.state == AssignmentState.APPROVED)
    ).scalar_one()
    rewards = sum(count for kind, _, count in rows if kind is LedgerKind.REWARD)
    sums = {
        "budget": (account.budget_cents, moved[LedgerKind.BUDGET]),
        "held money": (account.held_cents, moved[LedgerKind.HOLD] - moved[LedgerKind.RELEASE]),
        "spent money": (account.spent_cents, moved[LedgerKind.REWARD] + moved[LedgerKind.BONUS]),
        "money held for HITs": (account.held_cents, int(held)),
        "rewards": (approved, rewards),
    }
    return [
        f"{environment}: {name} is {one}, but {other} by the rows"
        for name, (one, other) in sums.items()
        if one != other
    ]
