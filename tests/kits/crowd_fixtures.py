"""Fixtures of a running crowd server; a test module loads them by ``pytest_plugins = ("crowd_fixtures",)``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crowd_kit import Crowd, engine_of, posted, running_crowd
from crowd_operator_kit import Operator, operator_of
from sqlalchemy import Engine

from mitl.crowd_server import admin
from mitl.db.engine import make_engine


@pytest.fixture(scope="session")
def crowd_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new crowd.db, made once and copied for each test."""
    path = tmp_path_factory.mktemp("crowd") / "crowd.db"
    engine = make_engine(f"sqlite:///{path}")
    admin.prepare(engine)
    engine.dispose()
    return path


@pytest.fixture
def crowd_engine(crowd_template: Path, tmp_path: Path) -> Iterator[Engine]:
    """A new crowd.db of this test's own."""
    with engine_of(crowd_template, tmp_path) as engine:
        yield engine


@pytest.fixture
def crowd(crowd_engine: Engine) -> Iterator[Crowd]:
    """A running crowd server over a new database."""
    with running_crowd(crowd_engine) as server:
        yield server


@pytest.fixture
def client(crowd: Crowd) -> Any:
    """The sandbox requester."""
    return crowd.boto()


@pytest.fixture
def hit_type(crowd: Crowd) -> str:
    """A type with three HITs of one assignment each."""
    return posted(crowd, 3)


@pytest.fixture
def operator(crowd: Crowd) -> Operator:
    """The operator of an empty server."""
    return operator_of(crowd)


@pytest.fixture(scope="module")
def shared_crowd(crowd_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    """A running crowd server for tests that change nothing."""
    with (
        engine_of(crowd_template, tmp_path_factory.mktemp("shared")) as engine,
        running_crowd(engine) as server,
    ):
        yield server


@pytest.fixture
def either_crowd(crowd_url: str) -> Iterator[Crowd]:
    """A running crowd server, once on each database engine."""
    engine = make_engine(crowd_url)
    admin.prepare(engine)
    with running_crowd(engine) as server:
        yield server
    engine.dispose()
