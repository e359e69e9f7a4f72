"""Whole columns of numbers out of the database by the driver's fastest way, without an object for each row."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Select, text
from sqlalchemy.orm import Session

_AT_ONCE = 50_000


def number_columns(
    session: Session, statement: str | Select[*tuple[Any, ...]], n: int, dtype: type[np.generic] = np.int64
) -> NDArray[Any]:
    """The columns of a query, (n, rows), in the order in which the database gives the rows.

    Args:
        statement: SELECT of n numbers, none of them NULL; whole ones unless ``dtype`` is float64.
    """
    connection = session.connection()
    if not isinstance(statement, str):
        compiled = statement.compile(connection, compile_kwargs={"literal_binds": True})
        statement = str(compiled)
    if connection.dialect.name == "postgresql":
        return _packed(connection.connection.dbapi_connection, statement, n, dtype)
    cursor: Any = connection.exec_driver_sql(statement).cursor
    parts = [np.empty((n, 0), dtype)]
    while rows := cursor.fetchmany(_AT_ONCE):
        numbers = np.fromiter(chain.from_iterable(rows), dtype, n * len(rows))
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


def _packed(driver: Any, statement: str, n: int, dtype: type[np.generic]) -> NDArray[Any]:
    """As one value that the server packs, big-endian: libpq hands out rows one by one, by COPY as by SELECT."""
    send, kind, stored = (
        ("float8send", "double precision", ">f8")
        if np.issubdtype(dtype, np.floating)
        else ("int8send", "bigint", ">i8")
    )
    given = ", ".join(f"c{place}" for place in range(n))
    sent = " || ".join(f"{send}(CAST(c{place} AS {kind}))" for place in range(n))
    with driver.cursor(binary=True) as cursor:
        cursor.execute(f"SELECT string_agg({sent}, ''::bytea) FROM ({statement}) AS given ({given})")
        content = cursor.fetchone()[0] or b""
    return np.frombuffer(content, stored).astype(dtype).reshape(-1, n).T
