"""Fixtures of a project to review; a test module loads them by ``pytest_plugins = ("desk_fixtures",)``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk_kit import OpenDesk, make_reviewed_project, open_desk
from sqlalchemy import make_url
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


@pytest.fixture
def restored(reviewed_dump: Path, engine_url: str, tmp_path: Path) -> Settings:
    """A project whose database was restored from that, on either engine."""
    settings = load(tmp_path / "p", db=engine_url, environ={})
    file = make_url(engine_url).database
    if engine_url.startswith("sqlite") and file is not None:
        settings.project.mkdir()
        shutil.copyfile(reviewed_dump / "whole.db", file)
    else:
        restore(settings, reviewed_dump / "dump", only="pipeline")
    return settings


@pytest.fixture
def restored_on_postgres(reviewed_dump: Path, postgres_url: str, tmp_path: Path) -> Settings:
    """The same on PostgreSQL."""
    settings = load(tmp_path / "p", db=postgres_url, environ={})
    restore(settings, reviewed_dump / "dump", only="pipeline")
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
