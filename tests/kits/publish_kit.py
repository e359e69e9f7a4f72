"""Copies of one small project with proposals, made once: for tests that publish in it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from world_kit import make_world, run_propose

from mitl.settings import Settings, load

_made: list[Path] = []


def proposed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A project of its own in ``folder``."""
    if not _made:
        made = make_world(tmp_path_factory.mktemp("proposed") / "p")
        run_propose(made)
        _made.append(made.project)
    shutil.copytree(_made[0], folder)
    return load(folder, environ={})
