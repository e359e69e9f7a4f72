"""Databases that cannot be used: wrong address, no right, read-only, full, future. One clear line, and data intact."""

from __future__ import annotations

import json
import random
import re
import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from cli_kit import fails, ok
from db_kit import (
    content,
    cut_connections,
    guest,
    kept,
    new_project,
    old_database,
    sqlite_url,
    unprivileged,
)
from sqlalchemy import event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from mitl.db import migrate
from mitl.db.engine import View, make_engine, parse_url
from mitl.db.explain import reason
from mitl.db.locks import WRITING, advisory_key
from mitl.db.session import open_database
from mitl.errors import OutageError, SettingsError, StoreError

pytestmark = pytest.mark.migrations


@pytest.fixture
def old(tmp_path):
    """A project whose pipeline database is of the first revision."""
    folder = tmp_path / "p"
    folder.mkdir()
    old_database("pipeline", "p0001", sqlite_url(folder / "mitl.db"))
    return folder


@pytest.fixture
def new(tmp_path):
    """A project whose pipeline database is of the newest revision."""
    return new_project(tmp_path / "p")


def in_a_process(*words: str | Path, room: int | None = None) -> str:
    """The one line with which ``mitl`` fails where permissions bind even root, and files may grow so far at most."""

    def limit() -> None:
        if room is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    done = subprocess.run(
        [*unprivileged(), sys.executable, "-B", "-m", "mitl", *map(str, words), "--json"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
    )
    assert done.returncode == 1, done
    (line,) = done.stderr.splitlines()
    assert json.loads(done.stdout)["error"] == line.removeprefix("error: ")
    return line


COMMANDS = (("status",), ("db", "current"), ("db", "upgrade"), ("db", "verify"), ("harvest",))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("mysql://x/y", "'mysql' databases are not supported; known: sqlite, postgresql"),
        (
            "my database",
            "is not a database URL; write sqlite:///path/to/file.db or postgresql://user@host/name",
        ),
        (
            "postgresql://me:hunter2@127.0.0.1:1/mitl?sslpassword=hunter2",
            "check the host and the port in the URL, see that the server runs",
        ),
        ("postgresql://me:hunter2@127.0.0.1:none/mitl", "is not a database URL"),
        (
            "postgresql://me:hunter2@127.0.0.1:1/mitl?pasword=hunter2",
            'invalid connection option "pasword"; check what stands after the ? in the URL',
        ),
        ("postgresql://me@127.0.0.1:1/mitl?connect_timeout=long", "check what stands after the ? in the URL"),
        ("postgresql://me@127.0.0.1:1/mitl?sslmode=maybe", "check what stands after the ? in the URL"),
    ],
)
def test_a_wrong_url_is_one_line_without_its_password(words, url, line, tmp_path):
    """Whichever command meets it."""
    message = fails(1, *words, "--db", url, "--project", tmp_path)

    assert line in message
    assert "hunter2" not in message


@pytest.mark.parametrize("url", ["sqlite://host/mitl.db", "sqlite:///mitl.db?timeout=long"])
def test_a_url_that_sqlite_cannot_read_is_none(url):
    """Whatever SQLAlchemy makes of it."""
    with pytest.raises(
        SettingsError, match=f"^{re.escape(repr(url))} is not a database URL; write sqlite:///"
    ):
        parse_url(url)


def test_sqlite_has_one_driver():
    """As PostgreSQL has: another one in the URL is passed over."""
    assert parse_url("sqlite+pysqlcipher:///mitl.db") == parse_url("sqlite:///mitl.db")


@pytest.mark.parametrize("seed", ["-1", "2147483648"])
def test_a_seed_that_one_engine_could_not_keep_is_refused_by_all(seed, tmp_path):
    """A project goes on the same wherever its databases are."""
    message = fails(1, "status", "--seed", seed, "--project", tmp_path)

    assert message in ("seed is -1, but 0 is the least", "seed is 2147483648, but 2147483647 is the most")


@pytest.mark.postgres
def test_a_database_that_the_server_lacks_is_one_line(postgres_url, tmp_path):
    """A mistyped name."""
    url = postgres_url.replace("/t_", "/missing_")

    assert "check the name in the URL, or create the database" in fails(
        1, "status", "--db", url, "--project", tmp_path
    )


@pytest.mark.postgres
def test_a_schema_that_the_database_lacks_is_one_line(postgres_url, tmp_path):
    """A mistyped search path."""
    url = make_url(postgres_url).update_query_dict({"options": "-csearch_path=missing"})

    assert "name an existing schema in the search_path of the URL, or create it" in fails(
        1, "db", "upgrade", "--db", url.render_as_string(hide_password=False), "--project", tmp_path
    )


@pytest.mark.postgres
def test_a_user_who_may_make_no_functions_is_told_what_is_lacking(postgres_url, tmp_path):
    """Tables and no triggers: nothing is made."""
    rights = ("GRANT CREATE ON SCHEMA public TO {user}", "REVOKE USAGE ON LANGUAGE plpgsql FROM PUBLIC")
    with guest(postgres_url, *rights) as url:
        message = fails(1, "db", "upgrade", "--db", url, "--project", tmp_path)
    admin = make_engine(postgres_url)
    with admin.connect() as connection:
        assert migrate.table_names(connection) == set()
    admin.dispose()

    assert "let its administrator GRANT USAGE ON LANGUAGE plpgsql to this user" in message


@pytest.mark.postgres
@pytest.mark.parametrize(
    "words", [("status",), ("db", "upgrade"), ("db", "backup", "dump"), ("db", "verify")], ids=" ".join
)
@pytest.mark.thorough(but=("status", "db backup dump"))
def test_a_user_without_rights_is_told_so(words, postgres_url, tmp_path, monkeypatch):
    """PostgreSQL lets this user connect and no more."""
    monkeypatch.chdir(tmp_path)
    old_database("pipeline", "p0003" if "upgrade" in words else migrate.head("pipeline"), postgres_url)
    with guest(postgres_url, "GRANT SELECT ON alembic_version TO {user}") as url:
        before = content(postgres_url)
        message = fails(1, *words, "--db", url, "--project", tmp_path)
        assert content(postgres_url) == before

    assert "permission denied" in message or "must be owner" in message
    assert "give this user write access to it and run the command again" in message


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_read_only_database_is_not_upgraded(what, old):
    """The file, or the folder in which its copy would be kept, cannot be written: nothing is changed."""
    before = content(sqlite_url(old / "mitl.db"))
    (old / "mitl.db").chmod(0o444)
    if what == "folder":
        old.chmod(0o555)

    message = in_a_process("db", "upgrade", "--project", old)

    old.chmod(0o755)
    (old / "mitl.db").chmod(0o644)
    assert "mitl.db is read-only for this user" in message
    assert "run the command again" in message
    assert content(sqlite_url(old / "mitl.db")) == before
    assert not list(old.glob("*.backup"))


def test_a_folder_that_cannot_be_written_gets_no_backup(new, tmp_path):
    """The line names the place, and what to do."""
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf").chmod(0o555)

    message = in_a_process("db", "backup", tmp_path / "shelf" / "dump", "--project", new)

    assert "cannot write the backup" in message and "permission denied" in message
    assert "name another place and run the command again" in message


@pytest.mark.parametrize("name", ["dump", "dump.tar"])
@pytest.mark.thorough(but=("dump",))
def test_a_full_disk_keeps_no_half_of_a_backup(new, tmp_path, name):
    """Nothing of it stays, hidden or not."""
    with sqlite3.connect(new / "mitl.db") as connection:
        connection.execute("UPDATE annotator SET config = ?", [random.randbytes(100_000).hex()])
    connection.close()

    message = in_a_process("db", "backup", tmp_path / name, "--project", new, room=80_000)

    assert "the disk is full; nothing of it was kept: make room and run the command again" in message
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


def test_a_full_disk_undoes_a_restore(new, tmp_path):
    """The new file goes again."""
    ok("db", "backup", tmp_path / "dump", "--project", new)

    message = in_a_process("db", "restore", tmp_path / "dump", "--project", tmp_path / "q", room=100_000)

    assert "make room on its disk and run the command again" in message
    assert not list((tmp_path / "q").glob("mitl.db*"))


def test_a_full_disk_undoes_an_upgrade(old):
    """There is no room for the copy, or for the upgrade itself: the database is as it was, and later it works."""
    before = content(sqlite_url(old / "mitl.db"))
    size = (old / "mitl.db").stat().st_size

    no_copy = in_a_process("db", "upgrade", "--project", old, room=size // 2)
    engine = make_engine(sqlite_url(old / "mitl.db"))
    event.listen(
        engine, "connect", lambda driver, record: driver.execute(f"PRAGMA max_page_count={size // 4096 + 9}")
    )
    with pytest.raises(StoreError) as caught:
        migrate.upgrade("pipeline", engine)
    engine.dispose()

    assert "cannot keep a copy of mitl.db" in no_copy and "it is as it was: make room" in no_copy
    assert "it is as it was before: make room on its disk and run the command again" in str(caught.value)
    assert content(sqlite_url(old / "mitl.db")) == before
    ok("db", "upgrade", "--project", old)
    assert kept(before, content(sqlite_url(old / "mitl.db")))


def test_a_full_database_keeps_what_it_has(new):
    """SQLite itself says that it is full: an import is undone as a whole."""
    before = content(sqlite_url(new / "mitl.db"))
    message = in_a_process("init", new, "--dataset", "scenes", "--n-images", "3", room=4096)

    assert message.count("\n") == 0
    assert content(sqlite_url(new / "mitl.db")) == before


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_an_older_database_says_to_upgrade(words, old):
    """Every command but those that may; nothing is changed behind anybody's back."""
    before = content(sqlite_url(old / "mitl.db"))
    if words == ("db", "upgrade"):
        assert "p0001 → " in ok(*words, "--project", old).out
        return
    if words == ("db", "current"):
        assert "): mitl db upgrade" in ok(*words, "--project", old).out
        return

    assert "run `mitl db upgrade`" in fails(1, *words, "--project", old)

    assert content(sqlite_url(old / "mitl.db")) == before


@pytest.mark.parametrize(
    "words", [*COMMANDS, ("db", "backup", "dump"), ("init", "--dataset", "scenes")], ids=" ".join
)
def test_a_future_schema_is_left_alone(words, new, tmp_path, monkeypatch):
    """It says that a newer mitl wrote it; a backup of it can be taken all the same."""
    monkeypatch.chdir(tmp_path)
    with sqlite3.connect(new / "mitl.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'p9999'")
    connection.close()
    before = content(sqlite_url(new / "mitl.db"))
    if words[1:2] in (("current",), ("backup",)):
        ok(*words, "--project", new)
    else:
        called = (words[0], new, *words[1:]) if words[0] == "init" else (*words, "--project", new)
        assert "it was written by a newer mitl: upgrade mitl" in fails(1, *called)

    assert content(sqlite_url(new / "mitl.db")) == before


def test_an_upgrade_waits_for_a_writer_and_says_so(old, monkeypatch):
    """A command that never ends is no reason for a traceback, nor for the words of the driver."""
    monkeypatch.setattr("mitl.db.engine.BUSY_TIMEOUT_S", 0.5)
    engine = make_engine(sqlite_url(old / "mitl.db"))
    with engine.begin():
        message = fails(1, "db", "upgrade", "--project", old)
    engine.dispose()

    assert "stayed busy" in message and "because another command is writing to it" in message
    assert "locked" not in message


@pytest.mark.postgres
def test_an_upgrade_of_postgresql_waits_for_a_writer_too(postgres_url, tmp_path, monkeypatch):
    """Writers take turns there by a lock of the database."""
    monkeypatch.setattr("mitl.db.engine.BUSY_TIMEOUT_S", 1.0)
    old_database("pipeline", "p0002", postgres_url)
    engine = make_engine(postgres_url)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({advisory_key(WRITING)})")
        message = fails(1, "db", "upgrade", "--db", postgres_url, "--project", tmp_path)
    engine.dispose()

    assert "because another command is writing to it" in message


@pytest.mark.postgres
def test_a_restart_of_postgresql_in_the_middle_is_one_line(postgres_url):
    """It says what happened and what to wait for, without what the driver guesses."""
    line = "due to administrator command; its server was stopped or restarted: wait until it runs"
    with (
        pytest.raises(OutageError, match=f"{line} and run the command again$"),
        open_database(postgres_url, create=True) as session,
    ):
        session.execute(text("SELECT 1"))
        cut_connections(postgres_url)
        session.execute(text("SELECT 1"))


@pytest.mark.parametrize("view", [False, True], ids=["to-write", "read-only"])
def test_what_stands_in_a_strangers_file_looks_at_nothing_but_its_rows(new, view):
    """A view that asks SQLite where the file lies is refused, and cells that do not fit their page are damage."""
    file = new / "mitl.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE VIEW looks AS SELECT file FROM pragma_database_list")
    engine = make_engine(sqlite_url(file), view=View(file, f"file:{file}?mode=ro", None) if view else None)

    with engine.execution_options(mitl_write=False).connect() as connection:
        with pytest.raises(DBAPIError, match="unsafe use of virtual table"):
            connection.execute(text("SELECT file FROM looks"))
        assert connection.scalar(text("PRAGMA cell_size_check")) == 1
    engine.dispose()


def test_the_drivers_guesses_are_left_out():
    """Its first words say what happened."""
    said = (
        'connection failed: connection to server at "127.0.0.1", port 1 failed: Connection refused\n'
        "\tIs the server running on that host and accepting TCP/IP connections?"
    )

    assert reason(DBAPIError(None, None, Exception(said)), make_url("postgresql://me@127.0.0.1:1/x")) == (
        'connection failed: connection to server at "127.0.0.1", port 1 failed: Connection refused'
    )


def test_a_password_of_one_letter_leaves_the_words_that_hold_it():
    """A longer one is hidden wherever it stands."""
    said = "a role named abc of a server at abcd"

    for secret, told in (
        ("a", "*** role named abc of *** server at abcd"),
        ("abc", "a role named *** of a server at ***d"),
    ):
        url = make_url(f"postgresql://me:{secret}@127.0.0.1:1/x")
        assert reason(DBAPIError(None, None, Exception(said)), url) == told
