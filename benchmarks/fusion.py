"""How well fusion tells matches from the rest: each annotator, and groups of features one after the other.

A project's proposed pairs are answered by scripted workers of one answer each, a share of them drawn at random; what
the others would say is told from the truth, or of MS-COCO from the public positives of ECCV Caption, of which a pair
that nobody judged counts as no match (so a false negative of theirs counts against a right probability).

    mitl init world --dataset scenes --n-images 800 --seed 1
    (cd world; mitl propose --image-queries 120 --caption-queries 400)
    python benchmarks/fusion.py world --workers careful --share 0.5
    python benchmarks/fusion.py coco --eccv --share 0.3
    python benchmarks/fusion.py worlds --images 3000 --seed 2 --share 0.06 --steps 6 7      (a world made as arrays)
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import rounds_world
from shared_kit import parser_of

from mitl.audits.frontier import TOLERATED, share_left
from mitl.core.arrays import Ints, contains, distinct, pack_ids, places, unpack_ids
from mitl.crowd.context import Context, open_context
from mitl.crowd.populations import CHARACTERS, parse_population
from mitl.datasets.scenes.files import read_world
from mitl.datasets.scenes.world import truth_matrix
from mitl.db.store import columns
from mitl.fusion.evidence import ANSWERED, FusionEvidence
from mitl.fusion.fusing import GROUPS, fuse
from mitl.fusion.models import area
from mitl.judgements.calibration import calibration
from mitl.records import Environment
from mitl.records.frames import frame
from mitl.settings import WORLD_FOLDER, load
from mitl.stages.fusing.gathering import evidence
from mitl.stages.proposing.ranking import read_items


def main() -> None:
    """Print a line for each annotator and each step."""
    parser = parser_of(__doc__)
    parser.add_argument("project", type=Path, help="or with --images the folder of worlds")
    parser.add_argument("--images", type=int, help="of a world that is no project; made where it is missing")
    parser.add_argument(
        "--workers", default="careful", help="a preset or a population, as mitl simulate takes it"
    )
    parser.add_argument("--share", type=float, default=0.5, help="of the proposed pairs that are answered")
    parser.add_argument("--eccv", action="store_true", help="the truth is that of ECCV Caption")
    parser.add_argument("--steps", type=int, nargs="*", default=list(range(1, len(GROUPS) + 1)))
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if not asked.images and not (asked.project / "mitl.db").exists():
        parser.error(
            f"{asked.project} is no project; make one with `mitl init`, or a world of arrays with --images N"
        )
    if asked.images:
        world = rounds_world.arrays(asked.images, asked.seed, asked.project)
        found, codes = rounds_world.evidence(world), world.places(world.baseline) + 1
        pairs = found.pairs
    else:
        with open_context(load(asked.project, environ={}), Environment.SANDBOX, read_only=True) as context:
            pairs = distinct(columns.proposal_columns(context.session)["pair"].to_numpy())
            codes = eccv_codes(context, pairs) if asked.eccv else scenes_codes(context, pairs)
            found = evidence(context, frame(ANSWERED, dict.fromkeys(ANSWERED, ())))
    rng = np.random.default_rng(asked.seed)
    yes = said(codes, asked.workers, rng)
    chosen = rng.random(len(pairs)) < asked.share
    answers = {"pair": pairs[chosen], "yes": yes[chosen], "no": ~yes[chosen]}
    found = replace(found, answers=frame(ANSWERED, answers))
    truth = codes <= 2
    print(
        f"{len(pairs):,} proposed pairs, {truth.mean():.0%} match; {chosen.sum():,} answered, {asked.workers} workers"
    )
    at = places(found.pairs, pairs)
    rest, both = ~chosen, np.stack([found.images[at], found.groups[at]])  # as `mitl fuse` takes them
    for name, scores in annotators(found):
        print(f"{name:40s} {area(scores[at][rest], truth[rest], both[:, rest]).value:.3f}")
    for count in asked.steps:
        began = time.process_time()
        made = fuse(found, seed=asked.seed, groups=tuple(GROUPS[:count]))
        probability = made.fused["probability"].to_numpy()[at]
        held = area(probability[rest], truth[rest], both[:, rest])
        seen = area(probability[chosen], yes[chosen], both[:, chosen])
        left = ", ".join(f"{share_left(held.value, *one, float(truth.mean())):.2f}" for one in TOLERATED)
        stated = calibration(probability[rest], truth[rest])
        print(
            f"{'+ ' * (count > 1) + GROUPS[count - 1]:14s} not answered, against the truth {held.value:.3f} "
            f"({held.low:.3f} to {held.high:.3f}), log loss {stated.log_loss:.3f}, calibration error "
            f"{stated.error:.3f}; answered, against answers {seen.value:.3f}; still asked {left}; "
            f"{dict(made.models)}; {time.process_time() - began:.0f} s of one core",
            flush=True,
        )


def annotators(found: FusionEvidence) -> Iterator[tuple[str, np.ndarray]]:
    """Each one's similarity; pairs that it does not rank come last."""
    for name in found.ranked["annotator"].cat.categories:
        rows = found.ranked[found.ranked["annotator"] == name]
        scores = np.full(len(found.pairs), rows["similarity"].min() - 1)
        scores[places(found.pairs, rows["pair"].to_numpy())] = rows["similarity"]
        yield str(name), scores


def said(codes: np.ndarray, workers: str, rng: np.random.Generator) -> np.ndarray:
    """Whether one worker each, drawn from a population, calls the pairs a match."""
    population = parse_population(workers)
    table = np.array([CHARACTERS[name].confusion for name, _ in population.shares])
    who = rng.choice(len(table), size=len(codes), p=[share for _, share in population.shares])
    label = (table[who, codes - 1].cumsum(axis=1) < rng.random(len(codes))[:, None]).sum(axis=1)
    return label < 2


def scenes_codes(context: Context, pairs: Ints) -> np.ndarray:
    """The truth of a generated world, 1 to 4."""
    world = read_world(context.settings.project / WORLD_FOLDER)
    _, items = read_items(context.session, context.settings)
    matrix = truth_matrix(
        world, [one.external_id for one in items.images], [one.external_id for one in items.captions]
    )
    images, captions = unpack_ids(pairs)
    rows = np.searchsorted([one.id for one in items.images], images)
    return matrix[rows, np.searchsorted([one.id for one in items.captions], captions)]


def eccv_codes(context: Context, pairs: Ints) -> np.ndarray:
    """1 where ECCV Caption's released positives hold the pair in any direction, else 4."""
    from eccv_caption import Metrics

    _, items = read_items(context.session, context.settings)
    images, captions = (
        {int(one.external_id): one.id for one in side} for side in (items.images, items.captions)
    )
    metrics = Metrics()
    left = [(image, caption) for image, own in metrics.eccv_gts["i2t"].items() for caption in own]
    right = [(image, caption) for caption, own in metrics.eccv_gts["t2i"].items() for image in own]
    rows = [
        (images[int(image)], captions[int(caption)])
        for image, caption in left + right
        if int(image) in images and int(caption) in captions
    ]
    known = np.array(rows, np.int64)
    return np.where(contains(distinct(pack_ids(known[:, 0], known[:, 1])), pairs), 1, 4)


if __name__ == "__main__":
    main()
