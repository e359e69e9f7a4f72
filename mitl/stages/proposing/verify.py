"""Verifying an annotator: its recall on COCO's test split beside what was published for its weights."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from annotators import registry
from annotators.base import Annotator, RankingSource
from annotators.published import KS, PUBLISHED, Published, default_row
from mitl.datasets.official import coco_test_ids
from mitl.db.session import open_database
from mitl.db.store import items as item_store
from mitl.errors import DatasetError, UsageError
from mitl.metrics.means import score
from mitl.metrics.positives import Positives
from mitl.progress import Progress, no_progress
from mitl.proposals.candidates import NamedRanking
from mitl.records import AnnotatorKind, Direction, StageResult, Verdict
from mitl.settings import Settings
from mitl.stages.proposing.ranking import Computing, Items, Means, build_annotators, open_engine, rank_all
from mitl.stages.proposing.recall_figures import Comparison, Recalls

COCO = "coco"
FOLDS = 5
"""The 1K figures are the mean over this many consecutive parts of the test split."""


def verify(
    settings: Settings, name: str, *, published: str | None = None, progress: Progress = no_progress
) -> Verdict:
    """Rank all of the test split both ways and hold the recall against the published figures.

    Rankings and encodings are kept, so that a second call, or one after a kill, computes only what is missing.
    Data other than COCO's gives recall on its own originals and nothing to compare with.

    Args:
        published: the row of ``PUBLISHED`` to compare with; None for that of the annotator's weights.

    Raises:
        DatasetError: COCO's test split is not whole, or the package with its ids is missing.
        UsageError: no such row, or a row for data that are not COCO's.
        AnnotatorError: the annotator cannot be built or does not fit the data.
    """
    if published is not None and published not in PUBLISHED:
        raise UsageError(f"nothing is published as {published!r}; known: {', '.join(PUBLISHED)}")
    kind, items = _loaded(settings)
    if kind != COCO and published is not None:
        raise UsageError(
            f"published figures are of COCO's test split, but this project holds {kind!r}; leave --published out"
        )
    parts = _test_split(items) if kind == COCO else []
    (annotator,) = build_annotators(settings, [name])
    row = _row(settings, annotator, published) if parts else None
    if parts:
        items = _only(items, {image for part in parts for image in part})
    with open_engine(settings, Computing.of(settings), [name]) as engine:
        run = _Run(annotator, Means.of(settings, engine), settings.runs / "verify" / _key(items), progress)
        measured, computed = _measure(run, items, parts, row)
    return _verdict(Comparison.of(name, measured, row), items, computed, is_coco=bool(parts))


def _loaded(settings: Settings) -> tuple[str, Items]:
    with open_database(settings.db_url, read_only=True) as session:
        dataset = item_store.dataset(session)
        images = item_store.images(session, dataset.id, settings.project)
        return dataset.kind, Items(dataset.id_kind, images, item_store.captions(session, dataset.id))


def _test_split(items: Items) -> list[list[int]]:
    """The images of the five parts of COCO's test split, in the official order, by the project's own ids."""
    wanted = coco_test_ids()
    image_of = {caption.external_id: caption.image_id for caption in items.captions}
    missing = [caption for caption in wanted if caption not in image_of]
    if missing:
        raise DatasetError(
            f"the project lacks {len(missing):,} of the {len(wanted):,} captions of COCO's test split, first "
            f"{missing[0]}; make one with `mitl init --dataset coco --captions captions_val2014.json "
            "--split-file dataset_coco.json`"
        )
    images = list(dict.fromkeys(image_of[caption] for caption in wanted))
    length = len(images) // FOLDS
    return [images[start : start + length] for start in range(0, len(images), length)]


def _only(items: Items, images: set[int]) -> Items:
    """These images and their captions; those of the test split where it is part of a larger set."""
    wanted = set(coco_test_ids())
    return Items(
        items.id_kind,
        [image for image in items.images if image.id in images],
        [c for c in items.captions if c.image_id in images and c.external_id in wanted],
    )


def _row(settings: Settings, annotator: Annotator | RankingSource, asked: str | None) -> Published | None:
    """What was published for an annotator, by what its weights are, else by its name."""
    name = annotator.name
    config = settings.annotator_config.get(name, {})
    if asked is not None:
        return PUBLISHED[asked]
    network = registry.network_of(name, config)
    if network is None or ("weights" not in config and name in PUBLISHED):
        return PUBLISHED.get(name)
    found = config.get("weights")
    files = [
        settings.project / Path(file) for file in (found if isinstance(found, list) else [found]) if file
    ]
    if files:
        read = registry.examine(network, files[0]).settings
    else:
        read = {"k": 2 if annotator.kind is AnnotatorKind.MULTI_VECTOR else 1}
    return default_row(
        network, read, checkpoints=len(files) or None, file_name=files[0].name if files else ""
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """What all rankings of one verification share."""

    annotator: Annotator | RankingSource
    means: Means
    folder: Path
    progress: Progress

    def recalls(self, items: Items, part: str = "") -> tuple[Recalls, int]:
        """Recall of ranking all of ``items`` both ways, and how many rankings had to be computed."""
        queries = {d: [item.id for item in items.side(d, gallery=False)] for d in Direction}
        depth = {d: min(max(KS), len(items.side(d, gallery=True))) for d in Direction}
        rankings, computed = rank_all(
            self.folder / part, [self.annotator], items, queries, depth, self.progress, self.means
        )
        return {named.direction: _recall(named, items) for named in rankings}, computed


def _measure(
    run: _Run, items: Items, parts: Sequence[Sequence[int]], row: Published | None
) -> tuple[dict[str, Recalls], int]:
    """Recall by protocol, and how many rankings had to be computed for it."""
    whole, computed = run.recalls(items)
    measured: dict[str, Recalls] = {"5K" if parts else "all": whole}
    # Rankings from files are of the whole gallery; a part's cannot be told from their heads.
    if row is not None and row.one_k and not isinstance(run.annotator, RankingSource):
        found = [
            run.recalls(_only(items, set(part)), f"part-{number}") for number, part in enumerate(parts, 1)
        ]
        measured["1K"] = _mean([recalls for recalls, _ in found])
        computed += sum(count for _, count in found)
    return measured, computed


def _recall(named: NamedRanking, items: Items) -> tuple[float, ...]:
    """An image finds any of its captions, a caption its own image; a gallery smaller than K has no further places."""
    captions = np.array([caption.id for caption in items.captions], dtype=np.int64)
    images = np.array([caption.image_id for caption in items.captions], dtype=np.int64)
    pairs = (images, captions) if named.direction is Direction.I2T else (captions, images)
    found = score(
        named.ranking.query_ids,
        named.ranking.item_ids,
        Positives.from_pairs(*pairs),
        ks=KS,
        by_r=False,
        short="zero",
    )
    return tuple(100 * found.recall[k] for k in KS)


def _mean(parts: Sequence[Recalls]) -> Recalls:
    return {d: tuple(np.mean([part[d] for part in parts], axis=0).tolist()) for d in Direction}


def _verdict(found: Comparison, items: Items, computed: int, *, is_coco: bool) -> Verdict:
    row = found.row
    counts: dict[str, object] = {
        "annotator": found.annotator,
        "images": len(items.images),
        "captions": len(items.captions),
        "recall": found.recall(),
        "published": None if row is None else row.row,
        "published_recall": {} if row is None else row.recalls(),
        "tolerance": None if row is None else row.tolerance,
        "within": None if row is None else not found.outside,
        "rankings_computed": computed,
    }
    lines = found.lines
    if row is None and is_coco:
        lines = (
            f"nothing is known to be published of it; --published names what to compare with: {', '.join(PUBLISHED)}",
        )
    title = f"{found.annotator}: {len(items.images):,} images, {len(items.captions):,} captions, in percent"
    return Verdict(StageResult(counts=counts, tables=(found.table(title),), lines=lines), found.refusal)


def _key(items: Items) -> str:
    listed = [[item.external_id for item in side] for side in (items.images, items.captions)]
    return hashlib.sha256(repr(listed).encode()).hexdigest()[:16]
