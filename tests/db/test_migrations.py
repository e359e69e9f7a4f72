"""Migrations build what the models describe, on both engines; the pipeline's, and what both lines share."""

from __future__ import annotations

import stat

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text

from mitl.crowd_server.store.models import CrowdBase
from mitl.db import migrate
from mitl.db.engine import make_engine
from mitl.db.models import Base
from mitl.db.session import open_database
from mitl.errors import SettingsError, StoreError

pytestmark = pytest.mark.migrations


@pytest.mark.parametrize(("line", "models"), [("pipeline", Base), ("crowd", CrowdBase)])
def test_upgrade_head_equals_the_models(line, models, engine_url):
    """After `upgrade head`, autogenerate finds nothing to add."""
    engine = make_engine(engine_url)

    migrate.upgrade(line, engine)

    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, models.metadata) == []
    engine.dispose()


@pytest.mark.parametrize("line", ["pipeline", "crowd"])
def test_downgrade_to_base_leaves_no_table(line, engine_url):
    """Every upgrade step has its way back."""
    engine = make_engine(engine_url)
    migrate.upgrade(line, engine)

    with migrate.changing(engine) as connection:
        command.downgrade(migrate.config(line, connection), "base")
        migrate.require_whole(connection, "the test's database")

    assert set(inspect(engine).get_table_names()) <= {"alembic_version"}
    engine.dispose()


def test_a_database_of_a_newer_version_is_refused_in_one_line(engine_url):
    """A revision that this mitl does not know names what to do."""
    engine = make_engine(engine_url)
    migrate.upgrade("pipeline", engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'p9999'"))

    with pytest.raises(StoreError, match="written by a newer mitl") as caught:
        migrate.require_current("pipeline", engine, "mitl.db")

    assert "\n" not in str(caught.value)
    engine.dispose()


def test_an_empty_database_says_to_run_init(engine_url):
    """Nothing was ever loaded here."""
    engine = make_engine(engine_url)

    with pytest.raises(StoreError, match="run `mitl init` first"):
        migrate.require_current("pipeline", engine, "mitl.db")
    engine.dispose()


def test_a_new_database_is_its_owners_alone(tmp_path):
    """It holds the salts of pseudonyms, workers' ids and which pairs are controls; an older file keeps its mode."""
    with open_database(f"sqlite:///{tmp_path / 'mitl.db'}", create=True) as session:
        session.execute(text("UPDATE dataset SET name = name"))
        files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    (tmp_path / "mitl.db").chmod(0o640)
    with open_database(f"sqlite:///{tmp_path / 'mitl.db'}"):
        kept = stat.S_IMODE((tmp_path / "mitl.db").stat().st_mode)

    assert files.keys() >= {"mitl.db", "mitl.db-wal"}
    assert set(files.values()) == {0o600}
    assert kept == 0o640


def test_a_database_that_cannot_be_made_is_one_line(tmp_path):
    """The path, and what is wrong with it."""
    with (
        pytest.raises(StoreError, match=r"^cannot make the database .*xx\.db': File name too long$"),
        open_database(f"sqlite:///{tmp_path / ('x' * 300)}.db", create=True),
    ):
        pass


@pytest.mark.parametrize("url", ["mysql://x/y", "not a url"])
def test_other_databases_are_refused(url):
    """Only SQLite and PostgreSQL are supported, and the message says so."""
    with pytest.raises(SettingsError, match="sqlite"):
        make_engine(url)
