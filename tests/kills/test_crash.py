"""A process that dies at any moment loses nothing and doubles nothing: running the command again completes it.

Each stage is killed at its first and last event and at some between (``MITL_KILL_POINTS=1000`` takes every one), on
a copy of a small project, and run again. What the databases then say must be what they say after a run that nobody
killed, and the server's own books must agree. Here the crowd server runs in the process that dies, and files count
too; ``test_kill_points.py`` kills each command that makes calls at every call and every commit.
"""

from __future__ import annotations

import os
import shutil
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import process_work as work
import pytest
from books import (
    assert_answers_are_kept_once,
    assert_hits_are_neither_lost_nor_doubled,
    pipeline_state,
    server_rows,
)
from process_kit import KILLED, Child, Outcome, fork_server, project_settings

from mitl.positives.loading import read_release
from mitl.settings import Settings

pytestmark = pytest.mark.slow

Stage = Callable[..., Any]
POINTS = int(os.environ.get("MITL_KILL_POINTS", "3"))


def kill_points(events: int) -> list[int]:
    """The first and the last event of a stage and some between, evenly spread."""
    steps = POINTS - 1
    if events <= steps + 1:
        return list(range(1, events + 1))
    return sorted({1 + round(step * (events - 1) / steps) for step in range(steps + 1)})


@dataclass
class Projects:
    """A project as it stood after each stage, to be copied."""

    context: Any
    folder: Path

    def run(self, stage: Stage, folder: Path, *args: Any, kill_at: int | None = None) -> Outcome:
        """A stage in a process of its own."""
        return Child(self.context, stage, folder, *args, kill_at=kill_at).outcome()

    def copy(self, name: str, target: Path) -> Path:
        """The project as it stood after the stage ``name``; an empty place where there is none of that name."""
        if (self.folder / name).exists():
            shutil.copytree(self.folder / name, target)
        return target

    def kills(
        self, stage: Stage, base: str, tmp_path: Path, *args: Any
    ) -> Iterator[tuple[Settings, Settings, Outcome]]:
        """Kill the stage at each point and run it again: that project, one never killed, the second run."""
        whole = self.copy(base, tmp_path / "whole")
        complete = self.run(stage, whole, *args)
        assert complete.error is None and complete.events
        for point in kill_points(complete.events):
            folder = self.copy(base, tmp_path / f"killed-{point}")
            killed = self.run(stage, folder, *args, kill_at=point)
            assert killed.exit_status == KILLED, (
                f"event {point} of {complete.events} did not happen: {killed}"
            )
            again = self.run(stage, folder, *args)
            assert again.error is None, f"killed at event {point} of {complete.events}, then:\n{again.error}"
            yield project_settings(folder), project_settings(whole), again
            shutil.rmtree(folder)


@pytest.fixture(scope="module")
def projects(tmp_path_factory) -> Iterator[Projects]:
    """One small project, kept after each stage of the loop; half its answers wait for a person."""
    folder = tmp_path_factory.mktemp("projects")
    steps = (
        (work.init, "initialised"),
        (work.propose, "proposed"),
        (work.publish, "published"),
        (work.work, "answered"),
        (work.harvest, "harvested"),
    )
    with fork_server() as context:
        made = Projects(context, folder)
        current = folder / "current"
        for stage, name in steps:
            given = ("random", 2) if stage is work.work else ()
            Child(context, stage, current, *given).value()
            shutil.copytree(current, folder / name)
        yield made


def test_init(projects, tmp_path):
    """A killed init leaves no half-made settings, pictures or tables; the second one completes the project."""
    for settings, whole, _ in projects.kills(work.init, "nowhere", tmp_path):
        about = tomllib.loads((settings.project / "mitl.toml").read_text())["project"]
        pictures = sorted((whole.project / "dataset" / "images").iterdir())

        assert about["id"].startswith("test-") and settings.project_id == about["id"]
        assert pipeline_state(settings) == pipeline_state(whole)
        for picture in pictures:
            assert (
                settings.project / "dataset" / "images" / picture.name
            ).read_bytes() == picture.read_bytes()


def test_propose(projects, tmp_path):
    """A killed propose leaves whole rankings or none; the second run's files are the same bytes."""
    for settings, whole, _ in projects.kills(work.propose, "initialised", tmp_path):
        files = sorted(path.relative_to(whole.project) for path in whole.runs.rglob("*.parquet"))

        assert len(files) == 4
        for file in files:
            assert (settings.project / file).read_bytes() == (whole.project / file).read_bytes()
        assert pipeline_state(settings) == pipeline_state(whole)


def test_publish(projects, tmp_path):
    """A killed publish neither loses nor doubles a HIT, and asks each pair once."""
    for settings, whole, _ in projects.kills(work.publish, "proposed", tmp_path):
        assert_hits_are_neither_lost_nor_doubled(settings)
        assert pipeline_state(settings) == pipeline_state(whole)
        assert server_rows(settings, "SELECT count(*) FROM hit_type") == [(1,)]
        assert server_rows(
            settings, "SELECT held_cents FROM account WHERE environment = 'sandbox'"
        ) == server_rows(whole, "SELECT held_cents FROM account WHERE environment = 'sandbox'")


def test_harvest(projects, tmp_path):
    """A killed harvest keeps each answer once and pays each submission once."""
    for settings, whole, _ in projects.kills(work.harvest, "answered", tmp_path):
        assert pipeline_state(settings) == pipeline_state(whole)
        assert_answers_are_kept_once(settings)


@pytest.mark.thorough
def test_settle(projects, tmp_path):
    """A killed settle is completed by the next, though no submission waits any more when it starts."""
    for settings, whole, _ in projects.kills(work.settle, "harvested", tmp_path):
        assert pipeline_state(settings) == pipeline_state(whole)
        assert_answers_are_kept_once(settings)


@pytest.mark.thorough
def test_build_dataset(projects, tmp_path):
    """A killed build leaves no half release; the second one's is whole and holds the same positives."""
    for settings, whole, _ in projects.kills(work.build, "harvested", tmp_path):
        found = read_release(settings.project / "release")

        assert found.by_query == read_release(whole.project / "release").by_query
        assert projects.run(work.build, settings.project).value.status == "nothing_to_do"


@pytest.mark.thorough
def test_report(projects, tmp_path):
    """A killed report leaves no half page."""
    for settings, _, again in projects.kills(work.report, "harvested", tmp_path):
        page = (settings.project / "report.html").read_bytes()

        assert page.endswith(b"</html>\n") or page.rstrip().endswith(b"</html>")
        assert again.value.counts["bytes"] == len(page)
