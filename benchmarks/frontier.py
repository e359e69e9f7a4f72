"""What `mitl plan` expects after a pilot, beside what further answers really bring: on scenes, or on COCO replayed.

    python benchmarks/frontier.py scenes --out DIR [--images 300] [--pilot 60] [--fuse] [--plot FILE.svg]
    python benchmarks/frontier.py coco --data DIR --out DIR [--pilot 80] [--fuse] [--plot FILE.svg]

On scenes the truth of every pair is known. On COCO the five caption pivots of `coco_walk.py` propose, and scripted
workers answer by the pairs that ECCV Caption released; a pair that is not among those is unknown, and not for that
reason wrong, so all shares are of *released* matches. DIR of --data is that of `coco_walk.py`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from coco_walk import CAPTIONERS, _add_annotators
from shared_kit import coco_files, parser_of

from mitl.analysis.report.loop_plots import Curve, frontier_svg
from mitl.audits.frontier import TOLERATED, Frontier
from mitl.crowd.context import open_context
from mitl.db.session import reading
from mitl.positives.loading import official_positives
from mitl.records import Direction, Pair
from mitl.settings import load
from mitl.stages.analysing.snapshot import ProjectSnapshot, read_project
from mitl.stages.planning.options import (
    PlannedWays,
    PlanWish,
    candidates,
    make_plan,
    not_reachable,
)
from mitl.stages.planning.showing import about, needs

TITLES = {
    "scenes": "scenes: recall of the candidates' matches, planned from a pilot and true",
    "coco": "COCO: of ECCV Caption's released matches among the candidates; what is not released is unknown, not wrong",
}


def main() -> None:
    """Make the project as a user would, plan, and compare."""
    parser = parser_of(__doc__)
    parser.add_argument("world", choices=list(TITLES))
    parser.add_argument("--out", type=Path, required=True, help="project folder to make, or one made before")
    parser.add_argument("--data", type=Path, help="for coco")
    parser.add_argument("--images", type=int, default=300, help="of scenes")
    parser.add_argument("--pilot", type=int, default=60, help="HITs")
    parser.add_argument("--fuse", action="store_true", help="fuse the annotators first")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    if given.world == "coco" and given.data is None:
        parser.error("coco needs --data DIR")
    project = given.out.absolute()
    project.mkdir(parents=True, exist_ok=True)
    if not (project / "mitl.db").exists():
        _make(given, project)
    if given.fuse:
        _step(project, "fuse")
    planned, frontier = _compare(project, given.world)
    answers = np.linspace(0, planned.frontier.open, 41)
    curves = [
        *planned.curves,
        *(
            Curve(
                f"true {curve.key}",
                f"{curve.name}: true",
                tuple(answers.tolist()),
                tuple(one.value for one in frontier.recall(answers, wrong)),
            )
            for curve, wrong in zip(planned.curves, (0.0, planned.wish.max_error), strict=False)
        ),
    ]
    if given.plot is not None:
        svg = frontier_svg(curves, title=TITLES[given.world], name=f"frontier-{given.world}")
        given.plot.write_text(f'<?xml version="1.0" encoding="UTF-8"?>\n{svg}\n', encoding="utf-8")


def _step(project: Path, *words: str) -> None:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "mitl", *words, "-q"], check=True, cwd=project)
    print(f"# {time.perf_counter() - started:7.1f} s  mitl {' '.join(words)}", flush=True)


def _make(given: argparse.Namespace, project: Path) -> None:
    if given.world == "scenes":
        _step(project, "init", "--dataset", "scenes", "--n-images", str(given.images))
        _step(project, "propose")
        truth = []
    else:
        captions, cxc, machine = coco_files(given.data)
        _step(project, "init", "--dataset", "coco", "--captions", str(captions), "--cxc", str(cxc))
        models = ("tfidf", "lsa", "tfidf", "lsa", "tfidf")
        names = [f"pivot-{c}-{t}" for c, t in zip(CAPTIONERS, models, strict=True)]
        _add_annotators(project / "mitl.toml", names, machine)
        _step(project, "propose", "--image-query-ids", "eccv", "--caption-query-ids", "eccv")
        truth = ["--truth", "official"]
    _step(project, "publish", "--sandbox", "--pilot", str(given.pilot))
    _step(project, "simulate", *truth)
    _step(project, "harvest")
    _step(project, "review", "settle")


def _compare(project: Path, world: str) -> tuple[PlannedWays, Frontier]:
    """The plan, and the frontier of the same scores by the truth of every open pair."""
    with open_context(load(project), read_only=True) as context, reading(context.session):
        snapshot = read_project(context.session, context.settings)
        found = candidates(snapshot)
        planned = make_plan(context, snapshot, found, PlanWish())
    true = _truth(snapshot, found.pairs, world)
    open_pairs = np.delete(np.arange(len(found.pairs)), found.answered)
    order = open_pairs[np.argsort(-planned.sampled.pilot.probabilities[open_pairs], kind="stable")]
    known = true[order].astype(np.float64)
    frontier = Frontier(
        np.ones(len(order)),
        np.stack([known, known]),
        planned.frontier.auc,
        len(found.answered),
        planned.frontier.known,
    )
    for line in (*about(planned), *not_reachable(planned)):
        print(line)
    print(
        "| lost | wrong | people, planned (95 %) | people, true | by AUC alone |\n| --- | --- | --- | --- | --- |"
    )
    for need in needs(planned)[: len(TOLERATED)]:
        truly = frontier.people(need["lost"], need["wrong"]).value / frontier.open
        low, high = (need["answers"][end] / frontier.open for end in ("low", "high"))
        print(
            f"| {need['lost']:.0%} | {need['wrong']:.0%} | {need['share']:.0%} ({low:.0%}–{high:.0%}) | {truly:.0%} | "
            f"{need['share_by_auc']:.0%} |"
        )
    for option in planned.options:
        print(f"# {option.name}: {option.answers.value:,.0f} answers, recall {option.recall.value:.3f}")
    return planned, frontier


def _truth(snapshot: ProjectSnapshot, pairs: np.ndarray, world: str) -> np.ndarray:
    from mitl.core.arrays import unpack_pairs

    named = [
        (snapshot.image_ids[pair.image_id], snapshot.caption_ids[pair.caption_id])
        for pair in unpack_pairs(pairs)
    ]
    if world == "coco":
        released = official_positives("eccv")
        positive = {pair for direction in Direction for pair in released.pairs(direction)}
        return np.array([pair in positive for pair in named])
    truths: list[Pair] = unpack_pairs(pairs)
    labels = [snapshot.truth(pair) for pair in truths]
    return np.array([label is not None and label.is_positive for label in labels])


if __name__ == "__main__":
    main()
