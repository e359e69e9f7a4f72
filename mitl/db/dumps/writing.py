"""Writing the tables of one database, as one transaction sees them, to Parquet files with bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Select, Table, collate, select
from sqlalchemy.types import String

from mitl.core.whole_files import sync_folder, to_disk
from mitl.db import migrate
from mitl.db.dumps.manifest import DumpedDatabase, TableFile, file_name, sha256
from mitl.db.migrate import Line
from mitl.db.tables import reflected, schema_of
from mitl.errors import StoreError
from mitl.progress import Progress, no_progress

if TYPE_CHECKING:
    import pyarrow as pa

FETCHED_ROWS = 1000
GROUP_BYTES = 32 << 20
"""A row group is written when it has grown so large: documents of 64 KB and pairs of 24 bytes alike."""
GROUP_ROWS = 1 << 16


def write_database(
    line: Line, connection: Connection, folder: Path, *, progress: Progress = no_progress
) -> DumpedDatabase:
    """Write all tables to ``<folder>/<line>/``, rows in the order of their keys.

    Raises:
        StoreError: the database is empty, or not mitl's.
    """
    revision = migrate.revision_of(connection)
    if revision is None:
        raise StoreError(f"the {line} database is empty; there is nothing to back up")
    (folder / line).mkdir()
    tables = {}
    found = reflected(connection)
    with progress(f"back up {line}", total=len(found)) as advance:
        for table in found:
            tables[table.name] = _write_table(connection, table, folder / file_name(line, table.name))
            advance(1)
    sync_folder(folder / line)
    return DumpedDatabase(revision, tables)


def _write_table(connection: Connection, table: Table, path: Path) -> TableFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, rows = schema_of(table), 0
    with path.open("xb") as sink:
        with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
            for group in _groups(_batches(connection, table, schema)):
                rows += group.num_rows
                writer.write_table(group, row_group_size=group.num_rows)
        to_disk(sink)
    pa.default_memory_pool().release_unused()
    with path.open("rb") as written:
        return TableFile(rows, path.stat().st_size, sha256(written))


def _batches(connection: Connection, table: Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows, fetched bit by bit."""
    import pyarrow as pa

    streamed = connection.execution_options(stream_results=True)
    result = streamed.execute(_ordered(table, connection.dialect.name))
    try:
        for rows in result.partitions(FETCHED_ROWS):
            columns = zip(*rows, strict=True)
            arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
            yield pa.record_batch(arrays, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise StoreError(
            f"table {table.name} holds a value of another type than its column: {error}"
        ) from error
    finally:
        result.close()


def _ordered(table: Table, dialect: str) -> Select[tuple[object, ...]]:
    """By primary key; text by code points on both engines, whatever the database's own collation."""
    order = [
        collate(column, "C") if isinstance(column.type, String) and dialect == "postgresql" else column
        for column in table.primary_key
    ]
    return select(table).order_by(*order)


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if size >= GROUP_BYTES or rows >= GROUP_ROWS:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)
