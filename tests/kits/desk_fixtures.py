"""Fixtures of a project to review; a test module loads them by ``pytest_plugins = ("desk_fixtures",)``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from desk_kit import OpenDesk, make_reviewed_project, open_desk
from world_kit import copy_of

from mitl.settings import Settings


@pytest.fixture(scope="session")
def reviewed(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A project with a review queue, made once and never changed."""
    return make_reviewed_project(tmp_path_factory.mktemp("desk") / "quiet-study")


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
