"""Transactions of the crowd server: one view for a page, writers in turn, commits that a power cut leaves alone."""

from __future__ import annotations

import datetime as dt
import threading
import time

import pytest
from sqlalchemy import text

from mitl.crowd_server import admin
from mitl.crowd_server.store import accounts
from mitl.crowd_server.store.database import Books, Database
from mitl.db import engine as engines
from mitl.db.engine import make_engine
from mitl.records import Environment

SANDBOX, LIVE = Environment.SANDBOX, Environment.LIVE


@pytest.fixture
def engine(crowd_url):
    """A new crowd database, once on each engine."""
    found = make_engine(crowd_url, durable=True)
    admin.prepare(found)
    yield found
    found.dispose()


def names(connection):
    """The names of all settings."""
    return set(accounts.settings(connection))


def test_a_page_reads_one_moment(engine):
    """What another writes between two reads of a block is seen only after the block."""
    database = Database(engine)
    with database.one_view():
        with database.read() as connection:
            before = names(connection)
        # Another thread, which has no view of its own.
        other = threading.Thread(target=lambda: _add(Database(engine), "between"))
        other.start()
        other.join()
        with database.read() as connection:
            within = names(connection)
    with database.read() as connection:
        after = names(connection)

    assert within == before
    assert after == before | {"between"}


def test_a_page_sees_what_it_wrote(engine):
    """A write ends the view, so that the next read is of the new state; nothing stays open afterwards."""
    database = Database(engine)
    with database.one_view():
        with database.read() as connection:
            assert "own" not in names(connection)
        _add(database, "own")
        with database.read() as connection:
            assert "own" in names(connection)

    assert engine.pool.checkedout() == 0


def test_an_error_within_a_view_does_not_spoil_the_next_read(engine):
    """PostgreSQL refuses everything after an error in a transaction; the page reads on in a new one."""
    database = Database(engine)
    with database.one_view():
        with pytest.raises(Exception, match="nowhere"), database.read() as connection:
            connection.execute(text("SELECT 1 FROM nowhere"))
        with database.read() as connection:
            assert "server_id" in names(connection)


def test_writers_take_turns(engine):
    """Eight threads add to one sum by reading and writing; no addition is lost."""
    database = Database(engine)

    def add():
        for _ in range(5):
            with database.write(LIVE) as connection:
                accounts.add_budget(Books(connection, LIVE, _now()), 1)

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert admin.balance(engine, LIVE).budget == 40


def test_a_commit_of_the_server_waits_for_the_disk(engine):
    """SQLite syncs at each commit, as PostgreSQL does by default."""
    question = "PRAGMA synchronous" if engine.dialect.name == "sqlite" else "SHOW synchronous_commit"
    with engine.connect() as connection:
        assert connection.execute(text(question)).scalar() in (2, "on")


@pytest.mark.postgres
def test_a_write_has_reached_the_disk_when_its_block_is_over(postgres_crowd_url):
    """Its commit leaves the lock before that, so that the next writer need not wait for the disk as well."""
    engine = make_engine(postgres_crowd_url)
    admin.prepare(engine)
    database = Database(engine)
    with database.write(LIVE) as connection:
        accounts.add_budget(Books(connection, LIVE, _now()), 1)
        assert connection.scalar(text("SHOW synchronous_commit")) == "off"
        written = connection.scalar(text("SELECT pg_current_wal_insert_lsn()"))

    with engine.connect() as connection:
        flushed = text("SELECT pg_current_wal_flush_lsn() > CAST(:written AS pg_lsn)")
        assert connection.scalar(flushed, {"written": written})
        assert connection.scalar(text("SHOW synchronous_commit")) == "on"
    engine.dispose()


@pytest.mark.postgres
def test_pages_find_their_statements_prepared(postgres_crowd_url):
    """What was asked often enough stays planned from page to page, and none of it is lost by reading or writing."""
    engine = make_engine(postgres_crowd_url)
    admin.prepare(engine)
    database = Database(engine)
    kept = text("SELECT count(*) FROM pg_prepared_statements")
    for _ in range(10):
        with database.one_view(), database.read() as connection:
            names(connection)
        with database.write(LIVE), database.read() as connection:
            before = connection.scalar(kept)
    with database.read() as connection:
        after = connection.scalar(kept)

    assert after >= before > 0
    engine.dispose()


@pytest.mark.postgres
def test_a_connection_that_died_while_idle_is_replaced(postgres_crowd_url, monkeypatch):
    """A server that was restarted at night is not a failure of the first page in the morning."""
    monkeypatch.setattr(engines, "FRESH_S", 0.0)
    engine = make_engine(postgres_crowd_url)
    with engine.connect() as connection, engine.connect() as other:
        own = connection.execute(text("SELECT pg_backend_pid()")).scalar()
        assert other.execute(text("SELECT 1")).scalar() == 1
    killer = make_engine(postgres_crowd_url)
    with killer.connect() as connection:
        connection.execute(text("SELECT pg_terminate_backend(:own)"), {"own": own})
    killer.dispose()
    time.sleep(0.05)

    with engine.connect() as connection, engine.connect() as other:
        assert connection.execute(text("SELECT 1")).scalar() == 1
        assert other.execute(text("SELECT 1")).scalar() == 1
    engine.dispose()


def test_what_a_statement_was_given_is_in_no_error(engine):
    """An error of the database names no value: it may be a key, an answer or somebody's id."""
    with pytest.raises(Exception) as caught, engine.connect() as connection:
        connection.execute(text("SELECT 1 FROM nowhere WHERE x = :x"), {"x": "private-value"})

    assert "private-value" not in str(caught.value)


def _add(database, name):
    with database.write(SANDBOX) as connection:
        accounts.add_setting(connection, name, "x")


def _now():
    return dt.datetime.now(dt.UTC)
