"""Transactions on ``crowd.db`` that mean the same on SQLite and on PostgreSQL."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Connection, Engine, Insert, Select, bindparam, func, insert, select, update

from mitl.crowd_server.store.models import Account, Base
from mitl.records import Environment

RecordT = TypeVar("RecordT")


class _View:
    """The one reading transaction of a request, begun at its first read and over at its first write."""

    def __init__(self, reader: Engine) -> None:
        self.reader = reader
        self._connection: Connection | None = None
        self._users = 0
        self._is_old = False

    @contextmanager
    def use(self) -> Iterator[Connection]:
        """The transaction; an error ends it, since PostgreSQL answers nothing more in it."""
        if self._connection is None:
            self._connection, self._is_old = self.reader.connect(), False
        self._users += 1
        try:
            yield self._connection
        except BaseException:
            self._is_old = True
            self._connection.rollback()
            raise
        finally:
            self._users -= 1
            if self._is_old:
                self.end()

    def end(self) -> None:
        """Close it, or have the last read that still uses it do so."""
        self._is_old = True
        if self._connection is not None and self._users == 0:
            # A rollback would have psycopg forget what it prepared. Nothing was written, so no listener is told.
            self._connection.connection.commit()
            self._connection.close()
            self._connection = None


_VIEW: ContextVar[_View | None] = ContextVar("view", default=None)


class Database:
    """Opens short transactions; at most one writes in an environment at a time.

    SQLite gives that by BEGIN IMMEDIATE. On PostgreSQL the account's row is locked first, so that two workers
    cannot take the same last assignment and two calls cannot spend the same cent. Writers of this process wait
    for each other before that, in memory: a queue costs no connections, and SQLite, which has a waiting writer
    look again at longer and longer intervals, is asked only when it is free.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        options: dict[str, Any] = {"mitl_write": False}
        if engine.dialect.name == "postgresql":
            options["isolation_level"] = "REPEATABLE READ"
        self._reader = engine.execution_options(**options)
        self._is_sqlite = engine.dialect.name == "sqlite"
        # SQLite has one writer, whatever the environment.
        one = threading.Lock()
        self._turns: dict[Environment | None, AbstractContextManager[Any]] = {
            None: one if self._is_sqlite else nullcontext()
        } | {of: one if self._is_sqlite else threading.Lock() for of in Environment}

    @contextmanager
    def one_view(self) -> Iterator[None]:
        """Reads within the block see the same moment and share a transaction, until something is written."""
        view = _View(self._reader)
        token = _VIEW.set(view)
        try:
            yield
        finally:
            _VIEW.reset(token)
            view.end()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent view that takes no lock."""
        view = _VIEW.get()
        if view is None or view.reader is not self._reader:
            with self.one_view(), self.read() as connection:
                yield connection
            return
        with view.use() as connection:
            yield connection

    @contextmanager
    def write(self, environment: Environment | None = None) -> Iterator[Connection]:
        """A transaction that commits at the end of the block and rolls back on any error.

        Without an environment nothing is locked on PostgreSQL, and nothing of workers or money may be written.
        """
        view = _VIEW.get()
        if view is not None:
            view.end()  # what is read afterwards must see what was written
        if self._is_sqlite or environment is None:
            with self._turns[environment], self.engine.begin() as connection:
                yield connection
            return
        with ExitStack() as until_on_disk:
            with self._turns[environment]:
                connection = until_on_disk.enter_context(self.engine.connect())
                with connection.begin():
                    connection.execute(_LOCK, {"of": environment})
                    yield connection
            try:
                wait_for_disk(connection.connection.driver_connection)
            except BaseException:
                connection.invalidate()  # or the pool would hand out one that commits each statement by itself
                raise


_LOCK = (
    select(Account.environment, func.set_config("synchronous_commit", "off", True))
    .where(Account.environment == bindparam("of"))
    .with_for_update()
)
"""Commits of such a transaction do not wait for the disk, so that the lock is free for the next writer meanwhile."""
_MARK = "SELECT pg_logical_emit_message(true, 'mitl', '')"
"""A transaction without an effect, whose commit waits until all commits before it are on the disk."""


def wait_for_disk(driver: Any) -> None:
    """Wait until what a connection of psycopg committed outlives a power cut; many wait for one write to the disk."""
    driver.autocommit = True
    driver.execute(_MARK)
    driver.autocommit = False


@dataclass(frozen=True, slots=True)
class Books:
    """One environment's rows at one moment, within a transaction."""

    connection: Connection
    environment: Environment
    now: dt.datetime


@dataclass(frozen=True, slots=True)
class Portion:
    """Which part of a listing is wanted: the rows after that of this id, at most so many."""

    after: int
    limit: int


Wide: TypeAlias = Select[*tuple[Any, ...]]
"""A select of more columns than the type checker counts."""


def add_row(connection: Connection, table: type[Base], **values: object) -> int:
    """Insert a row; its key."""
    key = connection.execute(_insertion(table), values).inserted_primary_key
    assert key is not None
    return int(key[0])


@cache
def _insertion(table: type[Base]) -> Insert:
    return insert(table)


def change_row(connection: Connection, table: type[Base], key: int, **values: object) -> None:
    """Set these columns of the row with this ``id``; a value may be an expression."""
    connection.execute(update(table).where(table.__table__.c.id == key).values(**values))


def first(
    connection: Connection, record: Callable[..., RecordT], wanted: Wide, **values: object
) -> RecordT | None:
    """The one row of a select, as a record of its columns in their order; None where there is no row."""
    row = connection.execute(wanted, values).one_or_none()
    return None if row is None else record(*row)


def every(
    connection: Connection, record: Callable[..., RecordT], wanted: Wide, **values: object
) -> list[RecordT]:
    """The rows of a select, each as a record of its columns in their order."""
    return [record(*row) for row in connection.execute(wanted, values)]
