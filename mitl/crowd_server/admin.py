"""What the operator does to a crowd server, by its database: keys, budgets, invitations, payments."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import dataclass

from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError

from mitl.crowd_server.protocol import ids
from mitl.crowd_server.store import accounts, reports, settling, workers
from mitl.crowd_server.store.database import Clock, Database, utc_now
from mitl.crowd_server.store.reports import Payment
from mitl.crowd_server.store.workers import InvitationRow
from mitl.db import migrate
from mitl.errors import StoreError
from mitl.records import Environment

FIRST_BUDGET = {Environment.SANDBOX: accounts.SANDBOX_CENTS, Environment.LIVE: 0}


@dataclass(frozen=True, slots=True)
class Invitation:
    """A new invitation; its token is known only now."""

    id: int
    environment: Environment
    token: str
    expires_at: dt.datetime

    @property
    def path(self) -> str:
        """Where the link leads, from the server's root."""
        return f"/w/join/{self.token}"


def prepare(engine: Engine, *, clock: Clock = utc_now) -> None:
    """Bring ``crowd.db`` to the newest revision, and give a new one its id, secrets, key pairs and budgets.

    Raises:
        StoreError: the database is of a newer version, or holds other tables than the crowd server's.
    """
    if migrate.current(engine) != migrate.head("crowd"):
        _upgrade(engine)
    database = Database(engine)
    with database.read() as connection:
        if "server_id" in accounts.settings(connection):
            return
    try:
        with engine.begin() as connection:
            accounts.add_setting(connection, "server_id", str(uuid.uuid4()))
            accounts.add_setting(connection, "secret", ids.secret())
            accounts.add_setting(connection, "operator_token", ids.secret())
            for environment, cents in FIRST_BUDGET.items():
                pair = (ids.access_key(), ids.secret())
                accounts.add_account(connection, environment, pair, cents, clock())
    except IntegrityError:
        # Another process made it ready at the same time; what it wrote holds.
        with database.read() as connection:
            if "server_id" not in accounts.settings(connection):
                raise


def server_id(engine: Engine) -> str:
    """The id that ``/healthz`` gives."""
    return _settings(engine)["server_id"]


def operator_token(engine: Engine) -> str:
    """The token of the operator's page: ``/operator?token=…``."""
    return _settings(engine)["operator_token"]


def keys(engine: Engine) -> dict[Environment, tuple[str, str]]:
    """Access and secret key of each environment."""
    with Database(engine).read() as connection:
        return accounts.key_pairs(connection)


def balance(engine: Engine, environment: Environment) -> accounts.Balance:
    """Budget, held and spent cents of an environment."""
    with Database(engine).read() as connection:
        return accounts.balance(connection, environment)


def set_budget(engine: Engine, environment: Environment, cents: int, *, clock: Clock = utc_now) -> None:
    """Set what may be spent on an environment in all, what was spent and is held included.

    Raises:
        StoreError: the sandbox's budget cannot be set, or less is left than is held and spent already.
    """
    if environment is Environment.SANDBOX:
        raise StoreError(
            "the sandbox always has 10,000.00 of practice money; only the live budget can be set"
        )
    with Database(engine).write(environment) as connection:
        balance = accounts.balance(connection, environment)
        if cents < balance.held + balance.spent:
            least = (balance.held + balance.spent) / 100
            raise StoreError(
                f"the budget cannot be {cents / 100:.2f}, because {least:.2f} is already held or owed; "
                f"give at least {least:.2f}, or expire HITs first"
            )
        if cents != balance.budget:
            accounts.add_budget(connection, environment, cents - balance.budget, clock())


def invite(
    engine: Engine,
    environment: Environment,
    n: int = 1,
    *,
    label: str = "",
    open_uses: int | None = None,
    lasts: dt.timedelta = dt.timedelta(days=30),
    clock: Clock = utc_now,
) -> list[Invitation]:
    """New invitations: ``n`` personal ones, each for one worker, or ``n`` open ones of ``open_uses`` workers each."""
    now = clock()
    made = []
    with Database(engine).write(environment) as connection:
        for _ in range(n):
            token = ids.secret()
            own_id = workers.add_invitation(
                connection,
                environment,
                token_sha256=ids.token_hash(token),
                label=label,
                personal=open_uses is None,
                max_uses=1 if open_uses is None else open_uses,
                expires_at=now + lasts,
                now=now,
            )
            made.append(Invitation(own_id, environment, token, now + lasts))
    return made


def invitations(engine: Engine) -> list[InvitationRow]:
    """All invitations, newest first, without their tokens."""
    with Database(engine).read() as connection:
        return workers.list_invitations(connection)


def revoke(engine: Engine, invitation_id: int, *, clock: Clock = utc_now) -> None:
    """Close an invitation and shut out the workers who came by it; what they are owed stays owed.

    Raises:
        StoreError: there is no such invitation, or it was revoked before.
    """
    with engine.begin() as connection:
        if not workers.revoke_invitation(connection, invitation_id, clock()):
            raise StoreError(
                f"no open invitation has the number {invitation_id}; `mitl crowd invitations` lists them"
            )


def payments(
    engine: Engine, environment: Environment = Environment.LIVE, *, clock: Clock = utc_now
) -> list[Payment]:
    """What each worker is owed, work that is due for auto-approval included."""
    with Database(engine).write(environment) as connection:
        settling.settle(connection, environment, clock())
        return reports.payments(connection, environment)


def _settings(engine: Engine) -> dict[str, str]:
    with Database(engine).read() as connection:
        return accounts.settings(connection)


def _upgrade(engine: Engine) -> None:
    revision = migrate.current(engine)
    if revision is None:
        from sqlalchemy import inspect

        if inspect(engine).get_table_names():
            raise StoreError(
                f"{engine.url.database!r} holds tables that the crowd server did not make; "
                "name an empty database with --crowd-db"
            )
    else:
        from alembic.script import ScriptDirectory

        known = {
            one.revision for one in ScriptDirectory.from_config(migrate.config("crowd")).walk_revisions()
        }
        if revision not in known:
            raise StoreError(
                f"the crowd database {engine.url.database!r} is at revision {revision!r}, which this version of mitl "
                "does not know; it was written by a newer mitl or is another database: upgrade mitl, or name "
                "another with --crowd-db"
            )
    migrate.upgrade("crowd", engine)
