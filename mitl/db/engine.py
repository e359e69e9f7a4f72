"""Engines for SQLite and PostgreSQL, set up so that several processes can write."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from mitl.errors import SettingsError, StoreError

BUSY_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 10
_PASSWORD = re.compile(r":[^:/@]*@")


def parse_url(text: str) -> URL:
    """The URL with mitl's drivers filled in; SettingsError for another engine than SQLite or PostgreSQL."""
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise SettingsError(
            f"{_PASSWORD.sub(':***@', text)!r} is no database URL; write sqlite:///path/to/file.db or "
            "postgresql://user@host/name"
        ) from error
    backend = url.get_backend_name()
    if backend == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if backend == "sqlite":
        return url
    raise SettingsError(f"{backend!r} databases are not supported; known: sqlite, postgresql")


def make_engine(text: str) -> Engine:
    """An engine for this URL.

    SQLite runs in WAL mode with a busy timeout, foreign keys on, and transactions that take the write lock at
    their start when they write (``BEGIN IMMEDIATE`` is asked for by the execution option ``mitl_write``), so
    that two writers wait for each other instead of failing half-way. A new SQLite file is its owner's alone.
    """
    url = parse_url(text)
    if url.get_backend_name() == "sqlite":
        if url.database and url.database != ":memory:":
            Path(url.database).parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False})
        event.listen(engine, "do_connect", _keep_private)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    timeout = {} if "connect_timeout" in url.query else {"connect_timeout": CONNECT_TIMEOUT_S}
    try:
        engine = create_engine(url, pool_pre_ping=True, connect_args=timeout)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise SettingsError(
            "PostgreSQL needs the driver psycopg; install it with: pip install 'mitl[postgres]'"
        ) from error
    event.listen(engine, "connect", _prepare_postgres)
    return engine


def _prepare_postgres(connection: Any, record: Any) -> None:
    connection.execute(f"SET lock_timeout = '{BUSY_TIMEOUT_S:.0f}s'")
    connection.commit()


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
        pass
    except OSError as error:
        raise StoreError(f"cannot make the database {name!r}: {error.strerror or error}") from error


def _use_wal(cursor: sqlite3.Cursor) -> None:
    """Switch a new database to WAL; SQLite does not apply its busy timeout to that one statement."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _prepare_sqlite(connection: sqlite3.Connection, record: Any) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves, see _begin_sqlite
    cursor = connection.cursor()
    _use_wal(cursor)
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin_sqlite(connection: Any) -> None:
    # A deferred transaction that reads first and writes later fails at once with "database is locked" when
    # another writer came between, whatever the timeout; an immediate one waits for its turn.
    write = connection.get_execution_options().get("mitl_write", True)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
