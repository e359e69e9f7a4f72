"""Engines for SQLite and PostgreSQL, set up so that several processes can write."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, InvalidatePoolError, NoSuchModuleError, ProgrammingError

from mitl.errors import SettingsError, StoreError

BUSY_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 10
POOL_SIZE = 20
"""Connections kept; as many again may be open for a while. The crowd server asks for fewer."""
FRESH_S = 5.0
# To the last @: what is no URL often has an @ or a / in its password that should have been written as %40 or %2F.
_PASSWORD = re.compile(r"(?<=:)(?!//).*(?=@)|(?<=password=)[^&]*", re.DOTALL)


@lru_cache(32)  # a command asks for the same one a dozen times
def parse_url(text: str) -> URL:
    """The URL with mitl's drivers filled in; SettingsError for another engine than SQLite or PostgreSQL."""
    try:
        url = make_url(text)
        if url.get_backend_name() == "sqlite":
            url = url.set(drivername="sqlite")
            url.get_dialect()().create_connect_args(url)  # here, or SQLAlchemy says later what it cannot read
    except (ArgumentError, ValueError) as error:
        raise SettingsError(
            f"{_PASSWORD.sub('***', text)!r} is not a database URL; write sqlite:///path/to/file.db or "
            "postgresql://user@host/name"
        ) from error
    backend = url.get_backend_name()
    if backend == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if backend == "sqlite":
        return url
    raise SettingsError(f"{backend!r} databases are not supported; known: sqlite, postgresql")


@contextmanager
def open_engine(text: str, *, read_only: bool = False) -> Iterator[Engine]:
    """An engine for the block, disposed of at its end.

    Args:
        read_only: nothing will be written, so that an SQLite file need not be writable.

    Raises:
        StoreError: an SQLite file cannot be read, or was changed while it was read without locks.
    """
    file = _file(text)
    view = view_of(file) if read_only and file is not None and file.exists() else None
    engine = make_engine(text, view=view)
    try:
        yield engine
    except Exception as error:
        if view is not None:
            try:
                view.require_same()
            except StoreError as changed:
                raise changed from error
        raise
    finally:
        engine.pool.dispose()  # without the new pool that the engine's own makes for later use
    if view is not None:
        view.require_same()


def _file(text: str) -> Path | None:
    url = parse_url(text)
    return file_of(url.database) if url.get_backend_name() == "sqlite" else None


def make_engine(text: str, *, durable: bool = False, view: View | None = None) -> Engine:
    """An engine for this URL.

    Args:
        view: how to open an SQLite file that is only read; without one, a file that cannot be changed is refused.
        durable: whether SQLite waits for the disk at each commit, so that even a power cut undoes none. Without
            it a commit survives the death of any process, but not surely that of the machine.

    SQLite runs in WAL mode with a busy timeout, foreign keys on, and transactions that take the write lock at
    their start when they write (``BEGIN IMMEDIATE`` is asked for by the execution option ``mitl_write``), so
    that two writers wait for each other instead of failing half-way. A new SQLite file is its owner's alone.
    """
    url = parse_url(text)
    if url.get_backend_name() == "sqlite":
        if url.database and url.database != ":memory:":
            Path(url.database).parent.mkdir(parents=True, exist_ok=True)
        arguments = {"timeout": BUSY_TIMEOUT_S, "check_same_thread": False}
        # What a statement was given (keys, answers, ids of people) is nothing for a log or a traceback.
        engine = create_engine(url, connect_args=arguments, hide_parameters=True)
        if view is not None:
            event.listen(engine, "do_connect", _only_read(view))
        else:
            event.listen(engine, "do_connect", _keep_private)
            event.listen(engine, "connect", _use_wal)
        event.listen(engine, "connect", _prepare_sqlite)
        if durable:
            event.listen(engine, "connect", _wait_for_disk)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    timeout = {} if "connect_timeout" in url.query else {"connect_timeout": CONNECT_TIMEOUT_S}
    try:
        engine = create_engine(
            url,
            pool_size=POOL_SIZE,
            max_overflow=POOL_SIZE,
            pool_use_lifo=True,  # few connections that have prepared all statements, not many that have some
            connect_args=timeout,
            hide_parameters=True,
        )
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise SettingsError(
            "PostgreSQL needs the driver psycopg; install it with: pip install 'mitl[postgres]'"
        ) from error
    event.listen(engine, "handle_error", _explain_options)
    event.listen(engine, "connect", _prepare_postgres)
    event.listen(engine, "checkin", _note_use)
    event.listen(engine, "checkout", _check_use)
    return engine


def _explain_options(context: Any) -> None:
    """SettingsError for what the driver does not understand in a URL, where it would look like an error of ours."""
    if context.connection is None and isinstance(context.sqlalchemy_exception, ProgrammingError):
        url = context.engine.url.set(drivername="postgresql", query={}).render_as_string(hide_password=True)
        raise SettingsError(
            f"cannot use {url}: {str(context.original_exception).strip()}; check what stands after the ? in the URL "
            "and run the command again"
        ) from context.original_exception


def _note_use(connection: Any, record: Any) -> None:
    record.info["used_at"] = time.monotonic()


def _check_use(connection: Any, record: Any, proxy: Any) -> None:
    """Ask a connection that was idle whether it still lives, as ``pool_pre_ping`` does before every use.

    A busy server would spend a fifth of its time with that question.
    """
    used_at = record.info.get("used_at")
    if used_at is None or time.monotonic() - used_at < FRESH_S:
        return
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        connection.commit()  # a rollback would have psycopg forget what it prepared
    except Exception as error:
        # The pool takes this as a word to make all its old connections again.
        raise InvalidatePoolError(str(error)) from error


def _prepare_postgres(connection: Any, record: Any) -> None:
    connection.execute(f"SET lock_timeout = '{BUSY_TIMEOUT_S:.0f}s'")
    connection.commit()


def _only_read(view: View) -> Callable[..., None]:
    def connect(dialect: Any, record: Any, arguments: list[Any], parameters: dict[str, Any]) -> None:
        arguments[0] = view.uri
        parameters["uri"] = True

    return connect


def _keep_private(dialect: Any, record: Any, arguments: Sequence[Any], parameters: Any) -> None:
    """Make a new file for its owner alone: our databases hold keys, salts and what controls are.

    What SQLite puts beside it gets the same mode.
    """
    name = str(arguments[0])
    if name.startswith((":memory:", "file:")):
        return
    try:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        require_writable(Path(name))
    except OSError as error:
        raise StoreError(f"cannot make the database {name!r}: {error.strerror or error}") from error


def _use_wal(connection: sqlite3.Connection, record: Any) -> None:
    """Switch a new database to WAL; SQLite does not apply its busy timeout to that one statement."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _prepare_sqlite(connection: sqlite3.Connection, record: Any) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves, see _begin_sqlite
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    # The file may be a stranger's: what stands in its schema runs nothing but plain SQL, and damage is an error.
    cursor.execute("PRAGMA trusted_schema=OFF")
    cursor.execute("PRAGMA cell_size_check=ON")
    cursor.close()


def _wait_for_disk(connection: sqlite3.Connection, record: Any) -> None:
    connection.execute("PRAGMA synchronous=FULL")


def _begin_sqlite(connection: Any) -> None:
    # A deferred transaction that reads first and writes later fails at once with "database is locked" when
    # another writer came between, whatever the timeout; an immediate one waits for its turn.
    write = connection.get_execution_options().get("mitl_write", True)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


_WAL = b"\x02\x02"
"""What SQLite's header says at byte 18 of a database in WAL mode."""


@dataclass(frozen=True, slots=True)
class View:
    """How to open a file for reading alone."""

    file: Path
    uri: str
    stamp: tuple[int, int, int] | None
    """What of the file must stay as it is meanwhile; None where SQLite's locks see to that."""

    def require_same(self) -> None:
        """StoreError where the file was changed since."""
        if self.stamp is not None and self.stamp != _stamp(self.file):
            raise StoreError(
                f"{self.file.name} was changed by somebody else while it was read; run the command again"
            )


def obstacle(file: Path) -> str | None:
    """What keeps this user from changing the database, as a clause; None where nothing does or no file is there."""
    if not file.exists():
        return None
    if not os.access(file, os.W_OK):
        return f"{file.name} is read-only for this user"
    if not os.access(file.parent, os.W_OK) and not all(path.exists() for path in _beside(file)):
        return f"the folder of {file.name}, where SQLite writes its journal, is read-only for this user"
    return None


def require_writable(file: Path) -> None:
    """StoreError where this user may not change the database."""
    why = obstacle(file)
    if why is not None:
        raise StoreError(
            f"{why}, but this command opens it for writing: give this user write access to the file and to its folder, "
            "or work on a copy of the project, and run the command again"
        )


def view_of(file: Path) -> View | None:
    """How to read a file that this user may not change; None where they may, and nothing special is needed.

    Raises:
        StoreError: it cannot be read, or not without reading a journal in first.
    """
    if obstacle(file) is None:
        return None
    stamp = _stamp(file)
    try:
        with file.open("rb") as source:
            head = source.read(20)
    except OSError as error:
        raise StoreError(
            f"cannot read {file.name}: {(error.strerror or str(error)).lower()}; give this user read access to it and "
            "run the command again"
        ) from error
    uri = f"file:{quote(str(file.absolute()))}?mode=ro"
    if head[18:20] != _WAL:
        return View(file, uri, None)
    wal, shm = _beside(file)
    if wal.exists() and shm.exists():
        return View(file, uri, None)  # somebody has it open: their locks hold for us too
    if wal.exists() and wal.stat().st_size:
        raise StoreError(
            f"{wal.name} holds changes that were never put into {file.name}, which is read-only for this user; let a "
            "user with write access run `mitl db current` once, then run the command again"
        )
    return View(file, f"{uri}&immutable=1", stamp)


def _beside(file: Path) -> tuple[Path, Path]:
    return Path(f"{file}-wal"), Path(f"{file}-shm")


def _stamp(file: Path) -> tuple[int, int, int]:
    status = file.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def file_of(database: str | None) -> Path | None:
    """The file behind an SQLite URL's database; None where it is kept in memory."""
    if not database or database.startswith((":memory:", "file:")):
        return None
    return Path(database)
