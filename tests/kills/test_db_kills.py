"""Upgrades, backups and restores killed at each step: the same words again complete them, and nothing stays."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import pytest
from db_kit import old_database, sqlite_url, steps
from kill_table import EVERYTHING

from mitl.db import migrate
from mitl.settings import load
from mitl.stages.operating.backup import backup
from mitl.stages.operating.databases import upgrade
from mitl.stages.operating.restore import restore

POINTS = 6
"""Of each command, spread over its steps, unless every one is asked for; commits always are points."""


def project(folder):
    """The settings of a project."""
    return load(folder, environ={})


def make(folder, pipeline, crowd):
    """Both databases at these revisions, with rows in every table."""
    folder.mkdir()
    old_database("pipeline", pipeline, sqlite_url(folder / "mitl.db"))
    old_database("crowd", crowd, sqlite_url(folder / "crowd.db"))


def points(names):
    """The points at which a trial is killed."""
    every = 1 if EVERYTHING else -(-len(names) // POINTS)
    return [name for place, name in enumerate(names) if "commit" in name or place % every == 0]


def state(folder):
    """Every row of both databases, the sheets' too, and every other file."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".db":
            with closing(sqlite3.connect(path)) as database:
                # Migrations name a table's constraints in no fixed order.
                found[path.name] = [row for row in database.iterdump() if not row.startswith("CREATE TABLE")]
        elif path.is_file() and not path.name.endswith(("-wal", "-shm")):
            is_database = path.suffix == ".backup"
            found[path.relative_to(folder)] = path.stat().st_size if is_database else path.read_bytes()
    return found


def assert_completed(tmp_path, start, work):
    """Killed wherever, the work is completed by doing it again; the state is the one of a run that nobody disturbed."""
    whole = tmp_path / "whole"
    shutil.copytree(start, whole)
    names = steps(whole, lambda: work(whole))
    assert names is not None and any(name.startswith("after commit") for name in names)
    wanted = state(whole)

    for point in points(names):
        trial = tmp_path / "trial"
        shutil.copytree(start, trial)
        assert steps(trial, lambda: work(trial), kill_at=point) is None, point  # noqa: B023 - done at once
        work(trial)
        assert state(trial) == wanted, point
        shutil.rmtree(trial)
    assert work(whole).status == "nothing_to_do"
    assert state(whole) == wanted


def test_a_killed_upgrade_is_completed_by_the_next(tmp_path):
    """Its copies, both databases, and the sheets of answers, which are part of the same transaction."""
    make(tmp_path / "old", "p0004", "c0001")

    assert_completed(tmp_path, tmp_path / "old", lambda folder: upgrade(project(folder)))


def test_an_upgrade_writes_the_sheets_that_are_missing(tmp_path):
    """Also in a database that is at its newest revision, as a killed upgrade of an earlier mitl left it."""
    make(tmp_path / "p", "p0004", "c0001")
    upgrade(project(tmp_path / "p"))
    wanted = state(tmp_path / "p")
    with closing(sqlite3.connect(tmp_path / "p" / "mitl.db")) as database, database:
        database.execute("DELETE FROM answer_sheet")

    done = upgrade(project(tmp_path / "p"))

    assert (done.status, done.counts["upgraded"]) == ("done", 0)
    assert state(tmp_path / "p") == wanted
    assert any("answer_sheet" in line and "INSERT" in line for line in wanted["mitl.db"])


@pytest.mark.parametrize("name", ["dump", "dump.tar"])
@pytest.mark.thorough
def test_a_killed_backup_is_completed_by_the_next(tmp_path, name):
    """Nothing that is half made has the name, and nothing of it stays."""
    make(tmp_path / "new", migrate.head("pipeline"), migrate.head("crowd"))

    assert_completed(tmp_path, tmp_path / "new", lambda folder: backup(project(folder), folder / name))


@pytest.mark.thorough
def test_a_killed_restore_is_completed_by_the_next(tmp_path):
    """Also between the commits of the two databases: one that holds the dump already is not in the way."""
    make(tmp_path / "old", "p0004", "c0001")
    backup(project(tmp_path / "old"), tmp_path / "dump")
    (tmp_path / "new").mkdir()

    assert_completed(tmp_path, tmp_path / "new", lambda folder: restore(project(folder), tmp_path / "dump"))
