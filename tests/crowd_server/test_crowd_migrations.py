"""What the crowd server's migrations keep, on both engines."""

from __future__ import annotations

import stat
from itertools import count

import pytest
from sqlalchemy import event, text

from mitl.crowd_server import admin
from mitl.db.engine import make_engine
from mitl.errors import StoreError
from mitl.records import Environment

pytestmark = pytest.mark.migrations


def test_a_database_is_made_ready_once(engine_url):
    """Id, secrets, keys and budgets of a new server stay what they are at the next start."""
    engine = make_engine(engine_url)
    admin.prepare(engine)
    first = (admin.server_id(engine), admin.operator_token(engine), admin.keys(engine))

    admin.prepare(engine)

    assert (admin.server_id(engine), admin.operator_token(engine), admin.keys(engine)) == first
    assert len({key for pair in first[2].values() for key in pair}) == 4
    assert all(access.startswith("AKIA") and len(access) == 20 for access, _ in first[2].values())
    assert admin.balance(engine, Environment.LIVE).available == 0
    engine.dispose()


def test_a_newer_crowd_database_is_refused_in_one_line(tmp_path):
    """A revision that this mitl does not know is not touched."""
    engine = make_engine(f"sqlite:///{tmp_path / 'crowd.db'}")
    admin.prepare(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'c9999'"))

    with pytest.raises(StoreError, match="newer mitl") as caught:
        admin.prepare(engine)

    assert "\n" not in str(caught.value)
    engine.dispose()


def test_a_database_of_others_is_refused(tmp_path):
    """The server adds its tables to no one else's."""
    engine = make_engine(f"sqlite:///{tmp_path / 'other.db'}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE letters (id INTEGER)"))

    with pytest.raises(StoreError, match="did not make"):
        admin.prepare(engine)
    engine.dispose()


def test_a_database_that_another_server_makes_just_now_is_taken(tmp_path):
    """Two that start at once on a new database both serve it, whenever the one finds that the other was first."""
    for moment in (1, 2, 3):
        one, other = (make_engine(f"sqlite:///{tmp_path / f'{moment}.db'}") for _ in range(2))
        looks = count(1)

        @event.listens_for(one, "checkin")
        def make(*_, other=other, looks=looks, moment=moment):
            if next(looks) == moment:
                admin.prepare(other)

        admin.prepare(one)

        assert admin.server_id(one) == admin.server_id(other)
        one.dispose()
        other.dispose()


def test_a_new_crowd_database_is_its_owners_alone(tmp_path):
    """It holds secret keys; what SQLite writes beside it is as private."""
    path = tmp_path / "crowd.db"
    engine = make_engine(f"sqlite:///{path}")

    admin.prepare(engine)

    with engine.begin() as connection:
        connection.execute(text("UPDATE setting SET value = value"))
        files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert files.keys() >= {"crowd.db", "crowd.db-wal"}
    assert set(files.values()) == {0o600}
    engine.dispose()
