"""What the statements of the store share: which rows belong together and count, and many rows inserted with few."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Delete, Select, Update, and_, insert, select, text
from sqlalchemy.orm import DeclarativeBase, QueryableAttribute, Session

from mitl.core.arrays import Ints, pack_ids
from mitl.db.bulk import driver_of, insert_tuples
from mitl.db.models import Assignment, Batch, Hit, HitItemRow, JudgementRow, Worker
from mitl.records import Decision, Environment

if TYPE_CHECKING:
    import pandas as pd  # takes longer to load than most commands take

Wide: TypeAlias = Select[*tuple[Any, ...]]
"""A query of more columns than the type checker counts."""

KEPT = tuple(decision for decision in Decision if decision.keeps_answers)
"""The decisions about a submission after which its answers count."""


def at_place(items: Any, answers: Any) -> ColumnElement[bool]:
    """Joins the answers of a submission with the items of its page that they are about."""
    return and_(items.hit_id == Assignment.hit_id, items.place == answers.place)


AT_PLACE = at_place(HitItemRow, JudgementRow)


ARRIVAL = (Assignment.submitted_at.is_not(None), Assignment.submitted_at, Assignment.id)
"""The order in which submissions came; both engines have what came without a time first."""


def query_hits(environment: Environment, *columns: Any) -> Wide:
    """A query of these columns over the HITs of an environment, joined with their batches."""
    query: Wide = select(*columns).select_from(Hit)
    return query.join(Batch, Batch.id == Hit.batch_id).where(Batch.environment == environment)


def query_submissions(environment: Environment, *columns: Any) -> Wide:
    """A query of these columns over the submissions of an environment, joined with their HITs and batches."""
    query: Wide = select(*columns).select_from(Assignment).join(Hit, Hit.id == Assignment.hit_id)
    return query.join(Batch, Batch.id == Hit.batch_id).where(Batch.environment == environment)


def query_by_worker(environment: Environment, *columns: Any) -> Wide:
    """A query of these columns over the submissions of an environment, joined with their workers."""
    query: Wide = select(*columns).select_from(Assignment)
    return query.join(Worker, Worker.id == Assignment.worker_id).where(Worker.environment == environment)


CHUNK = 10_000

IN_LIST = 1000
"""Values in one ``IN (…)``; both engines take so many."""

T = TypeVar("T")


def chunks(values: Sequence[T], size: int = IN_LIST) -> Iterator[list[T]]:
    """The values in lists that a statement can take."""
    for start in range(0, len(values), size):
        yield list(values[start : start + size])


def rows_among(
    session: Session,
    query: Select[*tuple[Any, ...]],
    column: ColumnElement[Any] | QueryableAttribute[Any],
    values: Iterable[Any],
) -> Iterator[Any]:
    """The rows of a query whose column is one of these values, for as many values at a time as a statement can take."""
    for chunk in chunks(list(values)):
        yield from session.execute(query.where(column.in_(chunk)))


def change_among(
    session: Session,
    statement: Update | Delete,
    column: ColumnElement[Any] | QueryableAttribute[Any],
    values: Iterable[Any],
) -> None:
    """Update or delete the rows whose column is one of these values, as many values at a time as in `rows_among`."""
    for chunk in chunks(list(values)):
        session.execute(statement.where(column.in_(chunk)))


def add_rows(session: Session, model: type, rows: Iterable[Mapping[str, Any]]) -> int:
    """Insert the rows in chunks, so that memory stays bounded; returns how many."""
    count, row = 0, iter(rows)
    while chunk := list(islice(row, CHUNK)):
        session.connection().execute(insert(model), chunk)
        count += len(chunk)
    return count


def add_tuples(
    session: Session, model: type[DeclarativeBase], names: Sequence[str], rows: Iterable[tuple[Any, ...]]
) -> int:
    """Insert millions of rows; see `mitl.db.bulk.insert_tuples`."""
    return insert_tuples(session.connection(), model.__tablename__, names, rows)


def rows_of(columns: Sequence[NDArray[Any]], order: Ints) -> Iterator[tuple[Any, ...]]:
    """The rows of columns in this order, in Python's own types; made bit by bit, so that memory stays bounded."""
    for start in range(0, len(order), CHUNK):
        chunk = order[start : start + CHUNK]
        yield from zip(*(column[chunk].tolist() for column in columns), strict=True)


def next_id(session: Session, model: type[DeclarativeBase]) -> int:
    """The id of the next row, for rows that are added with their ids; only within a writing transaction."""
    return (session.scalar(text(f"SELECT max(id) FROM {model.__tablename__}")) or 0) + 1


def ids_were_given(session: Session, model: type[DeclarativeBase]) -> None:
    """Let PostgreSQL number further rows after those that were added with their ids."""
    if session.connection().dialect.name == "postgresql":
        name = model.__tablename__
        session.execute(
            text(
                f"SELECT setval(pg_get_serial_sequence('{name}', 'id'), max(id)) FROM {name} HAVING max(id) > 0"
            )
        )


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
    parts = [np.empty((n, 0), dtype)]
    with driver_of(connection) as driver:
        if connection.dialect.name == "postgresql":
            return _packed(driver, statement, n, dtype)
        cursor: Any = connection.exec_driver_sql(statement).cursor
        while rows := cursor.fetchmany(_AT_ONCE):
            numbers = np.fromiter(chain.from_iterable(rows), dtype, n * len(rows))
            parts.append(numbers.reshape(-1, n).T)
    return np.concatenate(parts, axis=1)


def numbers_among(
    session: Session, statement: str, n: int, column: str, values: Sequence[int]
) -> NDArray[np.int64]:
    """The columns of a SELECT of n whole numbers that ends in WHERE, (n, rows), of the rows whose column is one of
    these values."""
    parts = [np.empty((n, 0), np.int64)]
    for chunk in chunks(values):
        among = f"{column} IN ({', '.join(map(str, chunk))})"
        parts.append(number_columns(session, f"{statement} {among}", n))
    return np.concatenate(parts, axis=1)


def plain_rows(session: Session, statement: str) -> list[tuple[Any, ...]]:
    """The rows of a query without parameters as the driver gives them; bytes come unencoded from PostgreSQL."""
    connection = session.connection()
    with driver_of(connection) as driver:
        if connection.dialect.name == "postgresql":
            with driver.cursor(binary=True) as binary:
                return list(binary.execute(statement).fetchall())
        cursor: Any = connection.execute(text(statement)).cursor
        return list(cursor.fetchall())


def table_of(session: Session, query: Select[*tuple[Any, ...]]) -> pd.DataFrame:
    """The rows of a query under the names of its columns; with ``left_id`` and ``right_id`` a packed ``pair`` too."""
    import pandas as pd

    names = [column.name for column in query.selected_columns]
    rows = pd.DataFrame(session.execute(query).all(), columns=names)
    if "left_id" in names:
        left, right = (rows[name].to_numpy(np.int64) for name in ("left_id", "right_id"))
        rows["pair"] = pack_ids(left, right)
    return rows


_PART = 1 << 22
"""Rows to a value where one of all rows would be too large."""


def _packed(driver: Any, statement: str, n: int, dtype: type[np.generic]) -> NDArray[Any]:
    """As one value that the server packs, big-endian: libpq hands out rows one by one, by COPY as by SELECT.

    PostgreSQL builds no value of more than 1 GiB, and says so when it gets there: then as several.
    """
    from psycopg.errors import ProgramLimitExceeded

    send, kind, stored = (
        ("float8send", "double precision", ">f8")
        if np.issubdtype(dtype, np.floating)
        else ("int8send", "bigint", ">i8")
    )
    columns = ", ".join(f"c{place}" for place in range(n))
    sent = " || ".join(f"{send}(CAST(c{place} AS {kind}))" for place in range(n))
    source = f"({statement}) AS given ({columns})"
    with driver.cursor(binary=True) as cursor:
        cursor.execute("SAVEPOINT packed")  # or the refusal would end the caller's transaction
        try:
            content = _whole(cursor, sent, source)
        except ProgramLimitExceeded:
            cursor.execute("ROLLBACK TO SAVEPOINT packed")
            return _in_parts(cursor, sent, source, n, stored).astype(dtype)
        cursor.execute("RELEASE SAVEPOINT packed")
    return np.frombuffer(content, stored).astype(dtype).reshape(-1, n).T


def _whole(cursor: Any, sent: str, source: str) -> bytes:
    cursor.execute(f"SELECT string_agg({sent}, ''::bytea) FROM {source}")
    return cursor.fetchone()[0] or b""


def _in_parts(cursor: Any, sent: str, source: str, n: int, stored: str) -> NDArray[Any]:
    """The columns from several values, which takes longer: each row carries its number, for groups keep no order."""
    cursor.execute(
        f"SELECT string_agg(int8send(number) || {sent}, ''::bytea) FROM (SELECT *, row_number() OVER () - 1 AS number "
        f"FROM {source}) AS numbered GROUP BY number / {_PART}"
    )
    parts = [np.frombuffer(content, ">i8").reshape(-1, n + 1) for (content,) in cursor]
    table = np.empty((n, sum(map(len, parts))), stored)
    for part in parts:
        table[:, part[:, 0]] = part[:, 1:].view(stored).T
    return table
