"""SQLite databases that this user may read and not change: what reads goes on, what writes says so in one line."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from cli_kit import fails, ok
from db_kit import content, guest, new_project, old_database, sqlite_url, unprivileged
from sqlalchemy import text

from mitl.db import migrate
from mitl.db.engine import make_engine, open_engine
from mitl.errors import StoreError


@pytest.fixture
def project(tmp_path) -> Path:
    """A project whose pipeline database is of the newest revision."""
    return new_project(tmp_path / "p")


@contextmanager
def locked(folder: Path, *, file: bool = True, around: bool = True) -> Iterator[None]:
    """Take the right to write away from all files of the project, from its folder, or from both."""
    before = {path: path.stat().st_mode for path in (*folder.iterdir(), folder)}
    for path in before:
        if (file and path != folder) or (around and path == folder):
            path.chmod(before[path] & 0o555)
    try:
        yield
    finally:
        for path, mode in before.items():
            if path.exists():
                path.chmod(mode)


def bound(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """``mitl`` in a process whose user permissions bind, even where the tests run as root."""
    called = [*unprivileged(), sys.executable, "-m", "mitl", *map(str, words)]
    return subprocess.run(called, capture_output=True, text=True, check=False)


def refused(*words: str | Path) -> str:
    """The one line of a command that fails."""
    done = bound(*words)
    assert done.returncode == 1, done
    (line,) = done.stderr.splitlines()
    return line.removeprefix("error: ")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


READING = (
    ("status",),
    ("db", "current"),
    ("db", "verify"),
    ("db", "backup", "dump"),
    ("review",),
    ("workers",),
    ("pay",),
    ("prefer", "scores"),
)


EACH = """
import contextlib, io, json, sys
from mitl.cli import group
from mitl.cli.app import run
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(group, words)
    print(json.dumps([status, out.getvalue(), err.getvalue()]))
"""
"""Commands one after the other in one process, and what each of them said."""


def test_what_reads_needs_no_right_to_write(project, tmp_path, monkeypatch):
    """It says what it says to those who may write, and leaves nothing beside the database."""
    monkeypatch.chdir(tmp_path)
    commands = [[*words, "--project", str(project)] for words in READING]
    before = names(project)
    with locked(project):
        called = [*unprivileged(), sys.executable, "-c", EACH, json.dumps(commands)]
        done = subprocess.run(called, capture_output=True, text=True, check=True)
        assert names(project) == before
    shutil.rmtree(tmp_path / "dump")

    for words, said in zip(commands, done.stdout.splitlines(), strict=True):
        assert json.loads(said) == [0, ok(*words).out, ""], words


@pytest.mark.parametrize(
    ("file", "around", "why"),
    [
        (True, True, "mitl.db is read-only for this user"),
        (True, False, "mitl.db is read-only for this user"),
        (
            False,
            True,
            "the folder of mitl.db, where SQLite writes its journal, is read-only for this user",
        ),
    ],
    ids=["both", "file", "folder"],
)
@pytest.mark.thorough(but=("folder",))
def test_reading_and_writing_whatever_is_locked(file, around, why, project):
    """The file, its folder, or both: reading leaves no journal that the owner could not write."""
    before, beside = content(sqlite_url(project / "mitl.db")), names(project)
    with locked(project, file=file, around=around):
        read = bound("status", "--project", project)
        line = refused("harvest", "--project", project)

    assert read.returncode == 0, read
    assert line == (
        f"{why}, but this command opens it for writing: give this user write access to the file and to its folder, or "
        "work on a copy of the project, and run the command again"
    )
    assert names(project) == beside
    assert content(sqlite_url(project / "mitl.db")) == before


@pytest.mark.thorough
def test_a_report_is_made_without_the_right_to_write(project, tmp_path):
    """Its workers' names are of it alone until the owner's first one keeps their secret; then it is the same."""
    first, out = tmp_path / "first.html", tmp_path / "out.html"
    with locked(project):
        alone = bound("report", "--project", project, "--out", first)
    ok("report", "--project", project, "--out", tmp_path / "owner.html")
    with locked(project):
        done = bound("report", "--project", project, "--out", out)

    assert alone.returncode == 0 and first.exists(), alone
    assert alone.stderr.startswith(
        "warning: the next report will give workers other names, for the secret of this one's could not be kept: "
        "mitl.db is read-only for this user"
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    assert out.read_bytes() == (tmp_path / "owner.html").read_bytes()


@pytest.fixture
def reader(postgres_url, tmp_path) -> Iterator[str]:
    """A project's database on PostgreSQL, by the URL of a user who may read it and no more."""
    old_database("pipeline", migrate.head("pipeline"), postgres_url)
    with guest(postgres_url, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO {user}") as url:
        yield url


@pytest.mark.postgres
def test_a_user_of_postgresql_who_may_only_read(reader, postgres_url, tmp_path, monkeypatch):
    """What reads works; the report warns until its secret is kept; what writes is one line."""
    monkeypatch.chdir(tmp_path)
    here = ("--project", tmp_path, "--db")
    for words in (*READING, ("analyse",)):
        assert ok(*words, *here, reader).err == ""
    alone = ok("report", *here, reader, "--out", tmp_path / "alone.html")
    ok("report", *here, postgres_url, "--out", tmp_path / "owner.html")
    again = ok("report", *here, reader, "--out", tmp_path / "out.html")

    assert "could not be kept: cannot use postgresql" in alone.err and "permission denied" in alone.err
    assert again.err == ""
    assert (tmp_path / "out.html").read_bytes() == (tmp_path / "owner.html").read_bytes()
    assert "permission denied" in fails(1, "review", "settle", "--live", *here, reader)


def test_what_another_process_has_not_yet_put_into_the_file_is_read(project):
    """Its journal is read under its locks, while it goes on writing."""
    writer = make_engine(sqlite_url(project / "mitl.db"))
    with writer.begin() as connection:
        connection.execute(text("UPDATE dataset SET name = 'renamed' WHERE id = 1"))
    with locked(project):
        done = bound("status", "--project", project)
    with writer.begin() as connection:
        connection.execute(text("UPDATE dataset SET name = 'again' WHERE id = 1"))
    writer.dispose()

    assert done.returncode == 0, done
    assert "renamed: " in done.stdout
    assert "again: " in ok("status", "--project", project).out


def test_a_journal_that_nobody_has_open_is_not_passed_over(project, tmp_path):
    """A crash left it, or a copy without the lock file: what is in it would be missing."""
    copy = tmp_path / "copy"
    with closing(sqlite3.connect(project / "mitl.db")) as writer:
        writer.execute("UPDATE dataset SET name = 'renamed' WHERE id = 1")
        writer.commit()
        shutil.copytree(project, copy)
    (copy / "mitl.db-shm").unlink()
    with locked(copy):
        line = refused("status", "--project", copy)

    assert line == (
        "mitl.db-wal holds changes that were never put into mitl.db, which is read-only for this user; let a user with "
        "write access run `mitl db current` once, then run the command again"
    )
    assert "renamed: " in ok("status", "--project", copy).out


def test_what_was_changed_while_it_was_read_is_not_told(project, monkeypatch):
    """Without locks nothing else keeps half of an old state and half of a new one apart."""
    file = project / "mitl.db"
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with (
        pytest.raises(StoreError, match=r"mitl\.db was changed by somebody else while it was read; run the"),
        open_engine(sqlite_url(file), read_only=True) as engine,
        engine.connect() as connection,
    ):
        connection.execute(text("SELECT count(*) FROM item"))
        with closing(sqlite3.connect(file)) as writer:
            writer.execute("UPDATE dataset SET name = 'renamed' WHERE id = 1")
            writer.commit()


def test_a_file_that_may_not_be_read_is_told(project):
    """The remedy is another one."""
    with locked(project):
        (project / "mitl.db").chmod(0)
        line = refused("status", "--project", project)

    assert line == (
        "cannot read mitl.db: permission denied; give this user read access to it and run the command again"
    )
