"""Dumps of both databases at each revision that mitl ever had: how they were made, and where they lie.

``python tests/kits/old_dumps.py REVISION`` writes ``tests/data/dumps/REVISION.tar`` for a new revision, after its
new tables and columns were given rows in ``old_rows.py``. Dumps that lie there already
are never made again: they stand for databases that people have.
"""

from __future__ import annotations

import sys
from pathlib import Path

from old_rows import FIRST, NEW_ROWS, NEW_VALUES
from sqlalchemy import Connection, MetaData

from mitl.db import migrate
from mitl.db.dumps.reading import open_dump
from mitl.db.dumps.restoring import fill_database
from mitl.db.engine import make_engine
from mitl.db.migrate import Line, changing, revisions, run_to
from mitl.settings import load

DUMPS = Path(__file__).parents[1] / "data" / "dumps"
REVISIONS: list[tuple[Line, str]] = [
    (line, revision) for line in ("pipeline", "crowd") for revision in revisions(line)
]


def dump_of(revision: str) -> Path:
    """Where the dump of a revision lies."""
    return DUMPS / f"{revision}.tar"


def build(line: Line, connection: Connection, revision: str) -> None:
    """Make the tables of a revision in an empty database and put that revision's rows into them.

    From p0007 on, which gave old rows other tables, they are those of the dump before, brought to the revision.
    """
    known = revisions(line)
    if line == "pipeline" and revision >= "p0007":
        with open_dump(dump_of(known[known.index(revision) - 1])) as before:
            fill_database(line, connection, before, revision)
        run_to(line, connection, revision)
        metadata = MetaData()
        metadata.reflect(connection)
        insert_rows(metadata, connection, revision, NEW_ROWS)
        return
    run_to(line, connection, revision)
    metadata = MetaData()
    metadata.reflect(connection)
    insert_rows(metadata, connection, known[0], FIRST)
    for later in known[1 : known.index(revision) + 1]:
        insert_rows(metadata, connection, later, NEW_ROWS)


def insert_rows(
    metadata: MetaData, connection: Connection, revision: str, source: dict[str, dict[str, list]]
) -> None:
    """Insert a revision's rows, each table after those that it points to."""
    rows = source.get(revision, {})
    line_of = revision[0]
    upto = metadata.tables.keys()
    for table in metadata.sorted_tables:
        values = {
            later: tables[table.name]
            for later, tables in NEW_VALUES.items()
            if later[0] == line_of and table.name in tables
        }
        for row in rows.get(table.name, ()):
            full = {column.name: None for column in table.columns} | row
            for given in values.values():
                full |= {k: v for k, v in given.get(row.get("id", 0), {}).items() if k in table.columns}
            connection.execute(table.insert(), full)
    assert rows.keys() <= upto, rows.keys() - upto


def write(revision: str) -> Path:
    """Make the dump of a revision."""
    import tempfile

    from mitl.stages.operating.backup import backup

    line: Line = "pipeline" if revision.startswith("p") else "crowd"
    with tempfile.TemporaryDirectory() as folder:
        settings = load(Path(folder), environ={})
        engine = make_engine(settings.db_url if line == "pipeline" else settings.crowd_db_url)
        with changing(engine) as connection:
            build(line, connection, revision)
            migrate.require_whole(connection, revision)
        engine.dispose()
        backup(settings, dump_of(revision), only=line)
    return dump_of(revision)


if __name__ == "__main__":
    for name in sys.argv[1:] or [revision for _, revision in REVISIONS if not dump_of(revision).exists()]:
        print(write(name))
