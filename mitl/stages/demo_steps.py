"""What the demos share: the steps that they tell, the world that they start from, and the mark of a complete one."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, TypedDict

from annotators.catalog import world_annotators
from mitl.core.whole_files import whole_file
from mitl.crowd.populations import parse_population
from mitl.progress import Progress
from mitl.records import Environment, StageResult
from mitl.records.results import printed_by
from mitl.settings import Settings
from mitl.settings import load as load_settings
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate
from mitl.stages.reviewing.review import settle
from mitl.stages.setup.init import ensure_config, init, loaded_content
from mitl.stages.setup.loading import DatasetSources, load


@printed_by("demo", key="paths")
class DemoPaths(TypedDict):
    """What a demo wrote."""

    release: Annotated[str, "the release's folder"]
    report: Annotated[str, "the HTML file"]


def asked_for(n_images: int, population: str, seed: int) -> dict[str, object]:
    """What decides a demo's outcome; UsageError where the population is none.

    A wrong word is better named before the first step than after half of them.
    """
    parse_population(population)
    return {"version": version("mitl"), "n_images": n_images, "population": population, "seed": seed}


class Steps:
    """Tells each step's command, what it did and how long it took; steps with nothing to do are passed over."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def run(self, command: str, work: Callable[[], StageResult]) -> StageResult:
        """Do one step."""
        started = time.monotonic()
        result = work()
        if result.status != "nothing_to_do":
            self._say(f"$ mitl {command}   ({time.monotonic() - started:.1f} s)")
            for line in result.lines:
                self._say(f"    {line}")
        return result


def make_world(
    folder: Path, n_images: int, seed: int, steps: Steps, progress: Progress, kind: str = "images"
) -> Settings:
    """The demo's project, made where it is not there yet."""
    expected = loaded_content(load_settings(folder, environ={}))
    sources = DatasetSources("scenes", n_images=n_images, world=kind)
    loaded = load(sources, folder, seed=seed, expected=expected, progress=progress)
    tables: dict[str, dict[str, object]] = {
        "dataset": {"kind": "scenes"},
        "propose": {"annotators": list(world_annotators(loaded.data.sides))},
    }
    ensure_config(folder, "demo", seed, tables)
    # The demo is a world of its own: neither the environment nor another endpoint may lead it elsewhere.
    settings = load_settings(folder, environ={})
    also = "" if kind == "images" else f" --kind {kind}"
    steps.run(f"init --dataset scenes{also}", partial(init, settings, loaded))
    return settings


def work(
    posts: Mapping[str, Callable[[], StageResult]],
    settings: Settings,
    population: str,
    steps: Steps,
    progress: Progress,
    most: int,
) -> None:
    """Post, answer, harvest and review until nothing is left to ask, so often at the most.

    Args:
        posts: command → what posts.
    """
    sandbox = Environment.SANDBOX
    commands: dict[str, Callable[[], StageResult]] = {
        **posts,
        f"simulate --workers {population}": partial(
            simulate, settings, sandbox, population=population, progress=progress
        ),
        "harvest": partial(harvest, settings, sandbox, progress=progress),
        "review settle": partial(settle, settings, sandbox, progress=progress),
    }
    for _ in range(most):
        results = [steps.run(command, step) for command, step in commands.items()]
        if all(result.status == "nothing_to_do" for result in results):
            return


@dataclass(frozen=True, slots=True)
class Mark:
    """The file of a complete demo: what was asked for, what it came to, and the hashes of what it left."""

    folder: Path
    name: str
    """Of the file, in ``runs``."""
    release: str
    """The folder that the demo released."""
    asked: Mapping[str, object]

    def counts(self) -> dict[str, object] | None:
        """What a complete demo came to, where nothing has changed since; None where the steps must look for themselves.

        Each of them would find that nothing is to do, but only after loading networks and drawing the report.
        """
        try:
            mark = json.loads(self._path.read_bytes())
            counts: dict[str, object] = mark["counts"]
            unchanged = mark["asked"] == self.asked and mark["files"] == self._files()
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return counts if unchanged else None

    def write(self, counts: Mapping[str, object]) -> None:
        """Note that all steps are done."""
        with whole_file(self._path) as sink:
            mark = {"asked": self.asked, "files": self._files(), "counts": counts}
            sink.write(json.dumps(mark, indent=1).encode())

    @property
    def _path(self) -> Path:
        return self.folder / "runs" / self.name

    def _files(self) -> dict[str, str | None]:
        """Hashes of what a walk leaves: settings, both databases with what is not yet in them, release, report.

        Of pictures and rankings, which are many, that they are there.
        """
        databases = [f"{name}.db{end}" for name in ("mitl", "crowd") for end in ("", "-wal")]
        names = ["mitl.toml", *databases, "report.html", *self._below(self.release)]
        many = {
            name: "there"
            for place in ("dataset", "runs")
            for name in self._below(place)
            if name != f"runs/{self.name}"
        }
        return many | {
            name: hashlib.sha256(file.read_bytes()).hexdigest()
            if (file := self.folder / name).is_file()
            else None
            for name in names
        }

    def _below(self, place: str) -> list[str]:
        files = (path for path in (self.folder / place).rglob("*") if path.is_file())
        return sorted(path.relative_to(self.folder).as_posix() for path in files)
