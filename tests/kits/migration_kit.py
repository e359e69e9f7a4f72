"""New SQLite databases without their migrations: the tables that the migrations made once in this process, made again.

A migration by Alembic takes a quarter of a second, and most tests begin with a new database. Tests of the migrations
themselves are marked with ``migrations`` and run each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from mitl.db import migrate
from mitl.db.migrate import Line

_run_to = migrate.run_to
_statements: dict[Line, list[str]] = {}
_replays = True


def run_to(line: Line, connection: Connection, revision: str) -> None:
    """What `migrate.run_to` does, for an empty SQLite database with the statements that the first one left."""
    is_new = connection.dialect.name == "sqlite" and not migrate.table_names(connection)
    if not (_replays and is_new and revision == migrate.head(line)):
        _run_to(line, connection, revision)
        return
    if line not in _statements:
        _run_to(line, connection, revision)
        dump = list(migrate._driver(connection).iterdump())
        _statements[line] = dump[1:-1]  # without its own BEGIN and COMMIT
        return
    for statement in _statements[line]:
        connection.exec_driver_sql(statement)


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
