"""Putting a dump into a database, within one transaction: whole or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Connection, Integer, MetaData, Select, Table, collate, func, select, text
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.types import String

from mitl.core.whole_files import sync_folder, to_disk
from mitl.db import migrate
from mitl.db.bulk import insert_tuples
from mitl.db.dumps.reading import Dump, DumpedDatabase, TableFile, file_name
from mitl.db.explain import reason
from mitl.db.migrate import Line, head, require_whole, revisions
from mitl.db.tables import reflected, schema_of
from mitl.errors import StoreError
from mitl.progress import Advance, Progress, no_progress

if TYPE_CHECKING:
    import pyarrow as pa


def restore_database(
    line: Line,
    connection: Connection,
    dump: Dump,
    what: str,
    *,
    replace: bool = False,
    progress: Progress = no_progress,
) -> int:
    """Put the dump into the database and bring it to the newest revision; returns the rows.

    ``connection`` is in a transaction of ``migrate.changing``, which its caller commits.

    Args:
        what: the database's name for messages.
        replace: drop what the database holds.

    Raises:
        StoreError: the database holds something and ``replace`` is false, or what it holds is not mitl's; the dump
            is of a newer mitl, or its tables are not those of its revision.
    """
    rows = fill_database(line, connection, dump, what, replace=replace, progress=progress)
    migrate.run_to(line, connection, head(line))
    require_whole(connection, what)
    return rows


def fill_database(
    line: Line,
    connection: Connection,
    dump: Dump,
    what: str,
    *,
    replace: bool = False,
    progress: Progress = no_progress,
) -> int:
    """Build the tables at the dump's own revision and fill them; as `restore_database`, which goes on from there."""
    part = dump.manifest.databases[line]
    if part.revision not in revisions(line):
        raise StoreError(
            f"{dump.where} holds the {line} database at revision {part.revision!r}, which this version of mitl does "
            f"not know (its newest is {head(line)!r}); upgrade mitl"
        )
    _make_empty(line, connection, what, replace=replace)
    migrate.run_to(line, connection, part.revision)
    ours = migrate.made_by(line, part.revision)
    tables = [table for table in reflected(connection) if table.name in ours]
    _require_same_tables(line, dump, tables)
    for table in reversed(tables):  # a revision may have brought rows of its own
        connection.execute(table.delete())
    with progress(f"restore {line}", total=part.rows) as advance:
        for table in tables:
            names = list(table.columns.keys())
            rows = _rows(dump.batches(line, table.name), names, advance)
            try:
                insert_tuples(connection, table.name, names, rows)
            except (DataError, IntegrityError) as error:
                said = reason(error, connection.engine.url)
                raise StoreError(f"{dump.where}: {line}/{table.name}: {said}; take another backup") from error
            _require_rows(connection, table, part.tables[table.name].rows, dump.where)
    _set_sequences(connection, tables)
    return part.rows


def _make_empty(line: Line, connection: Connection, what: str, *, replace: bool) -> None:
    if not migrate.table_names(connection):
        return
    migrate.require_known(line, connection, what)
    if not replace:
        raise StoreError(
            f"{what} is not empty; restore into a new database (--db, --crowd-db), or give --replace to put the dump "
            "in place of what it holds"
        )
    ours = {migrate.VERSION_TABLE, *migrate.made_by(line, str(migrate.revision_of(connection)))}
    metadata = MetaData()
    metadata.reflect(connection)
    metadata.drop_all(connection, [table for table in metadata.sorted_tables if table.name in ours])


def _require_same_tables(line: Line, dump: Dump, tables: Iterable[Table]) -> None:
    part = dump.manifest.databases[line]
    here = {table.name: schema_of(table.columns) for table in tables}
    if here.keys() != part.tables.keys():
        odd = sorted(here.keys() ^ part.tables.keys())[0]
        raise StoreError(
            f"{dump.where} says that its {line} database is at {part.revision}, but its tables are not those of that "
            f"revision ({odd!r} is in one alone); take another backup"
        )
    for name, schema in here.items():
        dumped = dump.schema(line, name)
        if sorted(zip(dumped.names, dumped.types, strict=True), key=lambda pair: pair[0]) != sorted(
            zip(schema.names, schema.types, strict=True), key=lambda pair: pair[0]
        ):
            raise StoreError(
                f"{dump.where}: the columns of {line}/{name} are not those of revision {part.revision}; take another "
                "backup"
            )


def _rows(batches: Iterable[Any], names: Sequence[str], advance: Advance) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.select(names).columns), strict=True)
        advance(batch.num_rows)


def _require_rows(connection: Connection, table: Table, wanted: int, where: str) -> None:
    rows = connection.execute(select(func.count()).select_from(table)).scalar_one()
    if rows != wanted:
        raise StoreError(
            f"{where} names {wanted:,} rows of {table.name}, but its file holds {rows:,}; take another backup"
        )


def _set_sequences(connection: Connection, tables: Iterable[Table]) -> None:
    """PostgreSQL numbers new rows by sequences, which know nothing of rows that came with their numbers."""
    if connection.dialect.name != "postgresql":
        return
    quoted = connection.dialect.identifier_preparer.quote
    for table in tables:
        keys = list(table.primary_key)
        if len(keys) != 1 or not isinstance(keys[0].type, Integer):
            continue
        highest = connection.execute(select(func.max(keys[0]))).scalar()
        if highest is not None:
            connection.execute(
                text(
                    "SELECT setval(s, :highest) FROM pg_get_serial_sequence(:of, :key) AS s WHERE s IS NOT NULL"
                ),
                {"of": quoted(table.name), "key": keys[0].name, "highest": highest},
            )


FETCHED_ROWS = 1000
GROUP_BYTES = 32 << 20
"""A row group is written when it has grown so large: documents of 64 KB and pairs of 24 bytes alike."""
GROUP_ROWS = 1 << 16


def write_database(
    line: Line, connection: Connection, folder: Path, *, progress: Progress = no_progress
) -> DumpedDatabase:
    """Write all tables and columns that mitl made to ``<folder>/<line>/``, rows in the order of their keys.

    Raises:
        StoreError: the database is empty, or not mitl's.
    """
    revision = migrate.revision_of(connection)
    if revision is None:
        raise StoreError(f"the {line} database is empty; there is nothing to back up")
    (folder / line).mkdir()
    tables = {}
    columns = {table: list(table.columns) for table in reflected(connection)}
    if revision in revisions(line):
        ours = migrate.made_by(line, revision)
        columns = {
            table: [column for column in all_ if column.name in ours[table.name]]
            for table, all_ in columns.items()
            if table.name in ours
        }
    with progress(f"back up {line}", total=len(columns)) as advance:
        for table, kept in columns.items():
            path = folder / file_name(line, table.name)
            tables[table.name] = _write_table(
                connection, _ordered(table, kept, connection.dialect.name), kept, path
            )
            advance(1)
    sync_folder(folder / line)
    return DumpedDatabase(revision, tables)


def _write_table(
    connection: Connection, query: Select[Any], columns: Sequence[Column[Any]], path: Path
) -> TableFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, rows = schema_of(columns), 0
    with path.open("xb") as sink:
        with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
            for group in _groups(_batches(connection, query, schema, path.stem)):
                rows += group.num_rows
                writer.write_table(group, row_group_size=group.num_rows)
        to_disk(sink)
    pa.default_memory_pool().release_unused()
    with path.open("rb") as written:
        return TableFile(rows, path.stat().st_size, hashlib.file_digest(written, "sha256").hexdigest())


def _batches(
    connection: Connection, query: Select[Any], schema: pa.Schema, table: str
) -> Iterator[pa.RecordBatch]:
    """The rows, fetched bit by bit."""
    import pyarrow as pa

    # An option of the connection's own would stay, and PostgreSQL streams nothing but rows.
    streamed = {"stream_results": True}
    result = connection.execute(query, execution_options=streamed)
    try:
        for rows in result.partitions(FETCHED_ROWS):
            columns = zip(*rows, strict=True)
            arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
            yield pa.record_batch(arrays, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise StoreError(f"table {table} holds a value of another type than its column: {error}") from error
    finally:
        result.close()


def _ordered(table: Table, columns: Sequence[Column[Any]], dialect: str) -> Select[Any]:
    """By primary key; text by code points on both engines, whatever the database's own collation."""
    order = [
        collate(column, "C") if isinstance(column.type, String) and dialect == "postgresql" else column
        for column in table.primary_key
    ]
    return select(*columns).order_by(*order)


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
