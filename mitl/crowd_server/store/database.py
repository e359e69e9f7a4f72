"""Transactions on ``crowd.db`` that mean the same on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, select

from mitl.crowd_server.models import Account
from mitl.records import Environment


class Database:
    """Opens short transactions; at most one writes in an environment at a time.

    SQLite gives that by BEGIN IMMEDIATE. On PostgreSQL the account's row is locked first, so that two workers
    cannot take the same last assignment and two calls cannot spend the same cent.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        options: dict[str, Any] = {"mitl_write": False}
        if engine.dialect.name == "postgresql":
            options["isolation_level"] = "REPEATABLE READ"
        self._reader = engine.execution_options(**options)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent view that takes no lock."""
        with self._reader.connect() as connection:
            yield connection

    @contextmanager
    def write(self, environment: Environment) -> Iterator[Connection]:
        """A transaction that commits at the end of the block and rolls back on any error."""
        with self.engine.begin() as connection:
            if connection.dialect.name != "sqlite":
                lock = select(Account.environment).where(Account.environment == environment)
                connection.execute(lock.with_for_update())
            yield connection
