"""New databases without their migrations: the tables that the migrations made once in this process, made again.

A migration by Alembic takes a quarter of a second, and most tests begin with a new database, some with an old one.
Tests of the migrations themselves are marked with ``migrations`` and run each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, event

from mitl.db import migrate
from mitl.db.migrate import Line

_run_to = migrate.run_to
_statements: dict[tuple[Line, str, str], list[str]] = {}
_replays = True


def run_to(line: Line, connection: Connection, revision: str) -> None:
    """What `migrate.run_to` does, for an empty database with the statements that the first one left."""
    is_new = not migrate.table_names(connection)
    if not (_replays and is_new):
        _run_to(line, connection, revision)
        return
    is_sqlite = connection.dialect.name == "sqlite"
    driver: Any = migrate._driver(connection)
    kept = (line, connection.dialect.name, revision)
    if kept not in _statements:
        with _statements_of(connection) as made:
            _run_to(line, connection, revision)
        # SQLite tells where all of them have led to, between a BEGIN and a COMMIT of its own.
        _statements[kept] = list(driver.iterdump())[1:-1] if is_sqlite else made
    elif is_sqlite:
        for statement in _statements[kept]:
            connection.exec_driver_sql(statement)
    else:
        driver.execute(";\n".join(_statements[kept]))


@contextmanager
def _statements_of(connection: Connection) -> Iterator[list[str]]:
    """What the block executes, but for looking up which tables there are."""
    made: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: object, *_: object) -> None:
        if connection.dialect.name != "sqlite" and "pg_catalog." not in statement:
            assert not parameters, statement
            made.append(statement.replace("%%", "%"))

    event.listen(connection, "before_cursor_execute", note)
    try:
        yield made
    finally:
        event.remove(connection, "before_cursor_execute", note)


@contextmanager
def every_migration() -> Iterator[None]:
    """Let each migration run, for the block of a ``with``."""
    global _replays
    _replays = False
    try:
        yield
    finally:
        _replays = True


migrate.run_to = run_to
