"""Verifying an annotator: its recall on COCO's test split beside what was published for its weights."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypedDict

import numpy as np

from annotators import registry
from annotators.base import Annotator, RankingSource, ids_of
from annotators.catalog import KS, PUBLISHED, Published, default_row
from mitl.core.statistics import clopper_pearson
from mitl.datasets.official import coco_test_ids
from mitl.db.session import open_database
from mitl.db.store import items as item_store
from mitl.errors import DatasetError, UsageError
from mitl.metrics.positives import Positives
from mitl.metrics.retrieval import score_queries
from mitl.progress import Progress, no_progress
from mitl.proposals.candidates import NamedRanking
from mitl.records import AnnotatorKind, Direction, Pair, StageResult, Table, Verdict
from mitl.records.items import counted
from mitl.records.results import printed_by
from mitl.retrieval.estimates import Hardware, SearchWorkload, estimate, here
from mitl.settings import Settings
from mitl.stages.proposing.computing import ComputeContext, Computing, open_engine
from mitl.stages.proposing.estimate import duration, files_of, plan_of, weights_files
from mitl.stages.proposing.ranking import (
    AnnotatorRun,
    RankingFolder,
    SearchedItems,
    annotator_runs,
    at_hand,
    build_annotators,
    rank_with,
    read_items,
    require_pictures,
)
from mitl.stages.proposing.trained import trained_rows, with_trained

COCO = "coco"
RecallByProtocol = Mapping[str, Mapping[str, Mapping[str, float | None]]]
FOLDS = 5
"""The 1K figures are the mean over this many consecutive parts of the test split."""


@printed_by("annotators verify")
class ProposalsVerifyCounts(TypedDict):
    """What a verification found."""

    annotator: Annotated[str, "its name"]
    images: Annotated[int, "images ranked"]
    captions: Annotated[int, "captions ranked"]
    recall: Annotated[RecallByProtocol, "protocol (5K, 1K; all on other data) → direction → R@K → percent"]
    published: Annotated[str | None, "row that it was compared with; null where there is none"]
    published_recall: Annotated[RecallByProtocol, "the same of the published figures"]
    tolerance: Annotated[float | None, "points by which each may be off"]
    within: Annotated[bool | None, "whether all are; null where there is nothing to compare with"]
    rankings_computed: Annotated[int, "rankings not found in `runs/`"]


def verify(
    settings: Settings,
    name: str,
    *,
    published: str | None = None,
    sample: int | None = None,
    permit: Callable[[VerifyCost], bool] = lambda _: True,
    progress: Progress = no_progress,
) -> Verdict | None:
    """Rank all of the test split both ways and hold the recall against the published figures.

    Rankings and encodings are kept, so that a second call, or one after a kill, computes only what is missing.
    Data other than COCO's gives recall on its own originals and nothing to compare with.

    Args:
        published: the row of ``PUBLISHED`` to compare with; None for that of the annotator's weights.
        sample: rank so many images with their captions only, evenly spaced among those that the annotator can look
            at. Recall can only be higher among fewer items, so a sample can refute a set-up and not confirm it.
        permit: told what the work would take where that is more than a minute; whether to do it.

    Returns:
        None where it was not permitted; nothing was computed then.

    Raises:
        DatasetError: COCO's test split is not whole, or the package with its ids is missing.
        UsageError: no such row, a row for data that are not COCO's, or a sample larger than what is there.
        AnnotatorError: the annotator cannot be built, does not fit the data, or lacks pictures.
    """
    if published is not None and published not in PUBLISHED:
        raise UsageError(f"nothing is published as {published!r}; known: {', '.join(PUBLISHED)}")
    settings = with_trained(settings, [name])
    with open_database(settings.db_url, read_only=True) as session:
        dataset, items = read_items(session, settings)
        originals = item_store.originals(session, dataset.id)
    kind = dataset.kind
    if kind != COCO and published is not None:
        raise UsageError(
            f"published figures are of COCO's test split, but this project holds {kind!r}; leave --published out"
        )
    parts = _test_split(items) if kind == COCO else []
    (annotator,) = build_annotators(settings, [name])
    row = _row(settings, annotator, published) if parts else None
    if parts:
        items = _only(items, {image for part in parts for image in part}, set(coco_test_ids()))
    if sample is not None:
        items, parts = _sampled(annotator, items, sample), []
    with open_engine(settings, Computing.of(settings), [name]) as engine:
        compute = ComputeContext.of(settings, engine, progress)
        run = _Run(
            annotator, originals, compute, settings.runs / "verify" / _key(dataset.content_sha256, items)
        )
        if not run.rankings(items).holds(AnnotatorRun(annotator, items, compute)):
            require_pictures(annotator, items.images, can_sample=True)
            cost = _cost(settings, name, items)
            if cost is not None and not permit(cost):
                return None
        whole, computed = run.recalls(items)
        by_protocol = {"5K" if parts else "all": whole}
        # Rankings from files are of the whole gallery; a part's cannot be told from their heads.
        if parts and row is not None and row.one_k and not isinstance(annotator, RankingSource):
            folds = [
                run.recalls(_only(items, set(part)), f"part-{number}") for number, part in enumerate(parts, 1)
            ]
            by_protocol["1K"] = {
                d: tuple(np.mean([recalls[d] for recalls, _ in folds], axis=0).tolist()) for d in Direction
            }
            computed += sum(count for _, count in folds)
    if sample is not None:
        return _sample_verdict(name, whole, row, items, computed)
    return _verdict(RecallComparison.of(name, by_protocol, row), items, computed, is_coco=bool(parts))


@dataclass(frozen=True, slots=True)
class VerifyCost:
    """What a verification would take on this machine, at rates measured just before; kept scores not deducted."""

    annotator: str
    pairs: int
    seconds: float
    images: int

    @property
    def text(self) -> str:
        """One line for people."""
        return (
            f"{self.annotator}: about {duration(self.seconds)} on this machine for {self.pairs:,} pairs, at rates "
            "measured now; what earlier calls kept is not done again"
        )

    def images_within(self, seconds: float) -> int:
        """How many images a sample may have to take about so long; the work grows with their square."""
        return max(1, int(self.images * math.sqrt(seconds / self.seconds)))


_WORTH_MEASURING = 60.0
_SLOWEST = Hardware("slow", 2e9, 2e9, 1e9, 1e8, 20, "assumed")
"""A machine so slow that what it does in a minute needs no estimate."""


def _cost(settings: Settings, name: str, items: SearchedItems) -> VerifyCost | None:
    """What ranking these items takes here; None where it is little, or costs are not known."""
    plan = plan_of(settings, name, [name])
    n_images, n_captions = len(items.images), len(items.captions)
    work = SearchWorkload(n_images, n_captions, n_images, n_captions)
    if plan is None or estimate(plan, work, _SLOWEST).seconds < _WORTH_MEASURING:
        return None
    expected = estimate(plan, work, here(weights_files(settings)))
    if expected.seconds < _WORTH_MEASURING:
        return None
    return VerifyCost(name, expected.pairs, expected.seconds, n_images)


def _sampled(annotator: Annotator | RankingSource, items: SearchedItems, count: int) -> SearchedItems:
    """So many images, evenly spaced among those that the annotator can look at, with their captions."""
    if isinstance(annotator, RankingSource):
        raise UsageError(
            f"{annotator.name!r} has rankings of the whole gallery, which say nothing of fewer items; "
            "leave --sample out"
        )
    available = at_hand(annotator, items.images)
    if count > len(available):
        raise UsageError(
            f"--sample is {count:,}, but {len(available):,} of {len(items.images):,} images can be looked at; "
            "take no more than that"
        )
    places = np.linspace(0, len(available) - 1, count).round().astype(int)
    return _only(items, {available[place].id for place in places})


def _test_split(items: SearchedItems) -> list[list[int]]:
    """The images of the five parts of COCO's test split, in the official order, by the project's own ids."""
    test_ids = coco_test_ids()
    image_of = {caption.external_id: caption.image_id for caption in items.captions}
    missing = [caption for caption in test_ids if caption not in image_of]
    if missing:
        raise DatasetError(
            f"the project lacks {len(missing):,} of the {len(test_ids):,} captions of COCO's test split, first "
            f"{missing[0]}; make one with `mitl init --dataset coco --captions captions_val2014.json "
            "--split-file dataset_coco.json`"
        )
    images = list(dict.fromkeys(image_of[caption] for caption in test_ids))
    length = len(images) // FOLDS
    return [images[start : start + length] for start in range(0, len(images), length)]


def _only(items: SearchedItems, images: set[int], captions: Collection[str] | None = None) -> SearchedItems:
    """These images and their captions, of which only those with these external ids where they are given."""
    return SearchedItems(
        items.id_kind,
        [image for image in items.images if image.id in images],
        [
            caption
            for caption in items.captions
            if caption.image_id in images and (captions is None or caption.external_id in captions)
        ],
        items.sides,
    )


def _row(settings: Settings, annotator: Annotator | RankingSource, asked: str | None) -> Published | None:
    """What was published for an annotator, by what its weights are, else by its name."""
    name = annotator.name
    config = settings.annotator_config.get(name, {})
    if asked is not None:
        return PUBLISHED[asked]
    if any(row.name == name for row in trained_rows(settings)):
        return None  # it has learnt since it was published
    network = registry.network_of(name, config)
    if network is None or ("weights" not in config and name in PUBLISHED):
        return PUBLISHED.get(name)
    files = files_of(settings, name) if "weights" in config else []
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
    originals: Sequence[Pair]
    compute: ComputeContext
    folder: Path

    def rankings(self, items: SearchedItems, part: str = "") -> RankingFolder:
        """The rankings of all of ``items`` both ways, as deep as they are looked at."""
        return RankingFolder(
            self.folder / part,
            {d: [item.id for item in items.side(d)] for d in Direction},
            {d: min(max(KS), len(items.side(d, gallery=True))) for d in Direction},
        )

    def recalls(self, items: SearchedItems, part: str = "") -> tuple[Recalls, int]:
        """Recall of ranking all of ``items`` both ways, and how many rankings had to be computed."""
        runs = annotator_runs([self.annotator], items, self.compute)
        rankings, computed = rank_with(self.rankings(items, part), runs)
        return {named.direction: _recall(named, items, self.originals) for named in rankings}, computed


def _recall(named: NamedRanking, items: SearchedItems, originals: Sequence[Pair]) -> tuple[float, ...]:
    """A query finds any item that is original with it; a gallery smaller than K has no further places."""
    images, captions = np.array(originals, np.int64).T
    here = np.isin(images, ids_of(items.images)) & np.isin(captions, ids_of(items.captions))
    ranking, sides = named.ranking, named.direction.ordered(images[here], captions[here])
    positives = Positives.from_pairs(*sides)
    recalls = score_queries(ranking.query_ids, ranking.item_ids, positives, ks=KS, by_r=False, short="zero")
    return tuple(100 * recall.estimate for recall in recalls)


def _verdict(found: RecallComparison, items: SearchedItems, computed: int, *, is_coco: bool) -> Verdict:
    row = found.row
    counts = _counts(found, items, computed, within=None if row is None else not found.outside)
    lines = found.lines
    if row is None and is_coco:
        lines = (
            f"nothing is known to be published of it; --published names what to compare with: {', '.join(PUBLISHED)}",
        )
    title = f"{found.annotator}: {_count(items)}, in percent"
    return Verdict(StageResult(counts=counts, tables=(found.table(title),), lines=lines), found.refusal)


_CONFIDENCE = 0.998
"""Of the interval around a sample's recall; one of twelve figures is then wrongly refuted once in a hundred samples."""


def _sample_verdict(
    name: str, recalls: Recalls, row: Published | None, items: SearchedItems, computed: int
) -> Verdict:
    """A sample's recall beside that of the whole split, which it should reach: fewer items leave fewer errors."""
    comparison = RecallComparison.of(name, {"sample": recalls}, row)
    n_images = len(items.images)
    rows, low = [], []
    for direction, values in recalls.items():
        for place, (k, measured) in enumerate(zip(KS, values, strict=True)):
            # An image's captions are not independent queries: as many count as there are images.
            highest = 100 * clopper_pearson(measured / 100 * n_images, n_images, _CONFIDENCE)[1]
            whole = None if row is None else row.five_k[direction][place]
            refuted = row is not None and whole is not None and highest < whole - row.tolerance
            verdict = None if whole is None else "too low" if refuted else "possible"
            said = f"{measured:.2f}", f"{highest:.2f}", None if whole is None else f"{whole:.2f}", verdict
            rows.append((direction.value, f"R@{k}", *said))
            if refuted:
                low.append(
                    f"{direction} R@{k} is {measured:.2f} ({highest:.2f} at most), published {whole:.2f}"
                )
    title = f"{name}: a sample of {_count(items)}, in percent"
    table = Table(
        title, ("direction", "recall", "measured", "at most", "whole split", "so it is"), tuple(rows)
    )
    refusal = None
    if low and row is not None:
        refusal = (
            f"annotator {name!r} cannot be what was published as {row.row!r}: among {n_images:,} images {low[0]} for "
            "all 5,000, where it is harder; check its weights, vocabulary and images"
        )
    lines = (
        "a sample can refute and not confirm: recall among fewer items is higher than on the whole split",
    )
    counts = _counts(comparison, items, computed, within=False if low else None)
    return Verdict(StageResult(counts=counts, tables=(table,), lines=lines), refusal)


def _counts(
    found: RecallComparison, items: SearchedItems, computed: int, *, within: bool | None
) -> ProposalsVerifyCounts:
    row = found.row
    return {
        "annotator": found.annotator,
        "images": len(items.images),
        "captions": len(items.captions),
        "recall": found.recall(),
        "published": None if row is None else row.row,
        "published_recall": {} if row is None else row.recalls(),
        "tolerance": None if row is None else row.tolerance,
        "within": within,
        "rankings_computed": computed,
    }


def _count(items: SearchedItems) -> str:
    return counted(items.sides, len(items.images), len(items.captions))


def _key(content: str, items: SearchedItems) -> str:
    listed = [[item.external_id for item in side] for side in (items.images, items.captions)]
    return hashlib.sha256(repr([content, *listed]).encode()).hexdigest()[:16]


Recalls = Mapping[Direction, tuple[float, ...]]
"""R@1, R@5 and R@10 in percent."""

_HALF_A_DIGIT = 0.005
"""Published figures are rounded to two places."""


@dataclass(frozen=True, slots=True)
class RecallFigure:
    """One recall in percent, with what was published of it."""

    protocol: str
    """5K, 1K, or all on data that are not COCO's."""
    direction: Direction
    k: int
    measured: float
    published: float | None

    @property
    def difference(self) -> float | None:
        """Measured less published; None where nothing was published."""
        return None if self.published is None else self.measured - self.published

    def is_within(self, tolerance: float) -> bool:
        """Whether it is at most ``tolerance`` points off, or nothing was published."""
        return self.difference is None or abs(self.difference) <= tolerance + _HALF_A_DIGIT


@dataclass(frozen=True, slots=True)
class RecallComparison:
    """All figures of one annotator, and the row that they are compared with."""

    annotator: str
    figures: tuple[RecallFigure, ...]
    row: Published | None

    @classmethod
    def of(cls, annotator: str, measured: Mapping[str, Recalls], row: Published | None) -> RecallComparison:
        """From recall by protocol."""
        return cls(annotator, tuple(_figures(measured, row)), row)

    @property
    def outside(self) -> list[RecallFigure]:
        """The figures that are further off than they may be."""
        return [
            figure
            for figure in self.figures
            if self.row is not None and not figure.is_within(self.row.tolerance)
        ]

    def recall(self) -> RecallByProtocol:
        """Protocol → direction → R@K → percent."""
        recalls: dict[str, dict[str, dict[str, float]]] = {}
        for figure in self.figures:
            by_direction = recalls.setdefault(figure.protocol, {})
            by_direction.setdefault(figure.direction.value, {})[f"R@{figure.k}"] = round(figure.measured, 4)
        return recalls

    def table(self, title: str) -> Table:
        """A row for each figure."""
        columns = ["gallery", "direction", "recall", "measured"]
        if self.row is not None:
            columns += ["published", "difference", f"± {self.row.tolerance}"]
        return Table(title, tuple(columns), tuple(self._cells(figure) for figure in self.figures))

    def _cells(self, figure: RecallFigure) -> tuple[object, ...]:
        cells = (figure.protocol, figure.direction.value, f"R@{figure.k}", f"{figure.measured:.2f}")
        if self.row is None:
            return cells
        if figure.published is None or figure.difference is None:
            return (*cells, None, None, None)
        verdict = "within" if figure.is_within(self.row.tolerance) else "outside"
        return (*cells, f"{figure.published:.2f}", f"{figure.difference:+.2f}", verdict)

    @property
    def lines(self) -> tuple[str, ...]:
        """Whose figures they are compared with, and how that ended."""
        if self.row is None:
            return ()
        sources = f"5K: {self.row.source}" + (f"; 1K: {self.row.one_k_source}" if self.row.one_k else "")
        where = "outside" if self.outside else "within"
        return (
            f"published for {self.row.what} ({sources})",
            f"{where} the tolerance of {self.row.tolerance} points",
        )

    @property
    def refusal(self) -> str | None:
        """One line about the figure that is furthest off; None where all are within."""
        if self.row is None or not self.outside:
            return None
        worst = max(self.outside, key=lambda figure: abs(figure.difference or 0))
        return (
            f"annotator {self.annotator!r} differs from what was published for {self.row.row!r}: {worst.protocol} "
            f"{worst.direction} R@{worst.k} is {worst.measured:.2f}, published {worst.published:.2f} ± "
            f"{self.row.tolerance}; check its weights, vocabulary and images, or name another row with --published"
        )


def _figures(measured: Mapping[str, Recalls], row: Published | None) -> Iterator[RecallFigure]:
    protocols = {} if row is None else row.protocols()
    for protocol, by_direction in measured.items():
        for direction, values in by_direction.items():
            published = protocols.get(protocol, {}).get(direction, (None,) * len(KS))
            for k, value, other in zip(KS, values, published, strict=True):
                yield RecallFigure(protocol, direction, k, value, other)
