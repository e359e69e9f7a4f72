"""A database's tables as they are now, whatever its revision, and their columns' types in a dump.

A dump holds what is stored, not what the models make of it: times as microseconds since 1970, enums as their values.
So it needs no model of an older revision, and the same rows give the same files from either engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Boolean, Column, Connection, Float, Integer, LargeBinary, MetaData, String, Table

from mitl.db.migrate import VERSION_TABLE
from mitl.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa


LEFT_OUT = ("answer_sheet", "control_sheet", "worker_tally", "standing", "allowance")
"""Tables that say only what others say and are written again from them, or what holds for a minute."""


def reflected(connection: Connection) -> list[Table]:
    """All tables, each after those that its rows point to; without `LEFT_OUT` and the one that holds the revision."""
    metadata = MetaData()
    metadata.reflect(connection)
    return [table for table in metadata.sorted_tables if table.name not in (VERSION_TABLE, *LEFT_OUT)]


def schema_of(table: Table) -> pa.Schema:
    """The table's columns as a dump holds them.

    Raises:
        StoreError: a column of a type that mitl's tables do not have.
    """
    import pyarrow as pa

    return pa.schema([pa.field(column.name, _type(column)) for column in table.columns])


def _type(column: Column[object]) -> pa.DataType:
    import pyarrow as pa

    kinds = (
        (Boolean, pa.bool_()),
        (Integer, pa.int64()),
        (Float, pa.float64()),
        (String, pa.string()),
        (LargeBinary, pa.binary()),
    )
    for kind, found in kinds:
        if isinstance(column.type, kind):
            return found
    raise StoreError(
        f"{column.table.name}.{column.name} is of type {column.type}, which a dump cannot hold; mitl did not make "
        "that column"
    )
