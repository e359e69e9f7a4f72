"""Column types and naming that behave alike on SQLite and PostgreSQL.

Each database has its own ``DeclarativeBase`` (pipeline: ``mitl.db.models.Base``; crowd server:
``mitl.crowd_server.store.models.Base``), so that the two parties' tables never mix::

    class Base(DeclarativeBase):
        metadata = MetaData(naming_convention=NAMING)
        type_annotation_map = TYPES
"""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import fields
from functools import cache
from typing import Annotated, Any

from sqlalchemy import BigInteger, Dialect, Enum, Float, Text
from sqlalchemy.orm import DeclarativeBase, InstrumentedAttribute, mapped_column
from sqlalchemy.types import TypeDecorator

NAMING = {
    "ix": "ix_%(column_0_N_label)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def microseconds(at: dt.datetime) -> int:
    """A time as it is stored; a naive one is our own bug."""
    assert at.tzinfo is not None, f"naive time {at!r}; times are aware UTC"
    return (at - _EPOCH) // dt.timedelta(microseconds=1)


class UtcDateTime(TypeDecorator[dt.datetime]):
    """Aware UTC times, kept as microseconds since 1970 so that both engines store and sort the same."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: dt.datetime | None, dialect: Dialect) -> int | None:
        """To microseconds."""
        return None if value is None else microseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> dt.datetime | None:
        """From microseconds."""
        return None if value is None else _EPOCH + dt.timedelta(microseconds=value)


_ANY_ENUM = Enum(
    enum.Enum,
    native_enum=False,
    create_constraint=False,
    length=32,
    values_callable=lambda members: [member.value for member in members],
)
"""A text column that stores an enum's values, not its names, with no CHECK to migrate."""

TYPES: dict[Any, Any] = {
    dt.datetime: UtcDateTime,
    str: Text,
    float: Float(53),
    enum.Enum: _ANY_ENUM,
}

MOST_ROW = 2**31 - 1
"""The largest key of a row; PostgreSQL refuses even to compare one with more."""
int_pk = Annotated[int, mapped_column(primary_key=True)]


def columns(
    record: type, table: type[DeclarativeBase], **others: Any
) -> tuple[InstrumentedAttribute[Any], ...]:
    """What to select for a record: for each field the one of ``others``, else the table's column of that name."""
    names = [field.name for field in fields(record)]
    return tuple(others[name] if name in others else getattr(table, name) for name in names)


def values(table: type[DeclarativeBase], record: object, **others: Any) -> dict[str, Any]:
    """What to insert for a record: for each column but ``id`` the one of ``others``, else its field of that name."""
    return {name: others[name] if name in others else getattr(record, name) for name in _given(table)}


@cache
def _given(table: type[DeclarativeBase]) -> tuple[str, ...]:
    return tuple(column.name for column in table.__table__.columns if column.name != "id")
