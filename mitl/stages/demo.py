"""The whole loop on a generated world, from an empty folder to the report."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from mitl.crowd.populations import parse_population
from mitl.progress import Progress, no_progress
from mitl.records import Environment, StageResult, Table
from mitl.settings import Settings
from mitl.settings import load as load_settings
from mitl.stages.evaluating.evaluate import evaluate
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.proposing.propose import QueryChoice, propose
from mitl.stages.publishing.publish import Campaign, publish
from mitl.stages.releasing.build_dataset import build_dataset
from mitl.stages.reporting.report import report
from mitl.stages.reviewing.review import settle
from mitl.stages.setup.init import ensure_config, init, loaded_content
from mitl.stages.setup.loading import Sources, load
from mitl.stages.simulate import simulate

MINIS = ("pvse-mini", "vsrn-mini", "pcme-mini", "vilt-mini", "clip-mini")
SANDBOX = Environment.SANDBOX
N_IMAGES = 300
CAPTIONS_PER_IMAGE = 5
IMAGE_QUERIES, CAPTION_QUERIES = 40, 120
POPULATION = "careful:0.8,random:0.2"
MAX_ROUNDS = 8
"""Asking again ends long before; the bound keeps a population of nothing but random workers finite."""

# As the paper's two stages: image queries with the questions on rationale, caption queries without.
_CAMPAIGNS = (("i2t", "pairs-rationale"), ("t2i", "pairs-plain"))


def demo(
    folder: Path,
    *,
    n_images: int = N_IMAGES,
    population: str = POPULATION,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
    progress: Progress = no_progress,
) -> StageResult:
    """Walk the loop in ``folder``; every step is safe to repeat, so an interrupted demo goes on where it was."""
    parse_population(population)  # a wrong word is better named before the first step than after half of them
    started = time.monotonic()
    steps = _Steps(say or (lambda line: None))
    settings = _init(folder, n_images, seed, steps, progress)
    steps.run(
        "propose",
        partial(
            propose,
            settings,
            annotators=MINIS,
            top_k=settings.top_k,
            depth=settings.depth,
            images=QueryChoice(min(IMAGE_QUERIES, n_images)),
            captions=QueryChoice(min(CAPTION_QUERIES, CAPTIONS_PER_IMAGE * n_images)),
            progress=progress,
        ),
    )
    _work(settings, population, steps, progress)
    release, page = folder / "release", folder / "report.html"
    steps.run("build-dataset", partial(build_dataset, settings, release, SANDBOX, replace_earlier=True))
    steps.run("evaluate", partial(evaluate, settings, release=release, progress=progress))
    written = steps.run("report", partial(report, settings, page, SANDBOX))
    return _result(written, release, page, time.monotonic() - started)


def _init(folder: Path, n_images: int, seed: int, steps: _Steps, progress: Progress) -> Settings:
    expected = loaded_content(load_settings(folder, environ={}))
    sources = Sources("scenes", n_images=n_images)
    loaded = load(sources, folder, seed=seed, expected=expected, progress=progress)
    tables: dict[str, dict[str, object]] = {
        "dataset": {"kind": "scenes"},
        "propose": {"annotators": list(MINIS)},
    }
    ensure_config(folder, "demo", seed, tables)
    # The demo is a world of its own: neither the environment nor another endpoint may lead it elsewhere.
    settings = load_settings(folder, environ={})
    steps.run("init --dataset scenes", partial(init, settings, loaded.data, exclusions=loaded.exclusions))
    return settings


def _work(settings: Settings, population: str, steps: _Steps, progress: Progress) -> None:
    """Post, answer, harvest and review until nothing is left to ask."""
    for _ in range(MAX_ROUNDS):
        results = [
            steps.run(
                f"publish --sandbox --direction {direction} --template {template}",
                partial(
                    publish,
                    settings,
                    Campaign(SANDBOX, direction=direction, template=template),
                    confirm=lambda total: True,
                    progress=progress,
                ),
            )
            for direction, template in _CAMPAIGNS
        ]
        results.append(
            steps.run(
                f"simulate --workers {population}",
                partial(simulate, settings, SANDBOX, population=population, progress=progress),
            )
        )
        results.append(steps.run("harvest", partial(harvest, settings, SANDBOX, progress=progress)))
        results.append(steps.run("review settle", partial(settle, settings, SANDBOX, progress=progress)))
        if all(result.status == "nothing_to_do" for result in results):
            return


class _Steps:
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
        ("precision", share("precision_before"), share("precision_after")),
    )
    # The report holds what every step came to: where it is the same, no step did anything.
    return StageResult(
        status=written.status,
        counts=dict(counts),
        paths={"release": str(release), "report": str(page)},
        tables=(Table("against the known truth of every pair", ("", "before", "after"), rows),),
        lines=(
            f"precision by each page's own controls alone, without the workers' records: "
            f"{share('precision_hit_rule_alone')}",
            f"done in {seconds:.0f} s; the report is {page}"
            if written.status == "done"
            else f"nothing to do: the demo is complete; its report is {page}",
        ),
    )
