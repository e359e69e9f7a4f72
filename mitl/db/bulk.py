"""Millions of rows inserted past SQLAlchemy: values as they are stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from sqlalchemy import Connection

from mitl.db.explain import as_of_sqlalchemy

_AT_ONCE = 10_000
_CACHE_KIB = 1_048_576


def insert_tuples(
    connection: Connection, table: str, names: Sequence[str], rows: Iterable[tuple[Any, ...]]
) -> int:
    """Insert rows of values in the order of the columns' names; returns how many, and memory stays bounded.

    SQLite gets them by `executemany`. PostgreSQL gets them by one COPY, so that it looks at rows that point to rows of
    the same table when all are there.
    """
    quoted = connection.dialect.identifier_preparer.quote
    target = f"{quoted(table)} ({', '.join(map(quoted, names))})"
    if connection.dialect.name == "postgresql":
        return _copy(connection, target, rows)
    statement, count, row = f"INSERT INTO {target} VALUES ({', '.join('?' * len(names))})", 0, iter(rows)
    with roomy(connection):
        while chunk := list(islice(row, _AT_ONCE)):
            connection.exec_driver_sql(statement, chunk)
            count += len(chunk)
    return count


@contextmanager
def roomy(connection: Connection) -> Iterator[None]:
    """Let SQLite keep up to 1 GiB of pages, where there are as many: with 2 MiB it writes indexes again and again."""
    usual = connection.exec_driver_sql("PRAGMA cache_size").scalar_one()
    connection.exec_driver_sql(f"PRAGMA cache_size = -{_CACHE_KIB}")
    try:
        yield
    finally:
        connection.exec_driver_sql(f"PRAGMA cache_size = {usual}")


@contextmanager
def driver_of(connection: Connection) -> Iterator[Any]:
    """The driver's own connection, for a block; what it raises comes as from SQLAlchemy, for who explains it."""
    try:
        yield connection.connection.dbapi_connection
    except connection.dialect.loaded_dbapi.Error as error:
        raise as_of_sqlalchemy(error, connection.dialect) from error


def _copy(connection: Connection, target: str, rows: Iterable[tuple[Any, ...]]) -> int:
    count = 0
    with (
        driver_of(connection) as driver,
        driver.cursor() as cursor,
        cursor.copy(f"COPY {target} FROM STDIN") as copy,
    ):
        for row in rows:
            copy.write_row(row)
            count += 1
    return count
