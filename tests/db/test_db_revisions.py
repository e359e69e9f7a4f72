"""Databases of every earlier revision are brought to the newest on both engines, and keep every row."""

from __future__ import annotations

import errno
import itertools
import sqlite3
from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from db_kit import content, kept, killed_at, old_database, sqlite_url
from old_dumps import REVISIONS, dump_of
from sqlalchemy import inspect, text

from mitl.db import migrate
from mitl.db.dumps.reading import open_dump
from mitl.db.dumps.restoring import restore_database
from mitl.db.engine import make_engine
from mitl.db.migrate import changing
from mitl.errors import StoreError

pytestmark = pytest.mark.migrations

each_revision = pytest.mark.parametrize(("line", "revision"), REVISIONS, ids=[name for _, name in REVISIONS])
on_postgres_by_turns = [
    pytest.mark.parametrize(
        ("line", "revision", "engine_url"),
        [(*where, "sqlite") for where in REVISIONS]
        + [pytest.param(*where, "postgresql", marks=pytest.mark.postgres) for where in REVISIONS[turn::2]],
        indirect=["engine_url"],
    )
    for turn in (0, 1)
]
"""Each revision on SQLite, every second one on PostgreSQL too: upgrades take the one half, dumps the other."""
each_first = pytest.mark.parametrize(("line", "revision"), [("pipeline", "p0001"), ("crowd", "c0001")])


@each_revision
def test_every_revision_has_a_dump_that_it_wrote(line, revision):
    """A new revision brings rows for its tables in old_rows.py, and a dump: python tests/kits/old_dumps.py REVISION."""
    with open_dump(dump_of(revision)) as dump:
        dump.check()
        part = dump.manifest.databases[line]

    assert part.revision == revision
    assert all(table.rows for table in part.tables.values())


@pytest.mark.parametrize("line", ["pipeline", "crowd"])
def test_the_files_of_migrations_are_named_by_their_revisions(line):
    """In the order that Alembic finds in them, so that to know the newest takes no Alembic."""
    scripts = ScriptDirectory.from_config(migrate.config(line))

    assert migrate.revisions(line)[::-1] == tuple(script.revision for script in scripts.walk_revisions())
    assert migrate.head(line) == scripts.get_current_head()


@on_postgres_by_turns[0]
@pytest.mark.thorough(but=("*-p0001-*", "*-p0007-*", "*-p0012-*", "crowd-*"))
def test_an_upgrade_keeps_every_row(line, revision, engine_url):
    """Whatever lies between; on SQLite the file as it was is kept beside it, named by its revision."""
    before = old_database(line, revision, engine_url)
    engine = make_engine(engine_url)

    done = migrate.upgrade(line, engine)

    assert (done.before, done.after) == (revision, migrate.head(line))
    assert migrate.current(engine) == migrate.head(line)
    assert kept(before, content(engine_url))
    if engine.dialect.name == "sqlite" and done.before != done.after:
        assert done.copy is not None and done.copy.name == f"test.db.{revision}.backup"
        assert content(sqlite_url(done.copy)) == before
    else:
        assert done.copy is None
    engine.dispose()


@on_postgres_by_turns[1]
@pytest.mark.thorough(but=("*-p0001-*", "*-p0008-*", "*-p0014-*", "crowd-*"))
def test_an_old_dump_is_restored_at_its_revision_and_brought_to_the_newest(line, revision, engine_url):
    """The same rows as an upgrade in place gives; new rows are numbered after the restored ones."""
    engine = make_engine(engine_url)

    with open_dump(dump_of(revision)) as dump, changing(engine) as connection:
        rows = restore_database(line, connection, dump, "new")

    found = content(engine_url)
    assert migrate.current(engine) == migrate.head(line)
    now = {"image": "item", "caption": "item"}  # since p0007
    tables = {now.get(table, table) for table in dump.manifest.databases[line].tables}
    assert rows == sum(len(found[table]) for table in tables)
    if line == "pipeline":
        with engine.begin() as connection:
            connection.execute(
                text("INSERT INTO pair (left_side_id, left_id, right_side_id, right_id) VALUES (1, 2, 2, 7)")
            )
        assert content(engine_url)["pair"][-1]["id"] == 12
    engine.dispose()


@pytest.mark.postgres
@each_first
def test_both_engines_hold_the_same_after_an_upgrade(line, revision, tmp_path, postgres_url):
    """Text, times, numbers and enums are equal to the last bit."""
    urls = [sqlite_url(tmp_path / "one.db"), postgres_url]
    for url in urls:
        old_database(line, revision, url)
        engine = make_engine(url)
        migrate.upgrade(line, engine)
        engine.dispose()

    assert content(urls[0]) == content(urls[1])


@pytest.mark.parametrize("line", ["pipeline", "crowd"])
def test_a_database_with_rows_is_taken_back_to_nothing(line, engine_url):
    """Every step has its way back, also where rows point to what it rebuilds."""
    old_database(line, migrate.head(line), engine_url)
    engine = make_engine(engine_url)

    for earlier in [*migrate.revisions(line)[-2::-1], "base"]:
        with migrate.changing(engine) as connection:
            command.downgrade(migrate.config(line, connection), earlier)
            migrate.require_whole(connection, "the test's database")

    assert set(inspect(engine).get_table_names()) <= {migrate.VERSION_TABLE}
    engine.dispose()


@each_first
@pytest.mark.thorough
def test_an_upgrade_that_is_killed_is_done_by_the_next(line, revision, engine_url, tmp_path):
    """Killed before any of its statements, it has changed nothing; the next upgrade finishes and loses nothing."""
    before = old_database(line, revision, engine_url)

    def work(engine):
        migrate.upgrade(line, engine)

    points = itertools.count(2, 9)
    survived = next(point for point in points if not killed_and_unchanged(engine_url, point, work, revision))

    engine = make_engine(engine_url)
    assert survived > 10
    assert migrate.current(engine) == migrate.head(line)
    assert kept(before, content(engine_url))
    assert not list(tmp_path.glob(".*.part"))
    engine.dispose()


def killed_and_unchanged(url, point, work, revision):
    """Whether the work was killed at this point; then the database is as it was."""
    if not killed_at(url, point, work):
        return False
    engine = make_engine(url)
    assert migrate.current(engine) == revision, point
    engine.dispose()
    return True


def test_copies_of_one_state_are_kept_side_by_side(tmp_path):
    """An upgrade that failed and is tried again writes over no copy."""
    url = sqlite_url(tmp_path / "mitl.db")
    old_database("pipeline", "p0002", url)
    engine = make_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE original_verdict (id INTEGER)"))  # in the way of p0003
    with pytest.raises(StoreError, match="it is as it was before") as caught:
        migrate.upgrade("pipeline", engine)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE original_verdict"))

    done = migrate.upgrade("pipeline", engine)

    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.glob("*.backup")) == [
        "mitl.db.p0002.2.backup",
        "mitl.db.p0002.backup",
    ]
    assert done.copy == tmp_path / "mitl.db.p0002.2.backup"
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.glob("*.backup"))
    engine.dispose()


def test_a_file_system_without_hard_links_keeps_copies_too(tmp_path, monkeypatch):
    """As those of USB sticks and shared folders; an earlier copy is still never written over."""

    def refuse(kept, part):
        raise FileExistsError if kept.exists() else OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    (tmp_path / "mitl.db.p0002.backup").write_bytes(b"earlier")
    old_database("pipeline", "p0002", sqlite_url(tmp_path / "mitl.db"))
    engine = make_engine(sqlite_url(tmp_path / "mitl.db"))

    done = migrate.upgrade("pipeline", engine)

    assert done.copy == tmp_path / "mitl.db.p0002.2.backup"
    assert done.copy.stat().st_size > 100 and not list(tmp_path.glob(".*.part"))
    assert (tmp_path / "mitl.db.p0002.backup").read_bytes() == b"earlier"
    engine.dispose()


def test_two_upgrades_at_once_are_one(engine_url):
    """The second waits for its turn and finds nothing left to do."""
    from concurrent.futures import ThreadPoolExecutor

    before = old_database("pipeline", "p0001", engine_url)
    engines = [make_engine(engine_url) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda engine: migrate.upgrade("pipeline", engine), engines))

    assert sorted(str(one.before) for one in done) == [
        "p0001",
        migrate.head("pipeline"),
        migrate.head("pipeline"),
    ]
    assert kept(before, content(engine_url))
    for engine in engines:
        engine.dispose()


def test_a_row_that_points_nowhere_stops_an_upgrade(tmp_path):
    """What was lost before must not look like the upgrade's work; nothing is changed."""
    path = tmp_path / "mitl.db"
    old_database("pipeline", "p0001", sqlite_url(path))
    with sqlite3.connect(path) as connection:  # foreign keys are off here
        connection.execute("DELETE FROM worker WHERE id = 3")
    connection.close()
    engine = make_engine(sqlite_url(path))

    with pytest.raises(StoreError, match="row 3 of assignment points to a row of worker that is not there"):
        migrate.upgrade("pipeline", engine)

    assert migrate.current(engine) == "p0001"
    engine.dispose()


@pytest.mark.parametrize(("line", "url"), [("pipeline", "crowd"), ("crowd", "pipeline")])
def test_the_other_partys_database_is_refused(line, url, tmp_path):
    """--db and --crowd-db were swapped: the line says so, and nothing is changed."""
    engine = make_engine(sqlite_url(tmp_path / "test.db"))
    migrate.upgrade(url, engine)

    with pytest.raises(StoreError, match=f"so it is a {url} database, but a {line} database is wanted"):
        migrate.upgrade(line, engine)
    engine.dispose()


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("sqlite:///{folder}/junk.db", "cannot read junk.db: file is not a database; restore a backup"),
        (
            "sqlite:///{folder}/folder.db",
            "cannot read folder.db: unable to open database file; check that its folder",
        ),
        (
            "postgresql://me:hunter2@127.0.0.1:1/mitl",
            "cannot read postgresql://me:***@127.0.0.1:1/mitl: connection failed",
        ),
    ],
    ids=["no database", "a folder", "no server"],
)
def test_what_could_not_be_read_is_not_called_empty(url, line, tmp_path):
    """No revision was seen, so none is named; what to do is said as ever."""
    (tmp_path / "junk.db").write_bytes(b"no database any more" * 100)
    (tmp_path / "folder.db").mkdir()
    engine = make_engine(url.format(folder=tmp_path))

    with pytest.raises(StoreError) as caught:
        migrate.upgrade("pipeline", engine)
    engine.dispose()

    message = str(caught.value)
    assert message.startswith(line)
    assert "empty" not in message and "hunter2" not in message and "\n" not in message
    assert message.endswith(" and run the command again")
