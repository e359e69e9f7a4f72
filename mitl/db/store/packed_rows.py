"""Whole columns of numbers out of the database by the driver's fastest way, without an object for each row."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import text
from sqlalchemy.orm import Session

_AT_ONCE = 50_000


def number_columns(session: Session, statement: str, n: int) -> NDArray[np.int64]:
    """The columns of a query, (n, rows), in the order in which the database gives the rows.

    Args:
        statement: SELECT of n whole numbers, none of them NULL, with no parameters.
    """
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        return _packed(connection.connection.dbapi_connection, statement, n)
    cursor: Any = connection.execute(text(statement)).cursor
    parts = [np.empty((n, 0), np.int64)]
    while rows := cursor.fetchmany(_AT_ONCE):
        numbers = np.fromiter(chain.from_iterable(rows), np.int64, n * len(rows))
        parts.append(numbers.reshape(-1, n).T)
    return np.concatenate(parts, axis=1)


def plain_rows(session: Session, statement: str) -> list[tuple[Any, ...]]:
    """The rows of a query without parameters as the driver gives them; bytes come unencoded from PostgreSQL."""
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        driver: Any = connection.connection.dbapi_connection
        with driver.cursor(binary=True) as binary:
            return list(binary.execute(statement).fetchall())
    cursor: Any = connection.execute(text(statement)).cursor
    return list(cursor.fetchall())


def _packed(driver: Any, statement: str, n: int) -> NDArray[np.int64]:
    """As one value that the server packs, big-endian: libpq hands out rows one by one, by COPY as by SELECT."""
    given = ", ".join(f"c{place}" for place in range(n))
    sent = " || ".join(f"int8send(CAST(c{place} AS bigint))" for place in range(n))
    with driver.cursor(binary=True) as cursor:
        cursor.execute(f"SELECT string_agg({sent}, ''::bytea) FROM ({statement}) AS given ({given})")
        content = cursor.fetchone()[0] or b""
    return np.frombuffer(content, ">i8").astype(np.int64).reshape(-1, n).T
