"""Copies of one small project with proposals, made once: for tests that publish in it."""

from __future__ import annotations

from pathlib import Path

from world_kit import copied_once, make_world, run_propose

from mitl.settings import Settings


def proposed(folder: Path) -> Settings:
    """A project of its own in ``folder``."""
    return copied_once("proposed", lambda new: run_propose(make_world(new)), folder)
