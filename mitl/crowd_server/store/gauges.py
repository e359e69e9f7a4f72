"""How much of everything there is, counted for `/metrics`: a few sums, no name of anybody."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from sqlalchemy import Connection, case, func, select

from mitl.crowd_server.models import Account, Assignment, AssignmentState, Hit, Worker
from mitl.records import Environment

HIT_STATES = ("open", "done", "expired", "deleted")


def hit_counts(connection: Connection, now: dt.datetime) -> dict[tuple[Environment, str], int]:
    """HITs by environment and state: open to workers, done by as many as were asked, expired before, or deleted."""
    state = case(
        (Hit.deleted_at.is_not(None), "deleted"),
        (Hit.slots_left == 0, "done"),
        (Hit.expires_at <= now, "expired"),
        else_="open",
    )
    query = select(Hit.environment, state, func.count()).group_by(Hit.environment, state)
    return _filled(((of, what, count) for of, what, count in connection.execute(query)), HIT_STATES)


def assignment_counts(connection: Connection) -> dict[tuple[Environment, str], int]:
    """Assignments by environment and state."""
    query = select(Assignment.environment, Assignment.state, func.count()).group_by(
        Assignment.environment, Assignment.state
    )
    rows = ((of, state.value, count) for of, state, count in connection.execute(query))
    return _filled(rows, [state.value for state in AssignmentState])


def worker_counts(connection: Connection) -> dict[Environment, int]:
    """Workers by environment."""
    query = select(Worker.environment, func.count()).group_by(Worker.environment)
    return dict.fromkeys(Environment, 0) | dict(connection.execute(query).all())


def sums(connection: Connection) -> dict[tuple[Environment, str], int]:
    """Cents by environment: budget, held, spent."""
    query = select(Account.environment, Account.budget_cents, Account.held_cents, Account.spent_cents)
    return {
        (of, what): cents
        for of, *found in connection.execute(query)
        for what, cents in zip(("budget", "held", "spent"), found, strict=True)
    }


def _filled(
    rows: Iterable[tuple[Environment, str, int]], states: Iterable[str]
) -> dict[tuple[Environment, str], int]:
    """Every state of every environment, so that a line does not vanish when its number falls to nothing."""
    zeros = {(of, state): 0 for of in Environment for state in states}
    return zeros | {(of, state): count for of, state, count in rows}
