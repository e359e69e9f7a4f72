"""The whole loop on a generated world, from an empty folder to the report; and what every demo is made of.

That is the steps that they tell, the world that they start from, and the mark of a complete one.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypedDict

from annotators.catalog import world_annotators
from mitl.campaign.kinds.pairs.planning import Campaign
from mitl.campaign.publish import publish
from mitl.campaign.standing import keep_standings
from mitl.core.formats import percent
from mitl.core.whole_files import refuse_within, whole_file
from mitl.crowd.populations import parse_population
from mitl.progress import Progress, no_progress
from mitl.records import Environment, StageResult, Table
from mitl.records.forms import IMAGES
from mitl.records.results import printed_by
from mitl.settings import CONFIG_FILE, Settings
from mitl.settings import load as load_settings
from mitl.stages.evaluating.evaluate import evaluate
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate
from mitl.stages.proposing.propose import ProposeRequest, QueryChoice, propose
from mitl.stages.releasing.build_dataset import build_dataset
from mitl.stages.reporting.report import ReportCounts, report
from mitl.stages.reviewing.review import settle
from mitl.stages.setup.init import ensure_config, init, loaded_content, small_sizes
from mitl.stages.setup.loading import DatasetSources, load

SANDBOX = Environment.SANDBOX
N_IMAGES = 300
CAPTIONS_PER_IMAGE = 5
IMAGE_QUERIES, CAPTION_QUERIES = 40, 120
POPULATION = "careful:0.8,random:0.2"
MARK = "demo.json"
MAX_ROUNDS = 8
"""Asking again ends long before; the bound keeps a population of nothing but random workers finite."""

# As the paper's two stages: image queries with the questions on rationale, caption queries without.
_CAMPAIGNS = (("i2t", "pairs-rationale"), ("t2i", "pairs-plain"))
_ONE_WORDING = tuple((direction, None) for direction, _ in _CAMPAIGNS)
"""That of the data set's form."""


def demo(
    folder: Path,
    *,
    n_images: int = N_IMAGES,
    kind: str = "images",
    population: str = POPULATION,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
    progress: Progress = no_progress,
) -> StageResult:
    """Walk the loop in ``folder``; every step is safe to repeat, so an interrupted demo goes on where it was."""
    started = time.monotonic()
    steps = Steps(say or (lambda line: None))
    release, page = folder / "release", folder / "report.html"
    asked = asked_for(n_images, population, seed) | ({} if kind == "images" else {"kind": kind})
    mark = Mark(folder, MARK, release.name, asked)
    counts = mark.counts()
    if counts is not None:
        return _result(StageResult("nothing_to_do", counts), release, page, 0.0)
    settings = make_world(folder, n_images, seed, steps, progress, kind)
    sizes = {} if kind == "images" else small_sizes(n_images)
    steps.run(
        "propose",
        partial(
            propose,
            settings,
            ProposeRequest(
                annotators=settings.annotators,
                top_k=sizes.get("top_k", settings.top_k),
                depth=sizes.get("depth", settings.depth),
                images=QueryChoice(min(IMAGE_QUERIES, n_images)),
                captions=QueryChoice(min(CAPTION_QUERIES, CAPTIONS_PER_IMAGE * n_images)),
            ),
            progress=progress,
        ),
    )
    posts = {
        f"publish --sandbox --direction {direction}{f' --template {template}' if template else ''}": partial(
            publish,
            settings,
            Campaign(SANDBOX, direction=direction, template=template or IMAGES.wording),
            confirm=lambda total: True,
            progress=progress,
        )
        for direction, template in (_CAMPAIGNS if kind == "images" else _ONE_WORDING)
    }
    work(posts, settings, population, steps, progress, MAX_ROUNDS)
    steps.run("build-dataset", partial(build_dataset, settings, release, SANDBOX, replace_earlier=True))
    steps.run("evaluate", partial(evaluate, settings, release=release, progress=progress))
    written = steps.run("report", partial(report, settings, page, SANDBOX, progress=progress))
    keep_standings(settings)  # which the command does at its end: after the mark it would change the database
    mark.write(written.counts)
    return _result(written, release, page, time.monotonic() - started)


class LikenessCounts(TypedDict, total=False):
    """How well ratings follow the known truth."""

    tasks: Annotated[
        dict[str, dict[str, Any]],
        "`--crisscross`: sts, sis, sits → pairs; ratings that count; spearman, pearson (value, low, high) of scores "
        "with the known likeness of the pairs; off, their mean distance in points; one, Spearman's correlation of "
        "single ratings",
    ]
    correlations: Annotated[
        dict[str, dict[str, float]],
        "`--crisscross`: model → task → Spearman's correlation with people's scores, as CxC samples it",
    ]


@printed_by("demo")
class DemoCounts(ReportCounts, LikenessCounts):
    """What the last step of a demo counts: `mitl report`, or with ``--crisscross`` the comparison with the truth."""


def _result(written: StageResult, release: Path, page: Path, seconds: float) -> StageResult:
    counts = written.counts

    def share(name: str) -> str:
        value = counts.get(name)
        return "–" if not isinstance(value, float) else f"{value:.3f}"

    rows: tuple[tuple[object, ...], ...] = (
        ("pairs asked", "", counts["pairs"]),
        ("judgements", "", counts["judgements"]),
        ("positives found", "", counts["positives"]),
        ("recall of the true positives", share("recall_before"), share("recall_after")),
        ("recall among the pairs asked", "", share("recall_of_asked")),
        ("precision", share("precision_before"), share("precision_after")),
    )
    before, after, asked = (counts.get(f"recall_{key}") for key in ("before", "after", "of_asked"))
    gain = (
        f"the release holds ×{after / before:.1f} the true matches of the original annotation; workers found "
        f"{percent(asked, 0)} of those that they were asked about"
        if isinstance(before, float) and isinstance(after, float) and isinstance(asked, float) and before
        else "too little was answered to compare the release with the original annotation"
    )
    paths: DemoPaths = {"release": str(release), "report": str(page)}
    # The report holds what every step came to: where it is the same, no step did anything.
    return StageResult(
        status=written.status,
        counts=dict(counts),
        paths=paths,
        tables=(Table("against the known truth of every pair", ("", "before", "after"), rows),),
        lines=(
            gain,
            f"precision by each page's own controls alone, without the workers' records: "
            f"{share('precision_hit_rule_alone')}",
            f"done in {seconds:.0f} s; the report is {page}"
            if written.status == "done"
            else f"nothing to do: the demo is complete; its report is {page}",
        ),
    )


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
    """The demo's project, made where it is not there yet; ReleaseError where it would lie in a release."""
    refuse_within(folder / CONFIG_FILE)
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
    commands: dict[str, Callable[[], StageResult]] = {
        **posts,
        f"simulate --workers {population}": partial(
            simulate, settings, SANDBOX, population=population, progress=progress
        ),
        "harvest": partial(harvest, settings, SANDBOX, progress=progress),
        "review settle": partial(settle, settings, SANDBOX, progress=progress),
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
        # Before its own unfinished file is among them.
        mark = {"asked": self.asked, "files": self._files(), "counts": counts}
        with whole_file(self._path) as sink:
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
