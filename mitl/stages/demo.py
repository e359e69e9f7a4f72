"""The whole loop on a generated world, from an empty folder to the report."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from mitl.progress import Progress, no_progress
from mitl.records import Environment, StageResult, Table
from mitl.settings import Settings
from mitl.settings import load as load_settings
from mitl.stages.build_dataset import build_dataset
from mitl.stages.evaluate import evaluate
from mitl.stages.harvest import harvest
from mitl.stages.init import ensure_config, init
from mitl.stages.loading import Sources, load
from mitl.stages.propose import QueryChoice, propose
from mitl.stages.publish import Campaign, publish
from mitl.stages.report import report
from mitl.stages.review import settle
from mitl.stages.simulate import simulate

MINIS = ("pvse-mini", "vsrn-mini", "pcme-mini", "vilt-mini", "clip-mini")
N_IMAGES = 300
IMAGE_QUERIES, CAPTION_QUERIES = 50, 100
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
    started = time.monotonic()
    steps = _Steps(say or (lambda line: None))
    settings = steps.run("init", lambda: _init(folder, n_images, seed, progress))[1]
    queries = (min(IMAGE_QUERIES, n_images), min(CAPTION_QUERIES, 5 * n_images))
    steps.run(
        "propose",
        lambda: (
            propose(
                settings,
                annotators=MINIS,
                top_k=settings.top_k,
                depth=settings.depth,
                images=QueryChoice(queries[0]),
                captions=QueryChoice(queries[1]),
                progress=progress,
            ),
            settings,
        ),
    )
    _work(settings, population, steps, progress)
    release = folder / "release"
    steps.run("build-dataset", lambda: (build_dataset(settings, release, Environment.SANDBOX), settings))
    steps.run("evaluate", lambda: (evaluate(settings, release=release, progress=progress), settings))
    page = folder / "report.html"
    written = steps.run("report", lambda: (report(settings, page, Environment.SANDBOX), settings))[0]
    return _result(written, release, page, time.monotonic() - started)


def _init(folder: Path, n_images: int, seed: int, progress: Progress) -> tuple[StageResult, Settings]:
    loaded = load(Sources("scenes", n_images=n_images), folder, seed=seed, progress=progress)
    ensure_config(
        folder, "demo", seed, {"dataset": {"kind": "scenes"}, "propose": {"annotators": list(MINIS)}}
    )
    settings = replace(load_settings(folder, environ={}), endpoint=None)
    return init(settings, loaded.data, exclusions=loaded.exclusions), settings


def _work(settings: Settings, population: str, steps: _Steps, progress: Progress) -> None:
    """Post, answer, harvest and review until nothing is left to ask."""
    for _ in range(MAX_ROUNDS):
        posted = 0
        for direction, template in _CAMPAIGNS:
            campaign = Campaign(Environment.SANDBOX, direction=direction, template=template)
            result, _ = steps.run(
                f"publish --sandbox --direction {direction} --template {template}",
                lambda campaign=campaign: (
                    publish(settings, campaign, confirm=lambda total: True, progress=progress),
                    settings,
                ),
            )
            posted += int(str(result.counts.get("hits_posted", 0)))
        answered, _ = steps.run(
            f"simulate --workers {population}",
            lambda: (
                simulate(settings, Environment.SANDBOX, population=population, progress=progress),
                settings,
            ),
        )
        steps.run("harvest", lambda: (harvest(settings, Environment.SANDBOX, progress=progress), settings))
        settled, _ = steps.run(
            "review settle", lambda: (settle(settings, Environment.SANDBOX, progress=progress), settings)
        )
        idle = all(r.status == "nothing_to_do" for r in (answered, settled))
        if not posted and idle:
            return


class _Steps:
    """Tells each step's command, what it did and how long it took."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def run(
        self, command: str, work: Callable[[], tuple[StageResult, Settings]]
    ) -> tuple[StageResult, Settings]:
        """Do one step."""
        started = time.monotonic()
        result, settings = work()
        self._say(f"$ mitl {command}   ({time.monotonic() - started:.1f} s)")
        for line in result.lines:
            self._say(f"    {line}")
        return result, settings


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
    return StageResult(
        counts=dict(counts),
        paths={"release": str(release), "report": str(page)},
        tables=(Table("against the known truth of every pair", ("", "before", "after"), rows),),
        lines=(
            f"precision by each page's own controls alone, without the workers' records: "
            f"{share('precision_hit_rule_alone')}",
            f"done in {seconds:.0f} s; the report is {page}",
        ),
    )
