"""The whole loop on a generated world, from an empty folder to the report."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from mitl.campaign.kinds.pairs.planning import Campaign
from mitl.campaign.publish import publish
from mitl.progress import Progress, no_progress
from mitl.records import Environment, StageResult, Table
from mitl.records.forms import IMAGES
from mitl.records.results import printed_by
from mitl.stages.crisscross_demo import LikenessCounts
from mitl.stages.demo_steps import DemoPaths, Mark, Steps, asked_for, make_world, work
from mitl.stages.evaluating.evaluate import evaluate
from mitl.stages.proposing.propose import ProposeRequest, QueryChoice, propose
from mitl.stages.releasing.build_dataset import build_dataset
from mitl.stages.reporting.report import ReportCounts, report
from mitl.stages.setup.init import small_sizes

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
    written = steps.run("report", partial(report, settings, page, SANDBOX))
    mark.write(written.counts)
    return _result(written, release, page, time.monotonic() - started)


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
        f"{asked:.0%} of those that they were asked about"
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
