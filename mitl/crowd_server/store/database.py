"""Transactions on ``crowd.db`` that mean the same on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import (
    Connection,
    Dialect,
    Engine,
    Insert,
    Select,
    Update,
    bindparam,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.sql.compiler import SQLCompiler

from mitl.crowd_server.store.models import Account, CrowdBase
from mitl.db.explain import as_of_sqlalchemy
from mitl.records import Environment

RecordT = TypeVar("RecordT")
ResultT = TypeVar("ResultT")


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
            self._connection, self._is_old = self._begin(), False
        self._users += 1
        try:
            yield self._connection
        except BaseException:
            self._is_old = True
            raise
        finally:
            self._users -= 1
            if self._is_old:
                self.end()

    def end(self) -> None:
        """Close it, or have the last read that still uses it do so."""
        self._is_old = True
        if self._connection is None or self._users:
            return
        connection, self._connection = self._connection, None
        with connection:
            if connection.invalidated:
                return
            try:
                # A rollback would have psycopg forget what it prepared. Nothing was written, so no listener is told.
                connection.connection.commit()
                if connection.dialect.name == "postgresql":
                    connection.connection.driver_connection.isolation_level = None  # type: ignore[union-attr]
            except connection.dialect.loaded_dbapi.Error:
                connection.invalidate()

    def _begin(self) -> Connection:
        """One moment for all reads; set in the driver, which SQLAlchemy's own way to do so costs a tenth of a page."""
        connection = self.reader.connect()
        if connection.dialect.name == "postgresql":
            from psycopg import IsolationLevel

            connection.connection.driver_connection.isolation_level = (  # type: ignore[union-attr]
                IsolationLevel.REPEATABLE_READ
            )
        connection.begin()
        return connection


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
        self._is_sqlite = engine.dialect.name == "sqlite"
        # An engine with options takes longer to connect.
        self._reader = engine.execution_options(mitl_write=False) if self._is_sqlite else engine
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
                    _LOCK.rows(connection, {"of": environment})
                    yield connection
            try:
                wait_for_disk(connection.connection.driver_connection)
            except BaseException as error:
                connection.invalidate()  # or the pool would hand out one that commits each statement by itself
                if isinstance(error, connection.dialect.loaded_dbapi.Error):
                    raise as_of_sqlalchemy(error, connection.dialect, _MARK) from error
                raise


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


def add_row(connection: Connection, table: type[CrowdBase], **values: object) -> int:
    """Insert a row; its key."""
    return int(_insertion(table, tuple(values)).rows(connection, values)[0][0])


@cache
def _insertion(table: type[CrowdBase], names: tuple[str, ...]) -> Prepared:
    statement = insert(table).values({name: bindparam(name) for name in names})
    return Prepared(statement.returning(table.__table__.c.id))


def change_row(connection: Connection, table: type[CrowdBase], key: int, **values: object) -> None:
    """Set these columns of the row with this ``id``; a value may be an expression."""
    connection.execute(update(table).where(table.__table__.c.id == key).values(**values))


class Prepared:
    """A statement of every page, compiled once for each kind of database and then sent through the driver alone.

    SQLAlchemy takes longer to run a statement, even a compiled one, than the driver and PostgreSQL together. Whoever
    listens to an engine's statements hears of these as of all others.
    """

    def __init__(self, wanted: Wide | Insert | Update) -> None:
        """What has no value yet in the statement, each call gives."""
        self._wanted = wanted
        self._plans: dict[str, _Plan] = {}

    def rows(self, connection: Connection, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """The rows that it selects or returns; DBAPIError as from SQLAlchemy."""
        dialect, driver = connection.dialect, connection.connection
        plan = self._plans.get(dialect.name) or self._plans.setdefault(
            dialect.name, _plan(self._wanted, dialect)
        )
        parameters: Any = plan.constants | {name: write(values[name]) for name, write in plan.given}
        if plan.order is not None:
            parameters = [parameters[name] for name in plan.order]
        cursor = driver.info.get(_CURSOR) or _new_cursor(connection)
        connection.dispatch.before_cursor_execute(connection, cursor, plan.sql, parameters, None, False)
        try:
            cursor.execute(plan.sql, parameters)
            connection.dispatch.after_cursor_execute(connection, cursor, plan.sql, parameters, None, False)
            rows = cursor.fetchall() if plan.read else ()
        except dialect.loaded_dbapi.Error as error:
            if dialect.is_disconnect(error, driver, cursor):
                connection.execute(
                    self._wanted, dict(values)
                )  # which has the pool replace all its connections
            raise as_of_sqlalchemy(error, dialect, plan.sql) from error
        return [tuple(map(_read, plan.read, row)) for row in rows]


_CURSOR = "mitl_cursor"


def _new_cursor(connection: Connection) -> Any:
    """One for all statements of a connection, kept with it."""
    cursor = connection.connection.cursor()
    if connection.dialect.name == "postgresql":
        cursor.connection.prepare_threshold = 1  # the few statements of pages all come again
    return connection.connection.info.setdefault(_CURSOR, cursor)


_Convert: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Plan:
    """A compiled statement."""

    sql: str
    order: Sequence[str] | None
    """Of the parameters, where the driver takes them by place."""
    constants: dict[str, object]
    given: Sequence[tuple[str, _Convert]]
    read: Sequence[_Convert | None]
    """How each column is read."""


def _plan(wanted: Wide | Insert | Update, dialect: Dialect) -> _Plan:
    compiled = wanted.compile(dialect=dialect)
    assert isinstance(compiled, SQLCompiler)
    write = {
        name: bound.type.dialect_impl(dialect).bind_processor(dialect) or _same
        for name, bound in compiled.binds.items()
    }
    constants = {
        name: write[name](bound.effective_value)
        for name, bound in compiled.binds.items()
        if not bound.required
    }
    return _Plan(
        str(compiled),
        compiled.positiontup,
        constants,
        [(name, write[name]) for name, bound in compiled.binds.items() if bound.required],
        [
            column.type.dialect_impl(dialect).result_processor(dialect, None)
            for column in wanted.exported_columns
        ],
    )


def _same(value: Any) -> Any:
    return value


def _read(convert: _Convert | None, value: Any) -> Any:
    return value if convert is None else convert(value)


_LOCK = Prepared(
    select(Account.environment, func.set_config("synchronous_commit", "off", True))
    .where(Account.environment == bindparam("of"))
    .with_for_update()
)
"""Commits of such a transaction do not wait for the disk, so that the lock is free for the next writer meanwhile."""


def first(
    connection: Connection, record: Callable[..., RecordT], wanted: Wide | Prepared, **values: object
) -> RecordT | None:
    """The one row of a select, as a record of its columns in their order; None where there is no row."""
    if isinstance(wanted, Prepared):
        rows = wanted.rows(connection, values)
        return record(*rows[0]) if rows else None
    row = connection.execute(wanted, values).one_or_none()
    return None if row is None else record(*row)


def every(
    connection: Connection, record: Callable[..., RecordT], wanted: Wide | Prepared, **values: object
) -> list[RecordT]:
    """The rows of a select, each as a record of its columns in their order."""
    rows = (
        wanted.rows(connection, values)
        if isinstance(wanted, Prepared)
        else connection.execute(wanted, values)
    )
    return [record(*row) for row in rows]


async def in_thread(function: Callable[..., ResultT], *args: Any) -> ResultT:
    """What the function returns or raises for these arguments, while the event loop reads requests and sends answers.

    The loop's own threads take half of the time that anyio's do to take over and hand back.
    """
    return await asyncio.get_running_loop().run_in_executor(None, function, *args)
