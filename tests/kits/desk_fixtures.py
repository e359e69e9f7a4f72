"""Fixtures of a project to review; a test module loads them by ``pytest_plugins = ("desk_fixtures",)``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from db_kit import postgres_database
from desk_kit import OpenDesk, make_reviewed_project, open_desk
from world_kit import copy_of

from mitl.settings import Settings, load
from mitl.stages.operating.backup import backup
from mitl.stages.operating.restore import restore


@pytest.fixture(scope="session")
def reviewed(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A project with a review queue, made once and never changed."""
    return make_reviewed_project(tmp_path_factory.mktemp("desk") / "quiet-study")


@pytest.fixture
def project(reviewed: Settings, tmp_path: Path) -> Settings:
    """A copy of its own."""
    return copy_of(reviewed, tmp_path / "p")


@pytest.fixture(scope="session")
def reviewed_dump(reviewed: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a backup of its database, ``dump``, and a SQLite file that was restored from it, ``whole.db``."""
    folder = tmp_path_factory.mktemp("reviewed")
    backup(reviewed, folder / "dump", only="pipeline")
    whole = load(folder / "p", db=f"sqlite:///{folder / 'whole.db'}", environ={})
    restore(whole, folder / "dump", only="pipeline")
    return folder


@pytest.fixture(scope="session")
def reviewed_on_postgres(
    reviewed_dump: Path, postgres_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL of a database of PostgreSQL that was restored from it and that nobody opens."""
    with postgres_database(postgres_server) as url:
        settings = load(tmp_path_factory.mktemp("restored") / "p", db=url, environ={})
        restore(settings, reviewed_dump / "dump", only="pipeline")
        yield url


@pytest.fixture
def restored_on_postgres(
    postgres_server: str, reviewed_on_postgres: str, tmp_path: Path
) -> Iterator[Settings]:
    """A project whose database is a copy of that one."""
    with postgres_database(postgres_server, like=reviewed_on_postgres) as url:
        yield load(tmp_path / "p", db=url, environ={})


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def restored(request: pytest.FixtureRequest, reviewed_dump: Path, tmp_path: Path) -> Settings:
    """A project whose database was restored from the backup, once on each engine."""
    if request.param == "postgresql":
        on_postgres: Settings = request.getfixturevalue("restored_on_postgres")
        return on_postgres
    settings = load(tmp_path / "p", db=f"sqlite:///{tmp_path / 'test.db'}", environ={})
    settings.project.mkdir()
    shutil.copyfile(reviewed_dump / "whole.db", tmp_path / "test.db")
    return settings


@pytest.fixture
def opened(reviewed: Settings, tmp_path: Path) -> Iterator[OpenDesk]:
    """A desk over a copy of it."""
    with open_desk(copy_of(reviewed, tmp_path / "p")) as desk:
        yield desk


@pytest.fixture(scope="module")
def still(reviewed: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenDesk]:
    """A desk for tests that change nothing."""
    with open_desk(copy_of(reviewed, tmp_path_factory.mktemp("desk") / "quiet-study")) as desk:
        yield desk
