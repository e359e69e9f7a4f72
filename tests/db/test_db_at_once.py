"""Both databases on one engine, and everything at once: server, people, harvests, publishing, status, backups."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import process_work as work
import pytest
from books import assert_books_agree, pipeline_state
from db_kit import postgres_database
from process_kit import fork_server, project_settings, side_by_side

from mitl.settings import Settings
from mitl.stages.operating.backup import backup, verify, verify_dump
from mitl.stages.operating.restore import restore
from mitl.stages.reporting import status as reporting

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def context() -> Iterator[Any]:
    """Where child processes come from."""
    with fork_server() as made:
        yield made


@dataclass
class Project:
    """A project both of whose databases are on one engine."""

    context: Any
    folder: Path
    urls: dict[str, str]

    @property
    def settings(self) -> Settings:
        """As the stages see them."""
        return project_settings(self.folder, **self.urls)

    def at_once(self, *works: Any) -> list[Any]:
        """What these works return, started together; none may raise."""
        steps = [step if isinstance(step, tuple) else (step,) for step in works]
        outcomes = side_by_side(self.context, self.folder, *steps, **self.urls)
        assert [outcome.error for outcome in outcomes if outcome.error is not None] == []
        return [outcome.value for outcome in outcomes]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def project(request, context, tmp_path) -> Iterator[Project]:
    """A project with candidate pairs for some HITs, once on each engine."""
    if request.param == "sqlite":
        urls = {"db_url": f"sqlite:///{tmp_path}/p/mitl.db", "crowd_url": f"sqlite:///{tmp_path}/p/crowd.db"}
        yield _proposed(context, tmp_path / "p", urls)
        return
    with postgres_database(request.getfixturevalue("postgres_server")) as crowd:
        urls = {"db_url": request.getfixturevalue("postgres_url"), "crowd_url": crowd}
        yield _proposed(context, tmp_path / "p", urls)


def _proposed(context: Any, folder: Path, urls: dict[str, str]) -> Project:
    made = Project(context, folder, urls)
    made.at_once(work.init)
    made.at_once((work.propose, 8, 8))
    return made


def look(settings: Settings, times: int = 5) -> list[int]:
    """Look at the status again and again; the submissions that were seen."""
    return [int(str(reporting.status(settings).counts["submissions"])) for _ in range(times)]


def back_up(settings: Settings, name: str) -> str:
    """Back both databases up."""
    return backup(settings, settings.project / name).status


def check(settings: Settings, times: int = 2) -> list[str | None]:
    """Verify both databases while they are written to."""
    return [verify(settings).refusal for _ in range(times)]


@pytest.mark.thorough(but=("postgresql",))
def test_everything_at_once(project):
    """Nobody waits in vain, nothing is lost or doubled, and every look and every backup is of one sound moment."""
    project.at_once((work.publish, "i2t"))

    answered, *_, seen, checked, first, second = project.at_once(
        (work.work, "careful:0.5,random:0.5", 3),
        (work.poll, 3),
        work.harvest,
        (work.publish, "t2i"),
        look,
        check,
        (back_up, "dump"),
        (back_up, "two.tar"),
    )
    project.at_once(work.harvest)

    assert answered.counts["submitted"] == len(pipeline_state(project.settings)["submissions"])
    assert seen == sorted(seen)
    assert first == second == "done"
    assert checked == [None, None]
    assert_books_agree(project.settings)
    assert verify(project.settings).refusal is None
    assert verify_dump(project.folder / "dump").refusal is None
    assert verify_dump(project.folder / "two.tar").refusal is None


@pytest.mark.thorough(but=("sqlite",))
def test_the_server_in_a_process_of_its_own_beside_commands(project, start_program):
    """`mitl serve` answers people and commands while others harvest and publish on the same databases."""
    words = ["serve", "--port", "0", "--json", "--project", str(project.folder)]
    urls = {"MITL_DB": project.urls["db_url"], "MITL_CROWD_DB": project.urls["crowd_url"]}
    process = start_program(
        [sys.executable, "-u", "-m", "mitl", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **urls},
    )
    process.stdout.readline()
    project.at_once((work.publish, "i2t"))
    project.at_once((work.work, "careful", 3), (work.poll, 2), (work.publish, "t2i"), work.harvest)
    project.at_once(work.harvest)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)

    assert err == "stopped; start it again with `mitl serve`\n"
    assert_books_agree(project.settings)


@pytest.mark.postgres
@pytest.mark.thorough
def test_a_loop_gives_the_same_on_both_engines(context, tmp_path, postgres_url):
    """Pairs, pages, decisions, judgements, money and their order, whatever the engine; and from a backup of either."""
    states = []
    for name, db_url in (("one", f"sqlite:///{tmp_path}/one/mitl.db"), ("two", postgres_url)):
        made = Project(context, tmp_path / name, {"db_url": db_url})
        for step in (work.init, (work.propose, 8, 8), work.publish):
            made.at_once(step)
        states.append(state(made.settings))
        back_up(made.settings, "dump")
    other = project_settings(tmp_path / "three", db_url=f"sqlite:///{tmp_path}/three/mitl.db")

    restore(other, tmp_path / "two" / "dump", only="pipeline")

    assert states[0] == states[1] == state(other)


def state(settings: Settings) -> dict[str, Any]:
    """What the pipeline's database says but the requests' tokens, which come from the project's own id."""
    found = pipeline_state(settings)
    return found | {"hits": [(key, state, page) for key, state, _, page in found["hits"]]}
