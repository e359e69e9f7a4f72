"""The crisscrossed mode on a generated world: likeness within a side, then across, from an empty folder to the report.

The truth of every pair is known there, so that the demo ends with how well people's ratings, taken together, follow it.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from mitl.campaign.kinds.similarity.planning import RatePairs
from mitl.campaign.kinds.similarity.scores import score_ratings, standing
from mitl.campaign.publish import publish
from mitl.campaign.standing import keep_standings
from mitl.crowd.context import open_context
from mitl.datasets.scenes.files import read_world
from mitl.datasets.scenes.similarity import graded_similarity
from mitl.metrics.correlation import pearson
from mitl.progress import Progress, no_progress
from mitl.records import Environment, StageResult, Table
from mitl.records.similarity import TASKS, Likeness
from mitl.settings import WORLD_FOLDER, Settings
from mitl.stages.demo import DemoPaths, LikenessCounts, Mark, Steps, asked_for, make_world, work
from mitl.stages.evaluating.evaluate import evaluate_models
from mitl.stages.evaluating.request import Against, EvaluationRequest
from mitl.stages.proposing.crisscross import CrisscrossOptions, crisscross
from mitl.stages.releasing.release_ratings import release_ratings
from mitl.stages.reporting.report import report

SANDBOX = Environment.SANDBOX
N_IMAGES = 40
"""A small world: every image and caption brings pairs, and each pair is rated five times."""
POPULATION = "careful:0.7,hasty:0.1,one-number:0.1,random:0.1"
MARK = "crisscross-demo.json"
MAX_ROUNDS = 10
"""Asking again ends long before; the bound keeps a population of nothing but random raters finite."""
PHASES: Sequence[Sequence[Likeness]] = ((Likeness.STS, Likeness.SIS), (Likeness.SITS,))
"""What is rated within a side, from which follows what is rated across."""
MODEL, BASELINE = "clip-mini", "bag-of-words"
"""What is scored by the ratings: a model of both sides, and one of captions alone."""
SAMPLES = 1000


def crisscross_demo(
    folder: Path,
    *,
    n_images: int = N_IMAGES,
    population: str = POPULATION,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
    progress: Progress = no_progress,
) -> StageResult:
    """Walk both phases in ``folder``; every step is safe to repeat, so an interrupted demo goes on where it was."""
    started = time.monotonic()
    steps = Steps(say or (lambda line: None))
    release, page = folder / "ratings", folder / "report.html"
    mark = Mark(folder, MARK, release.name, asked_for(n_images, population, seed))
    counts = mark.counts()
    if counts is not None:
        return _result("nothing_to_do", counts, release, page, 0.0)
    settings = make_world(folder, n_images, seed, steps, progress)
    for phase, tasks in enumerate(PHASES, 1):
        options = CrisscrossOptions(phase=phase)
        steps.run(
            f"propose --scheme crisscross --phase {phase}",
            partial(crisscross, settings, options, progress=progress),
        )
        posts = {
            f"rate publish --sandbox --task {task}": partial(
                publish,
                settings,
                RatePairs(SANDBOX, direction=task.value),
                confirm=lambda total: True,
                progress=progress,
            )
            for task in tasks
        }
        work(posts, settings, population, steps, progress, MAX_ROUNDS)
    steps.run("rate scores", partial(score_ratings, settings, SANDBOX))
    released = steps.run(
        f"rate release --out {release.name}",
        partial(release_ratings, settings, release, SANDBOX, replace_earlier=True),
    )
    request = EvaluationRequest(against=Against(cxc=release), annotators=(MODEL,), baselines=(BASELINE,))
    evaluated = steps.run(
        f"evaluate --cxc {release.name} --annotator {MODEL} --baseline {BASELINE}",
        partial(evaluate_models, settings, request, progress),
    )
    written = steps.run("report", partial(report, settings, page, SANDBOX, progress=progress))
    sampled: Any = evaluated.counts["correlations"]
    means = {model: {task: figures["mean"] for task, figures in of.items()} for model, of in sampled.items()}
    counts = dict(LikenessCounts(tasks=against_truth(settings), correlations=means))
    keep_standings(settings)  # which the command does at its end: after the mark it would change the database
    mark.write(counts)
    # Release and report hold what every step came to: where they are the same, no step did anything.
    done = {released.status, written.status} != {"nothing_to_do"}
    seconds = time.monotonic() - started
    return _result("done" if done else "nothing_to_do", counts, release, page, seconds)


def against_truth(settings: Settings) -> dict[str, dict[str, Any]]:
    """By task how well the scores of a generated world's pairs follow their known likeness.

    Intervals are 95 % percentiles of ``SAMPLES`` bootstrap samples of pairs.
    """
    world = read_world(settings.project / WORLD_FOLDER)
    with open_context(settings, SANDBOX, read_only=True) as context:
        standings = standing(context)
    tasks = {}
    for task in TASKS:
        ratings, orders = standings.of(task)
        pairs = orders[orders["n_ratings"] > 0].drop_duplicates("pair")
        if len(pairs) < 3:
            continue
        truth = graded_similarity(world, task, *map(list, zip(*standings.named(task, pairs), strict=True)))
        scores = pairs["score"].to_numpy()
        of_pair = dict(zip(pairs["pair"].tolist(), truth.tolist(), strict=True))
        alone = np.array([of_pair[pair] for pair in ratings["pair"].tolist()])
        rng = np.random.default_rng(0)
        samples = rng.integers(len(pairs), size=(SAMPLES, len(pairs)))
        tasks[task.value] = {
            "pairs": len(pairs),
            "ratings": len(ratings),
            "spearman": _estimate(scores, truth, samples, partial(rankdata, axis=-1)),
            "pearson": _estimate(scores, truth, samples),
            "off": float(np.abs(scores - truth).mean()),
            "one": pearson(rankdata(ratings["score"].to_numpy()), rankdata(alone)),
        }
    return tasks


def _estimate(
    scores: np.ndarray,
    truth: np.ndarray,
    samples: np.ndarray,
    of: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> dict[str, float]:
    """The correlation of what ``of`` makes of both, with the ends of its interval."""
    # All samples are ranked at once: one by one they take four times as long.
    drawn = list(map(pearson, of(scores[samples]), of(truth[samples])))
    low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
    return {"value": pearson(of(scores), of(truth)), "low": low, "high": high}


def _result(status: str, counts: dict[str, Any], release: Path, page: Path, seconds: float) -> StageResult:
    def estimate(of: dict[str, float]) -> str:
        return f"{of['value']:.3f} ({of['low']:.3f}–{of['high']:.3f})"

    rows = tuple(
        (
            task.upper(),
            of["pairs"],
            of["ratings"],
            f"{of['one']:.3f}",
            estimate(of["spearman"]),
            estimate(of["pearson"]),
            f"{of['off']:.2f}",
        )
        for task, of in counts["tasks"].items()
    )
    models = tuple(
        (model, *(f"{of[task]:.3f}" if task in of else "–" for task in TASKS))
        for model, of in counts["correlations"].items()
    )
    columns = ("task", "pairs", "ratings", "one rating", "scores: Spearman", "Pearson", "points apart")
    paths: DemoPaths = {"release": str(release), "report": str(page)}
    return StageResult(
        status=status,
        counts=counts,
        paths=paths,
        tables=(
            Table("people's ratings against the known likeness, with 95 % intervals", columns, rows),
            Table(
                "models against people's scores: Spearman as CxC samples it",
                ("model", *map(str.upper, TASKS)),
                models,
            ),
        ),
        lines=(
            f"scores in CxC's layout: {release}",
            f"done in {seconds:.0f} s; the report is {page}"
            if status == "done"
            else f"nothing to do: the demo is complete; its report is {page}",
        ),
        next=f"mitl rate scores --project {shlex.quote(str(release.parent))} --method model  (another way to a score); "
        f"mitl analyse similarity --project {shlex.quote(str(release.parent))}",
    )
