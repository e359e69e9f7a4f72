"""Backups: the same from both engines, whole or not at all, of one moment; what is damaged is refused in one line."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import tarfile
import threading
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_kit import fails, mitl, ok
from db_kit import content, old_database, sqlite_url
from sqlalchemy import text

from mitl.cli.reference import COUNTS, PATHS
from mitl.crowd_server import admin
from mitl.db import migrate
from mitl.db.dumps.reading import open_dump
from mitl.db.engine import make_engine
from mitl.db.session import open_database
from mitl.errors import StoreError
from mitl.settings import load
from mitl.stages.operating.backup import backup, verify, verify_dump
from mitl.stages.operating.restore import restore

OLD = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Both databases with rows in every table, at the newest revision, on SQLite."""
    folder = tmp_path_factory.mktemp("template")
    for line, name in (("pipeline", "mitl.db"), ("crowd", "crowd.db")):
        url = sqlite_url(folder / name)
        old_database(line, migrate.head(line), url)
    return folder


@pytest.fixture
def settings(template, tmp_path):
    """A project on SQLite with rows in every table."""
    shutil.copytree(template, tmp_path / "p")
    return load(tmp_path / "p", environ={})


def elsewhere(tmp_path, **urls):
    """Another project, empty; its databases may be on other URLs."""
    (tmp_path / "q").mkdir(exist_ok=True)
    return replace(load(tmp_path / "q", environ={}), **urls)


@pytest.mark.migrations
@pytest.mark.parametrize("name", ["dump", "dump.tar"])
@pytest.mark.thorough(but=("dump.tar",))
def test_a_restored_project_is_the_one_that_was_backed_up(settings, tmp_path, name):
    """Folder and single file hold the same; a backup of what was restored has the same bytes."""
    done = backup(settings, tmp_path / name)
    other = elsewhere(tmp_path)

    restore(other, tmp_path / name)

    assert content(other.db_url) == content(settings.db_url)
    assert content(other.crowd_db_url) == content(settings.crowd_db_url)
    assert verify(other).refusal is None
    assert done.counts["pipeline"] == sum(len(rows) for rows in content(settings.db_url).values())
    assert backup(other, tmp_path / name).status == "nothing_to_do"


def test_the_same_rows_give_the_same_bytes_whenever_and_by_whomever(settings, tmp_path, monkeypatch):
    """No clock time, user or mode of a file is in a backup, be it a folder or an archive."""
    backup(settings, tmp_path / "one.tar")
    backup(settings, tmp_path / "one")
    monkeypatch.setattr(tarfile.TarFile, "gettarinfo", _of_somebody_else(tarfile.TarFile.gettarinfo))
    later = elsewhere(tmp_path)
    restore(later, tmp_path / "one.tar")
    backup(later, tmp_path / "two.tar")
    backup(later, tmp_path / "two")

    assert (tmp_path / "two.tar").read_bytes() == (tmp_path / "one.tar").read_bytes()
    files = [path.relative_to(tmp_path / "one") for path in sorted((tmp_path / "one").rglob("*.*"))]
    assert len(files) > 20
    for file in files:
        assert (tmp_path / "two" / file).read_bytes() == (tmp_path / "one" / file).read_bytes()


def _of_somebody_else(whole):
    def gettarinfo(*arguments, **named):
        member = whole(*arguments, **named)
        member.mtime, member.uid, member.gid, member.uname, member.mode = 1, 77, 77, "somebody", 0o644
        return member

    return gettarinfo


@pytest.mark.migrations
@pytest.mark.postgres
def test_a_project_moves_to_postgresql_and_back_without_losing_a_bit(settings, tmp_path, postgres_url):
    """The dumps of both engines are equal, file by file; ids go on after the restored ones."""
    backup(settings, tmp_path / "from-sqlite")
    other = elsewhere(tmp_path, db_url=postgres_url)

    restore(other, tmp_path / "from-sqlite", only="pipeline")
    backup(other, tmp_path / "from-postgres", only="pipeline")

    with open_dump(tmp_path / "from-sqlite") as one, open_dump(tmp_path / "from-postgres") as two:
        tables = one.manifest.databases["pipeline"].tables
        assert two.manifest.databases["pipeline"].tables == tables
    assert verify(other).refusal is None
    with open_database(postgres_url) as session:
        newest = text("SELECT max(id) FROM round")
        restored = session.execute(newest).scalar_one()
        session.execute(
            text("INSERT INTO round (dataset_id, number, strategy, opened_at) VALUES (1, 3, 's', 1)")
        )
        assert session.execute(newest).scalar_one() == restored + 1


@pytest.mark.postgres
def test_a_crowd_server_moves_to_postgresql_with_its_keys(tmp_path, postgres_url):
    """It is the same server there: id, secrets, keys, budgets; whoever has an invitation still has it."""
    settings = load(tmp_path, environ={})
    engine = make_engine(settings.crowd_db_url)
    admin.prepare(engine)
    admin.invite(engine, "sandbox", 2)
    known = (
        admin.server_id(engine),
        admin.operator_token(engine),
        admin.keys(engine),
        admin.invitations(engine),
    )
    engine.dispose()
    backup(settings, tmp_path / "dump")

    restore(replace(settings, crowd_db_url=postgres_url), tmp_path / "dump")

    engine = make_engine(postgres_url)
    admin.prepare(engine)
    assert known == (
        admin.server_id(engine),
        admin.operator_token(engine),
        admin.keys(engine),
        admin.invitations(engine),
    )
    assert len(admin.invite(engine, "sandbox")) == 1
    assert len(admin.invitations(engine)) == 3
    engine.dispose()


def test_a_backup_is_of_one_moment(settings, tmp_path):
    """Whatever is written while the tables are copied is in none of them."""
    before = content(settings.db_url), content(settings.crowd_db_url)

    @contextmanager
    def meddling(label, total):
        def write(units):
            thread = threading.Thread(target=_add_rows, args=(settings,))
            thread.start()
            thread.join()

        yield write

    backup(settings, tmp_path / "dump", progress=meddling)

    assert content(settings.db_url) != before[0]
    other = elsewhere(tmp_path)
    restore(other, tmp_path / "dump")
    assert (content(other.db_url), content(other.crowd_db_url)) == before


def _add_rows(settings):
    for url, statement in (
        (
            settings.db_url,
            "INSERT INTO annotator (name, kind, config, fingerprint)"
            " SELECT 'n' || count(*), 'ranking', '', '' FROM annotator",
        ),
        (settings.crowd_db_url, "INSERT INTO setting SELECT 'n' || count(*), '' FROM setting"),
    ):
        engine = make_engine(url)
        with engine.begin() as connection:
            connection.execute(text(statement))
        engine.dispose()


def test_an_empty_folder_is_a_place_for_a_backup(settings, tmp_path):
    """As ``mkdir`` or a mount leaves it; whatever is in a folder is kept."""
    (tmp_path / "made").mkdir()
    backup(settings, tmp_path / "made")
    assert verify_dump(tmp_path / "made").refusal is None
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes").write_text("mine")
    with pytest.raises(StoreError, match="is not a dump"):
        backup(settings, tmp_path / "used")
    assert [path.name for path in (tmp_path / "used").iterdir()] == ["notes"]


def test_columns_that_somebody_added_keep_no_backup_from_being_restored(settings, tmp_path):
    """They are left out, as tables beside mitl's are."""
    plain = backup(settings, tmp_path / "plain").counts
    with open_database(settings.db_url) as session:
        session.execute(text("ALTER TABLE worker ADD COLUMN my_note DATE"))
        session.commit()
    assert backup(settings, tmp_path / "noted").counts == plain
    assert verify_dump(tmp_path / "noted").refusal is None


def test_a_backup_of_another_state_is_not_written_over(settings, tmp_path):
    """The earlier one is kept, and the line says what to do."""
    backup(settings, tmp_path / "dump")
    first = (tmp_path / "dump" / "manifest.json").read_bytes()
    _add_rows(settings)

    with pytest.raises(StoreError, match=r"is a backup of another state; it is kept: name a new one"):
        backup(settings, tmp_path / "dump")

    assert (tmp_path / "dump" / "manifest.json").read_bytes() == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dump", "p"]


@pytest.mark.parametrize("name", ["dump", "dump.tar"])
def test_a_backup_that_is_killed_leaves_nothing_that_looks_like_one(settings, tmp_path, name):
    """Half of it has another name, and the next backup removes it."""

    @contextmanager
    def deadly(label, total):
        yield lambda units: os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            backup(settings, tmp_path / name, progress=deadly)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    left = [path.name for path in tmp_path.iterdir() if path.name != "p"]
    assert left and all(one.startswith(".") and one.endswith(".part") for one in left)

    backup(settings, tmp_path / name)

    assert sorted(path.name for path in tmp_path.iterdir()) == [name, "p"]


def test_a_dump_is_its_owners_alone(settings, tmp_path):
    """It holds keys, workers' ids and which pairs are controls."""
    backup(settings, tmp_path / "dump")
    backup(settings, tmp_path / "dump.tar")

    assert (tmp_path / "dump").stat().st_mode & 0o077 == 0
    assert (tmp_path / "dump.tar").stat().st_mode & 0o077 == 0


def test_a_database_that_holds_something_is_not_restored_into(settings, tmp_path):
    """Unless asked to replace it: then the file as it was is kept."""
    backup(settings, tmp_path / "dump")
    _add_rows(settings)
    before = content(settings.db_url)

    with pytest.raises(StoreError, match=r"mitl\.db is not empty; .* --replace"):
        restore(settings, tmp_path / "dump")
    assert content(settings.db_url) == before
    done = restore(settings, tmp_path / "dump", replace=True)

    assert content(settings.db_url) != before
    assert content(sqlite_url(done.counts["copies"][0])) == before
    assert backup(settings, tmp_path / "dump").status == "nothing_to_do"


@pytest.mark.migrations
@pytest.mark.postgres
def test_a_restore_replaces_what_postgresql_holds(settings, tmp_path, postgres_url):
    """In one transaction too; the same words again, as after a kill between the two databases, find it there."""
    old_database("pipeline", "p0001", postgres_url)
    backup(settings, tmp_path / "dump")
    other = elsewhere(tmp_path, db_url=postgres_url)

    restore(other, tmp_path / "dump", only="pipeline", replace=True)

    assert content(postgres_url) == content(settings.db_url)
    assert restore(other, tmp_path / "dump", only="pipeline").status == "nothing_to_do"


def test_what_somebody_put_beside_mitls_tables_stays_where_it_is(settings, tmp_path, engine_url):
    """It is in no backup, which would fit no revision, and a restore in place of the others leaves it."""
    backup(settings, tmp_path / "dump", only="pipeline")
    project = elsewhere(tmp_path, db_url=engine_url)
    restore(project, tmp_path / "dump", only="pipeline")
    engine = make_engine(engine_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE my_notes (id INTEGER PRIMARY KEY, note TEXT)"))
        connection.execute(text("INSERT INTO my_notes VALUES (1, 'mine')"))

    backup(project, tmp_path / "again", only="pipeline")
    assert verify_dump(tmp_path / "again").refusal is None
    restore(project, tmp_path / "again", only="pipeline", replace=True)

    with engine.connect() as connection:
        assert connection.execute(text("SELECT note FROM my_notes")).scalars().all() == ["mine"]
    engine.dispose()


@pytest.mark.parametrize("replaces", [False, True])
def test_a_restore_that_fails_changes_nothing(settings, tmp_path, replaces):
    """The crowd's part fails at the end: the pipeline's is undone too, and no new file stays."""
    backup(settings, tmp_path / "dump")
    _break_count(tmp_path / "dump", "crowd", "worker")
    other = elsewhere(tmp_path)
    if replaces:
        old_database("pipeline", "p0002", other.db_url)
    before = content(other.db_url) if replaces else None

    with pytest.raises(StoreError, match=r"names 9 rows of worker, but its file holds 2"):
        restore(other, tmp_path / "dump", replace=True)

    if replaces:
        assert content(other.db_url) == before
    else:
        assert list(other.project.iterdir()) == []


def _seal(dump, table):
    """Say in the manifest what a table of the pipeline's holds now."""
    path, manifest = dump / "pipeline" / f"{table}.parquet", json.loads((dump / "manifest.json").read_text())
    mark = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest["databases"]["pipeline"]["tables"][table]["sha256"] = mark
    (dump / "manifest.json").write_text(json.dumps(manifest))


def test_a_table_that_is_none_is_one_line(settings, tmp_path):
    """Whatever the manifest says of it."""
    backup(settings, tmp_path / "dump")
    (tmp_path / "dump" / "pipeline" / "batch.parquet").write_bytes(b"PAR1")
    _seal(tmp_path / "dump", "batch")

    with pytest.raises(
        StoreError, match=r"pipeline/batch\.parquet in .* cannot be read .*; take another backup"
    ):
        restore(elsewhere(tmp_path), tmp_path / "dump")
    (tmp_path / "dump" / "manifest.json").write_text("[" * 100_000)
    with pytest.raises(StoreError, match=r"manifest\.json"):
        restore(elsewhere(tmp_path), tmp_path / "dump")


def test_rows_that_a_database_refuses_are_one_line(settings, tmp_path, engine_url):
    """From either engine."""
    backup(settings, tmp_path / "dump")
    path = tmp_path / "dump" / "pipeline" / "dataset.parquet"
    table = pq.read_table(path)
    nothing = pa.array([None] * table.num_rows, pa.string())
    pq.write_table(table.set_column(table.schema.get_field_index("kind"), "kind", nothing), path)
    _seal(tmp_path / "dump", "dataset")

    with pytest.raises(StoreError, match=r"pipeline/dataset: [^\n]*(kind|null)[^\n]*; take another backup$"):
        restore(elsewhere(tmp_path, db_url=engine_url), tmp_path / "dump")


def _break_count(dump, line, table):
    manifest = json.loads((dump / "manifest.json").read_text())
    manifest["databases"][line]["tables"][table]["rows"] = 9
    (dump / "manifest.json").write_text(json.dumps(manifest))


def test_every_changed_byte_is_noticed(settings, tmp_path):
    """Of every file of the dump; so is one that is missing and one too many."""
    backup(settings, tmp_path / "dump")
    files = sorted((tmp_path / "dump").glob("*/*.parquet"))
    assert len(files) > 40
    for path in files[::7]:
        good = path.read_bytes()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        with pytest.raises(StoreError, match=f"{path.name}.* is not what was written there"):
            verify_dump(tmp_path / "dump")
        path.unlink()
        with pytest.raises(StoreError, match=f"lacks .*{path.name}"):
            restore(elsewhere(tmp_path), tmp_path / "dump")
        path.write_bytes(good)
    (tmp_path / "dump" / "crowd" / "extra.parquet").write_bytes(b"")
    with pytest.raises(
        StoreError, match=r"holds crowd/extra\.parquet, which its manifest\.json does not name"
    ):
        verify_dump(tmp_path / "dump")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            lambda m: m.update(format=3),
            "is a dump of format 3, but this mitl reads formats 1 and 2; upgrade mitl",
        ),
        (
            lambda m: m.update(format="mitl-release-1"),
            "is no dump of a database: its manifest.json is of the format",
        ),
        (lambda m: m.pop("databases"), "holds a damaged manifest.json"),
        (lambda m: m["databases"].update(other={}), "no database is called 'other'"),
        (
            lambda m: m["databases"]["crowd"]["tables"]["worker"].update(rows=float("inf")),
            "holds a damaged manifest.json",
        ),
        (lambda m: m["databases"]["crowd"]["tables"].update({"../x": {}}), "no table can be called '../x'"),
        (
            lambda m: m["databases"]["crowd"].update(revision="c9999"),
            "revision 'c9999', which this version of mitl",
        ),
        (
            lambda m: m["databases"]["pipeline"].update(revision="p0001"),
            "its tables are not those of that revision",
        ),
    ],
)
def test_a_manifest_that_cannot_be_meant_is_one_line(settings, tmp_path, change, line):
    """A later format, a damaged one, a future schema, tables of another revision."""
    backup(settings, tmp_path / "dump")
    path = tmp_path / "dump" / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))

    with pytest.raises(StoreError) as caught:
        restore(elsewhere(tmp_path), tmp_path / "dump")

    assert line in str(caught.value) and "\n" not in str(caught.value)
    assert list((tmp_path / "q").iterdir()) == []


def test_what_is_no_dump_is_one_line(settings, tmp_path):
    """Nothing there, an empty folder, a text file, a tar of something else, a pipe that nobody writes to."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.tar").write_text("my notes\n" * 200)
    with tarfile.open(tmp_path / "other.tar", "w") as archive:
        archive.add(tmp_path / "notes.tar", "notes")
    lines = {
        "nowhere": "there is no dump at",
        "empty": "holds no manifest.json, so it is not a dump",
        "notes.tar": "is not a dump: neither a folder nor a tar file",
        "other.tar": "holds no manifest.json, so it is not a dump",
        "pipe.tar": "is not a dump: neither a folder nor a tar file (a device or a pipe)",
    }
    os.mkfifo(tmp_path / "pipe.tar")
    for name, line in lines.items():
        assert line in fails(1, "db", "restore", tmp_path / name, "--project", tmp_path)
        assert line in fails(1, "db", "verify", tmp_path / name, "--project", tmp_path)
    with pytest.raises(StoreError, match="a device or a pipe"):
        backup(settings, tmp_path / "pipe.tar")
    assert (tmp_path / "pipe.tar").is_fifo()


@pytest.mark.parametrize("left", [0.3, 0.6, 0.9])
def test_an_archive_that_was_cut_off_is_one_line(settings, tmp_path, left):
    """A copy that broke off, or a disk that was full, is told from a dump, wherever it ends."""
    whole, cut = tmp_path / "whole.tar", tmp_path / "cut.tar"
    backup(settings, whole)
    packed = whole.read_bytes()
    cut.write_bytes(packed[: int(len(packed) * left)])

    for command in ("restore", "verify"):
        assert "cut.tar is cut short or damaged" in fails(
            1, "db", command, cut, "--project", tmp_path / "new"
        )
    assert not (tmp_path / "new" / "mitl.db").exists()


@pytest.mark.parametrize(
    ("database", "statement", "fault"),
    [
        (
            "crowd",
            "UPDATE account SET held_cents = held_cents + 1",
            "accounts differ from what their ledger adds up to",
        ),
        ("crowd", "UPDATE hit SET slots_left = slots_left + 1 WHERE id = 2", "another number of free places"),
        ("crowd", "DELETE FROM ledger WHERE kind = 'reward'", "approved submissions are not paid once"),
        (
            "crowd",
            "UPDATE assignment SET state = 'lost' WHERE id = 2",
            "assignment.state holds values that mitl does not",
        ),
        ("pipeline", "DELETE FROM pair WHERE id = 3", "hit_item points to rows of pair that are not there"),
        (
            "pipeline",
            "UPDATE query SET item_id = 99 WHERE id = 1",
            "queries search with an item that is not there",
        ),
        (
            "pipeline",
            "UPDATE judgement SET pair_id = 3 WHERE id = 1",
            "another pair than stands at their place",
        ),
        (
            "pipeline",
            "DELETE FROM journal WHERE kind = 'bonus'",
            "the journal knows no call that granted them",
        ),
        ("pipeline", "DELETE FROM ledger WHERE kind = 'bonus'", "bonuses were granted and are not booked"),
        (
            "pipeline",
            "UPDATE ledger SET cents = 99 WHERE kind = 'reward'",
            "another price than their batch's",
        ),
        (
            "pipeline",
            "UPDATE hit SET mturk_hit_id = NULL WHERE id = 2",
            "posted and have no id of the server",
        ),
        (
            "pipeline",
            "INSERT OR REPLACE INTO answer_sheet VALUES (1, x'00')",
            "answer sheets say something else than the judgements",
        ),
        (
            "pipeline",
            "INSERT OR REPLACE INTO answer_sheet VALUES (1, zeroblob(32))",
            "answer sheets say something else than the judgements",
        ),
    ],
)
def test_verify_finds_what_no_constraint_holds(settings, database, statement, fault):
    """Money that does not add up, states that cannot be, rows that point nowhere."""
    assert verify(settings).refusal is None
    file = settings.project / ("mitl.db" if database == "pipeline" else "crowd.db")
    with sqlite3.connect(file) as connection:  # foreign keys are off here
        connection.execute(statement)
    connection.close()

    found = verify(settings)

    assert found.refusal is not None
    assert any(fault in one["what"] for one in found.result.counts["faults"])


def test_verify_finds_a_damaged_file(settings):
    """A page of the file was overwritten."""
    path = settings.project / "mitl.db"
    with path.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * 4096)

    outcome = mitl("db", "verify", "--project", settings.project)

    assert outcome.status == 1
    assert "malformed" in outcome.err or "damaged" in outcome.err


def test_the_commands_say_what_they_did(settings, tmp_path):
    """Backup, verify, restore and verify again, as a person types them; a second run has nothing to do."""
    project, dump = settings.project, tmp_path / "dump"
    first = ok("db", "backup", dump, "--project", project, "--json").json
    again = ok("db", "backup", dump, "--project", project, "--json").json
    assert (first["status"], again["status"]) == ("done", "nothing_to_do")
    assert first["counts"] == again["counts"] and first["counts"]["pipeline"] > 60
    assert (
        "not in it: mitl.toml, project.key"
        in ok("db", "backup", tmp_path / "two.tar", "--project", project).out
    )
    assert "all is well" in ok("db", "verify", dump, "--project", project).out

    restored = ok("db", "restore", dump, "--project", tmp_path / "q", "--json").json

    assert restored["counts"] == {key: first["counts"][key] for key in ("pipeline", "crowd")} | {"copies": []}
    assert set(restored["counts"]) == set(COUNTS["db restore"])
    assert set(first["counts"]) == set(COUNTS["db backup"]) and set(first["paths"]) == set(PATHS["db backup"])
    assert ok("db", "verify", "--project", tmp_path / "q", "--json").json["counts"] == {
        "databases": 2,
        "faults": [],
    }
    assert "hold this very dump" in ok("db", "restore", dump, "--project", tmp_path / "q").out
    assert "there is no crowd database" in fails(
        1, "db", "backup", dump, "--only", "crowd", "--project", tmp_path
    )


@pytest.mark.parametrize("name", ["dump", "dump.tar"])
@pytest.mark.thorough(but=("dump",))
def test_what_learnt_goes_with_the_pipeline(settings, tmp_path, name):
    """Finished weights and their curves come back; what is half done stays, and no other file is written over."""
    project, dump, there = settings.project, tmp_path / name, tmp_path / "q" / "trained"
    (project / "trained").mkdir()
    weights = ("a.safetensors", "._a.safetensors", "my own (2).safetensors")
    for made in (*weights, "a.csv", "b.csv", "b.checkpoint"):
        (project / "trained" / made).write_text(made)
    assert "4 files of trained/" in ok("db", "backup", dump, "--project", project).out
    there.mkdir(parents=True)
    (there / "a.csv").write_text("mine")
    assert "a.csv is another file" in fails(1, "db", "restore", dump, "--project", tmp_path / "q")
    assert sorted(path.name for path in there.iterdir()) == ["a.csv"]
    assert not (tmp_path / "q" / "mitl.db").exists()
    (there / "a.csv").unlink()

    assert "put back: 4 files" in ok("db", "restore", dump, "--project", tmp_path / "q").out
    assert {path.name: path.read_text() for path in there.iterdir()} == {
        name: name for name in (*weights, "a.csv")
    }
    assert "all is well" in ok("db", "verify", dump, "--project", project).out
    assert "nothing to do" in ok("db", "restore", dump, "--project", tmp_path / "q").out
