"""Settings, key pairs, request tokens, and money: every change of an account's sums comes with its ledger row.

``settle`` writes what falls due by the clock alone: auto-approval, the release of money that nobody can earn any
more, and the disposal of HITs 120 days after their expiry. Nothing runs at night: each request first asks whether
something is due in its environment and, if so, writes what should have been written at that time.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, bindparam, case, delete, exists, func, insert, or_, select, update

from mitl.crowd_server.protocol.errors import turk
from mitl.crowd_server.protocol.ids import keyed_hash
from mitl.crowd_server.store.database import Books, Database, Prepared, Wide, add_row, change_row, first
from mitl.crowd_server.store.models import (
    IS_LIVE,
    WORK,
    Account,
    AssignmentState,
    CrowdAssignment,
    CrowdHit,
    HitType,
    LedgerEntry,
    LedgerKind,
    RequestToken,
    Setting,
)
from mitl.records import Environment

SANDBOX_CENTS = 1_000_000
"""The sandbox's balance is always 10,000.00: practice money never runs out."""


@dataclass(frozen=True, slots=True)
class Balance:
    """Money of one environment in cents."""

    environment: Environment
    budget: int
    held: int
    spent: int

    @property
    def available(self) -> int:
        """What may still be set aside or given as a bonus."""
        if self.environment is Environment.SANDBOX:
            return SANDBOX_CENTS
        return self.budget - self.held - self.spent


# Statements of every request are built once: SQLAlchemy takes longer to build one than SQLite to run it.
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


def place(connection: Connection, question: str) -> str:
    """What this database has and no copy of it, told to nobody who lacks its secret; another for each question.

    A copy has the same id, so it takes this to tell a server over the one from a server over the other, and from a
    program that only heard what a server said before.
    """
    if connection.dialect.name == "postgresql":
        where = str(connection.exec_driver_sql(_CLUSTER).scalar_one())
    else:
        file = Path(connection.exec_driver_sql("PRAGMA database_list").all()[0][2])
        status = file.stat() if file.is_file() else None  # a database in memory has no file
        where = f"{status.st_dev} {status.st_ino}" if status else ""
    return keyed_hash(settings(connection)["secret"], "place", f"{where} {question}")


_CLUSTER = (
    "SELECT oid || ' ' || extract(epoch FROM pg_postmaster_start_time()) FROM pg_database "
    "WHERE datname = current_database()"
)
"""Which database of which running PostgreSQL."""


def add_setting(connection: Connection, name: str, value: str) -> None:
    """Keep a new setting."""
    connection.execute(insert(Setting).values(name=name, value=value))


def key_pairs(connection: Connection) -> dict[Environment, tuple[str, str]]:
    """Access and secret key of each environment."""
    rows = connection.execute(select(Account.environment, Account.access_key, Account.secret_key))
    return {environment: (access, secret) for environment, access, secret in rows}


def add_account(books: Books, keys: tuple[str, str], cents: int) -> None:
    """Open an environment's account with its first budget."""
    sums = {"budget_cents": 0, "held_cents": 0, "spent_cents": 0}
    values = {"environment": books.environment, "access_key": keys[0], "secret_key": keys[1]}
    books.connection.execute(insert(Account).values(values | sums))
    add_budget(books, cents)


def balance(connection: Connection, environment: Environment) -> Balance:
    """What may be spent, is set aside and was spent."""
    return Balance(environment, *connection.execute(_BALANCE, {"environment": environment}).one())


def add_budget(books: Books, cents: int) -> None:
    """Raise the budget, or lower it by a negative number."""
    _move(books, budget=cents)
    _write(books, LedgerKind.BUDGET, cents)


def hold(books: Books, hit_id: int, cents: int, *, is_done: bool = False) -> None:
    """Set so much more money aside for a HIT, or set some free where ``cents`` is negative.

    TurkError InsufficientFunds where there is too little, unless the work is done.
    """
    if cents > 0 and not is_done:
        _require(books, cents)
    if cents:
        _move(books, held=cents)
        _write(books, LedgerKind.HOLD if cents > 0 else LedgerKind.RELEASE, abs(cents), hit_id)


_DROP_SLOTS = (
    update(CrowdHit)
    .where(CrowdHit.id == bindparam("own"))
    .values(held_slots=CrowdHit.held_slots - bindparam("count"))
    .returning(CrowdHit.held_slots)
)


def drop_slots(books: Books, hit_id: int, count: int, reward_cents: int) -> None:
    """Take places from a HIT whose money is about to be paid or set free.

    A clock that runs ahead lets a HIT expire, and its money go; once it is set right, people work on the HIT. What is
    lacking is held now, whatever the balance, since the work is done.
    """
    left = books.connection.execute(_DROP_SLOTS, {"own": hit_id, "count": count}).scalar_one()
    if left < 0:
        change_row(books.connection, CrowdHit, hit_id, held_slots=0)
        hold(books, hit_id, -left * reward_cents, is_done=True)


def pay(books: Books, rewards: Sequence[tuple[int, int, int, dt.datetime]]) -> None:
    """Turn held money into rewards owed; each reward is (hit id, assignment id, cents, time)."""
    total = sum(cents for _, _, cents, _ in rewards)
    _move(books, held=-total, spent=total)
    rows = [
        {
            "environment": books.environment,
            "kind": kind,
            "hit_id": hit_id,
            "assignment_id": assignment_id,
            "cents": cents,
            "at": at,
        }
        for hit_id, assignment_id, cents, at in rewards
        for kind in (LedgerKind.RELEASE, LedgerKind.REWARD)
    ]
    books.connection.execute(_ENTER, rows)


def grant(books: Books, hit_id: int, assignment_id: int, cents: int) -> None:
    """Spend a bonus; TurkError InsufficientFunds where there is too little."""
    _require(books, cents)
    _move(books, spent=cents)
    _write(books, LedgerKind.BONUS, cents, hit_id, assignment_id)


def _require(books: Books, cents: int) -> None:
    available = balance(books.connection, books.environment).available
    if cents > available:
        raise turk(
            "InsufficientFunds",
            f"This request needs {cents / 100:.2f} USD, but the available balance is {available / 100:.2f} USD.",
        )


def _move(books: Books, *, budget: int = 0, held: int = 0, spent: int = 0) -> None:
    change = {"of": books.environment, "budget": budget, "held": held, "spent": spent}
    books.connection.execute(_MOVE, change)


def _write(
    books: Books, kind: LedgerKind, cents: int, hit_id: int | None = None, assignment_id: int | None = None
) -> None:
    of = {"environment": books.environment, "hit_id": hit_id, "assignment_id": assignment_id}
    books.connection.execute(_ENTER, of | {"kind": kind, "cents": cents, "at": books.now})


TOKEN_MEMORY = dt.timedelta(hours=24)

_FIND_TOKEN = select(RequestToken.id, RequestToken.result, RequestToken.used_at).where(
    RequestToken.environment == bindparam("environment"),
    RequestToken.kind == bindparam("kind"),
    RequestToken.token == bindparam("token"),
)


def recall(books: Books, kind: str, token: str) -> str | None:
    """What the earlier request with this token made; None after 24 hours or for a new token."""
    values = {"environment": books.environment, "kind": kind, "token": token}
    row = books.connection.execute(_FIND_TOKEN, values).one_or_none()
    if row is None:
        return None
    own_id, result, used_at = row
    if used_at + TOKEN_MEMORY > books.now:
        return result
    books.connection.execute(delete(RequestToken).where(RequestToken.id == own_id))
    return None


def remember(books: Books, kind: str, token: str, result: str) -> None:
    """Keep what a request with this token made; nothing of one that had none."""
    of = {"environment": books.environment, "kind": kind, "token": token}
    if token:
        add_row(books.connection, RequestToken, **of, result=result, used_at=books.now)


DISPOSED_AFTER = dt.timedelta(days=120)
"""After this long past its expiry a HIT is deleted by itself, as on MTurk."""

_DUE = (
    CrowdAssignment.environment == bindparam("of"),
    CrowdAssignment.state == AssignmentState.SUBMITTED,
    CrowdAssignment.auto_approve_at <= bindparam("now"),
)
_TO_SETTLE = (CrowdHit.environment == bindparam("of"), CrowdHit.settle_at <= bindparam("now"))
_IS_DUE = Prepared(select(or_(exists().where(*_DUE), exists().where(*_TO_SETTLE))))
_HIT: Wide = (
    select(
        CrowdHit.slots_left,
        CrowdHit.held_slots,
        CrowdHit.expires_at,
        CrowdHit.deleted_at,
        HitType.reward_cents,
    )
    .join(HitType)
    .where(CrowdHit.id == bindparam("own"))
)
_UNDECIDED = CrowdAssignment.state == AssignmentState.SUBMITTED
_ON_HIT = select(
    func.count(case((_UNDECIDED, 1))).label("undecided"),
    func.count(case((IS_LIVE, 1))).label("leases"),
    func.max(case((IS_LIVE, CrowdAssignment.deadline_at))).label("last_deadline"),
    func.max(case((_UNDECIDED, CrowdAssignment.auto_approve_at))).label("last_approval"),
).where(CrowdAssignment.hit_id == bindparam("own"))


def is_due(books: Books) -> bool:
    """Whether ``settle`` would change anything."""
    return bool(first(books.connection, bool, _IS_DUE, of=books.environment, now=books.now))


PORTION = 200
"""HITs or answers that one transaction settles, in a third of a second; workers get their turn between two."""


def settle(books: Books) -> bool:
    """Approve what is due for auto-approval, then release what expired HITs no longer need; True if more may be due."""
    if _auto_approve(books):
        return True
    due = {"of": books.environment, "now": books.now}
    hits = books.connection.scalars(select(CrowdHit.id).where(*_TO_SETTLE).limit(PORTION), due).all()
    for hit_id in hits:
        settle_hit(books, hit_id)
    return len(hits) == PORTION


def settle_due(database: Database, environment: Environment, now: dt.datetime) -> None:
    """Settle all that is due, each portion in a transaction of its own."""
    with database.read() as connection:
        due = is_due(Books(connection, environment, now))
    while due:
        with database.write(environment) as connection:
            due = settle(Books(connection, environment, now))


def settle_hit(books: Books, hit_id: int) -> None:
    """Make the money held for one HIT fit what can still be earned on it.

    Before its expiry that is every assignment not yet decided; after it, those submitted and those still under
    a running lease. Holding more (after an extension) raises InsufficientFunds where the balance is too small.
    What an expired HIT lacks, as ``drop_slots`` says, is held in any case: nobody could call the server until then.
    A HIT on which nothing is open is disposed of 120 days after its expiry.
    """
    hit = books.connection.execute(_HIT, {"own": hit_id}).one()
    work = books.connection.execute(_ON_HIT, {"own": hit_id, "now": books.now}).one()
    disposed_at = hit.expires_at + DISPOSED_AFTER
    settle_at: dt.datetime | None
    if hit.deleted_at is not None:
        needed, settle_at = 0, None
    elif hit.expires_at > books.now:
        needed, settle_at = work.undecided + hit.slots_left, hit.expires_at
    else:
        needed = work.undecided + work.leases
        settle_at = work.last_deadline or max(disposed_at, work.last_approval or disposed_at)
    values: dict[str, object] = {"held_slots": needed}
    if settle_at is not None and settle_at <= books.now and not needed:
        values["deleted_at"], settle_at = books.now, None
    lacking = (needed - hit.held_slots) * hit.reward_cents
    hold(books, hit_id, lacking, is_done=hit.expires_at <= books.now)
    change_row(books.connection, CrowdHit, hit_id, **values, settle_at=settle_at)


_SETTLE_SOON = (
    update(CrowdHit)
    .where(CrowdHit.id.in_(bindparam("returned", expanding=True)), CrowdHit.expires_at <= bindparam("now"))
    .values(settle_at=bindparam("now"))
)


def settle_soon(books: Books, hit_ids: Sequence[int]) -> None:
    """Have the next ``settle`` free what those of these HITs that expired held for a lease that was returned."""
    books.connection.execute(_SETTLE_SOON, {"returned": hit_ids, "now": books.now})


def change_type(books: Books, hit_id: int, type_id: int, reward_cents: int) -> None:
    """Give a HIT another type, and hold what that pays; InsufficientFunds where the balance is too small."""
    settle_hit(books, hit_id)
    hit = books.connection.execute(_HIT, {"own": hit_id}).one()
    hold(books, hit_id, hit.held_slots * (reward_cents - hit.reward_cents))
    change_row(books.connection, CrowdHit, hit_id, hit_type_id=type_id)


def _auto_approve(books: Books) -> bool:
    """Whether more may be due."""
    due = {"of": books.environment, "now": books.now}
    query = select(
        CrowdAssignment.id, CrowdAssignment.hit_id, HitType.reward_cents, CrowdAssignment.auto_approve_at
    )
    rows = books.connection.execute(
        query.select_from(WORK).where(*_DUE).order_by(CrowdAssignment.id).limit(PORTION), due
    ).all()
    if not rows:
        return False
    for (hit_id, cents), count in Counter((hit, cents) for _, hit, cents, _ in rows).items():
        drop_slots(books, hit_id, count, cents)
    pay(books, [(hit, own, cents, at or books.now) for own, hit, cents, at in rows])
    approved = {"state": AssignmentState.APPROVED, "decided_at": CrowdAssignment.auto_approve_at}
    of_portion = CrowdAssignment.id <= rows[-1].id
    books.connection.execute(update(CrowdAssignment).where(*_DUE, of_portion).values(approved), due)
    return len(rows) == PORTION
