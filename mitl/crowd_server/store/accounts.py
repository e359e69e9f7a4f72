"""Settings, key pairs, request tokens, and money: every change of an account's sums comes with its ledger row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from mitl.crowd_server.protocol.errors import turk
from mitl.crowd_server.store.models import Account, LedgerEntry, LedgerKind, RequestToken, Setting
from mitl.records import Environment

SANDBOX_CENTS = 1_000_000
"""The sandbox's balance is always 10,000.00: practice money never runs out."""


@dataclass(frozen=True, slots=True)
class Balance:
    """Money of one environment in cents."""

    budget: int
    held: int
    spent: int

    @property
    def available(self) -> int:
        """What may still be set aside or given as a bonus on live."""
        return self.budget - self.held - self.spent


_BALANCE = select(Account.budget_cents, Account.held_cents, Account.spent_cents).where(
    Account.environment == bindparam("environment")
)
_MOVE = (
    update(Account)
    .where(Account.environment == bindparam("of"))
    .values(
        budget_cents=Account.budget_cents + bindparam("budget"),
        held_cents=Account.held_cents + bindparam("held"),
        spent_cents=Account.spent_cents + bindparam("spent"),
    )
)
_ENTER = insert(LedgerEntry)


def settings(connection: Connection) -> dict[str, str]:
    """The server's id and secrets."""
    return dict(connection.execute(select(Setting.name, Setting.value)).all())


def add_setting(connection: Connection, name: str, value: str) -> None:
    """Keep a new setting."""
    connection.execute(insert(Setting).values(name=name, value=value))


def key_pairs(connection: Connection) -> dict[Environment, tuple[str, str]]:
    """Access and secret key of each environment."""
    rows = connection.execute(select(Account.environment, Account.access_key, Account.secret_key))
    return {environment: (access, secret) for environment, access, secret in rows}


def add_account(
    connection: Connection, environment: Environment, keys: tuple[str, str], cents: int, now: dt.datetime
) -> None:
    """Open an environment's account with its first budget."""
    connection.execute(
        insert(Account).values(
            environment=environment,
            access_key=keys[0],
            secret_key=keys[1],
            budget_cents=0,
            held_cents=0,
            spent_cents=0,
        )
    )
    add_budget(connection, environment, cents, now)


def balance(connection: Connection, environment: Environment) -> Balance:
    """What may be spent, is set aside and was spent."""
    return Balance(*connection.execute(_BALANCE, {"environment": environment}).one())


def add_budget(connection: Connection, environment: Environment, cents: int, now: dt.datetime) -> None:
    """Raise the budget, or lower it by a negative number."""
    _move(connection, environment, budget=cents)
    _write(connection, environment, LedgerKind.BUDGET, cents, now)


def hold(connection: Connection, environment: Environment, hit_id: int, cents: int, now: dt.datetime) -> None:
    """Set money aside for a HIT; TurkError InsufficientFunds where there is too little."""
    if cents:
        _require(connection, environment, cents)
        _move(connection, environment, held=cents)
        _write(connection, environment, LedgerKind.HOLD, cents, now, hit_id)


def release(
    connection: Connection, environment: Environment, hit_id: int, cents: int, now: dt.datetime
) -> None:
    """Set money free again."""
    if cents:
        _move(connection, environment, held=-cents)
        _write(connection, environment, LedgerKind.RELEASE, cents, now, hit_id)


def pay(
    connection: Connection,
    environment: Environment,
    rewards: Sequence[tuple[int, int, int, dt.datetime]],
) -> None:
    """Turn held money into rewards owed; each reward is (hit id, assignment id, cents, time)."""
    total = sum(cents for _, _, cents, _ in rewards)
    _move(connection, environment, held=-total, spent=total)
    rows = []
    for hit_id, assignment_id, cents, at in rewards:
        common = {
            "environment": environment,
            "hit_id": hit_id,
            "assignment_id": assignment_id,
            "cents": cents,
            "at": at,
        }
        rows.append(common | {"kind": LedgerKind.RELEASE})
        rows.append(common | {"kind": LedgerKind.REWARD})
    connection.execute(_ENTER, rows)


def grant(
    connection: Connection,
    environment: Environment,
    hit_id: int,
    assignment_id: int,
    cents: int,
    now: dt.datetime,
) -> None:
    """Spend a bonus; TurkError InsufficientFunds where there is too little."""
    _require(connection, environment, cents)
    _move(connection, environment, spent=cents)
    _write(connection, environment, LedgerKind.BONUS, cents, now, hit_id, assignment_id)


def _require(connection: Connection, environment: Environment, cents: int) -> None:
    account = balance(connection, environment)
    available = SANDBOX_CENTS if environment is Environment.SANDBOX else account.available
    if cents > available:
        raise turk(
            "InsufficientFunds",
            f"This request needs {cents / 100:.2f} USD, but the available balance is {available / 100:.2f} USD.",
        )


def _move(
    connection: Connection, environment: Environment, *, budget: int = 0, held: int = 0, spent: int = 0
) -> None:
    connection.execute(_MOVE, {"of": environment, "budget": budget, "held": held, "spent": spent})


def _write(
    connection: Connection,
    environment: Environment,
    kind: LedgerKind,
    cents: int,
    at: dt.datetime,
    hit_id: int | None = None,
    assignment_id: int | None = None,
) -> None:
    entry = {
        "environment": environment,
        "kind": kind,
        "hit_id": hit_id,
        "assignment_id": assignment_id,
        "cents": cents,
        "at": at,
    }
    connection.execute(_ENTER, entry)


TOKEN_MEMORY = dt.timedelta(hours=24)

_FIND_TOKEN = select(RequestToken.id, RequestToken.result, RequestToken.used_at).where(
    RequestToken.environment == bindparam("environment"),
    RequestToken.kind == bindparam("kind"),
    RequestToken.token == bindparam("token"),
)
_ADD_TOKEN = insert(RequestToken)


def recall(
    connection: Connection, environment: Environment, kind: str, token: str, now: dt.datetime
) -> str | None:
    """What the earlier request with this token made; None after 24 hours or for a new token."""
    row = connection.execute(
        _FIND_TOKEN, {"environment": environment, "kind": kind, "token": token}
    ).one_or_none()
    if row is None:
        return None
    own_id, result, used_at = row
    if used_at + TOKEN_MEMORY > now:
        return result
    connection.execute(delete(RequestToken).where(RequestToken.id == own_id))
    return None


def remember(
    connection: Connection, environment: Environment, kind: str, token: str, result: str, now: dt.datetime
) -> None:
    """Keep what a request with this token made."""
    connection.execute(
        _ADD_TOKEN,
        {"environment": environment, "kind": kind, "token": token, "result": result, "used_at": now},
    )
