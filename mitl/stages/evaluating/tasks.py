"""What models are compared with: sets of positives, COCO 1K's folds, plausible matches and graded labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.datasets.cxc import RatedPairs
from mitl.datasets.objects import ImageObjects
from mitl.errors import MetricError, ReleaseError, UsageError
from mitl.metrics.embeddings import score_blocks
from mitl.metrics.graded import CXC_RANGE, GradedLabels, grades_of, kendall, ndcg
from mitl.metrics.official import Fold, fold_values, score_folds_ranked
from mitl.metrics.plausible import CAP, ZETAS, ObjectVectors, plausible_r_precision
from mitl.metrics.positives import Ids, ItemsOfQueries, Positives, Short
from mitl.metrics.ranks import PositiveRanks
from mitl.metrics.retrieval import Values, score_metrics
from mitl.metrics.table import ANYWHERE, MEDIAN_RANK, Asked, MetricRequest, asked_metrics
from mitl.positives.folders import MANIFEST
from mitl.positives.sources import read_pairs
from mitl.records import Direction
from mitl.stages.evaluating.models import Block, Ranked, Sides, strange_ids_hint
from mitl.stages.evaluating.scoring import ScoredTask

PLAUSIBLE = "plausible"


@dataclass(frozen=True, slots=True, eq=False)
class PositivesTask(ScoredTask):
    """A set of positives under the metrics of the table."""

    name: str
    positives: Mapping[Direction, Positives]
    asked: Sequence[Asked]

    @property
    def deep(self) -> bool:
        """Whether a rank that matters can lie anywhere."""
        return any(asked.metric.places == "any" for asked in self.asked)

    def queries(self, direction: Direction) -> Ids:
        """Those that the set lists."""
        return self.positives[direction].query_ids

    def depth(self, direction: Direction) -> int:
        """The largest K or R."""
        counts = self.positives[direction].counts
        reaches = [int(asked.reach(counts).max(initial=0)) for asked in self.asked]
        return max([1, *(reach for reach in reaches if reach < ANYWHERE)])

    def content(self) -> Sequence[NDArray[Any]]:
        """Its positives of both directions."""
        return [array for direction in Direction for array in _arrays(self.positives[direction])]

    def ranked(self, direction: Direction, rankings: Ranked, short: Short) -> Values:
        """See ``score_metrics``."""
        return score_metrics(rankings, self.positives[direction], self.asked, short=short)

    def score(self, direction: Direction, block: Block) -> Values:
        """Each block is scored by itself."""
        positives = self.positives[direction].of_queries(block.query_ids)
        return block_values(block, positives, self.asked)


@dataclass(frozen=True, slots=True, eq=False)
class FoldsTask(ScoredTask):
    """COCO 1K: Recall@K, and other metrics of first positives, within each fifth of the test split."""

    name: str
    folds: Mapping[Direction, tuple[Fold, ...]]
    asked: Sequence[Asked]
    """Those that follow from each query's first positive."""

    def queries(self, direction: Direction) -> Ids:
        """All of the folds'."""
        return np.unique(np.concatenate([fold.positives.query_ids for fold in self.folds[direction]]))

    def content(self) -> Sequence[NDArray[Any]]:
        """The positives and the galleries of all folds."""
        folds = [fold for direction in Direction for fold in self.folds[direction]]
        return [array for fold in folds for array in (*_arrays(fold.positives), fold.item_ids)]

    def ranked(self, direction: Direction, rankings: Ranked, short: Short) -> Values:
        """See ``score_folds_ranked``."""
        return score_folds_ranked(rankings, self.folds[direction], self.asked, short=short)

    def score(self, direction: Direction, block: Block) -> list[tuple[Ids, Ids]]:
        """The queries of each fold in the block, and the rank of each one's first positive."""
        mine = [(block.of(fold.positives.query_ids), fold) for fold in self.folds[direction]]
        return [
            (part.query_ids, first_ranks_within(part, fold) if len(part.query_ids) else np.empty(0, np.int64))
            for part, fold in mine
        ]

    def values(self, direction: Direction, parts: Sequence[list[tuple[Ids, Ids]]]) -> Values:
        """See ``fold_values``."""
        ranks = []
        for number, fold in enumerate(self.folds[direction]):
            query_ids, first = (
                np.concatenate(column) for column in zip(*(part[number] for part in parts), strict=True)
            )
            order = np.argsort(query_ids, kind="stable")
            assert np.array_equal(query_ids[order], fold.positives.query_ids)
            others = np.zeros(len(fold.positives.item_ids), np.int64)
            ranks.append(PositiveRanks(fold.positives, others, first[order], first[order], 0))
        return fold_values(ranks, self.asked)


def _arrays(positives: ItemsOfQueries) -> tuple[Ids, Ids, Ids]:
    return positives.query_ids, positives.offsets, positives.item_ids


def block_values(block: Block, positives: Positives, asked: Sequence[Asked]) -> Values:
    """The values of a block's queries. Beyond a gallery smaller than K or R there is nothing: those are misses."""
    ids = block.query_ids, block.gallery_ids
    return score_blocks(block.similarities, *ids, positives, MetricRequest(asked, short="zero"))


def first_ranks_within(block: Block, fold: Fold) -> Ids:
    """(B,) the rank of each query's first positive among the fold's items."""
    columns = np.flatnonzero(np.isin(block.gallery_ids, fold.item_ids))
    inside = Block(block.query_ids, block.gallery_ids[columns], block.similarities[:, columns])
    positives = fold.positives.of_queries(block.query_ids)
    (values,) = block_values(inside, positives, asked_metrics([MEDIAN_RANK]))
    order = np.argsort(block.query_ids, kind="stable")
    ranks = np.empty(len(order), np.int64)
    ranks[order] = values.values.astype(np.int64)
    return ranks


@dataclass(frozen=True, slots=True, eq=False)
class PlausibleTask(ScoredTask):
    """PMRP over all matches at each ζ and their mean, and ECCV Caption's with ζ = 0 and at most 50 matches.

    Rankings that do not hold the whole gallery get ECCV Caption's alone.
    """

    objects: Mapping[str, ObjectVectors]
    """Of the images and the captions, by modality; their numbers are the sides'."""
    name: str = PLAUSIBLE

    def queries(self, direction: Direction) -> Ids:
        """Those with an object that have a match; where ζ is 0, an item of the very same objects."""
        queries, gallery = self._vectors(direction)
        heard, kinds = queries.with_objects(), {row.tobytes() for row in gallery.vectors}
        return heard.ids[np.array([row.tobytes() in kinds for row in heard.vectors], np.bool_)]

    def ranked(self, direction: Direction, rankings: Ranked, short: Short) -> Values:
        """See ``plausible_r_precision``."""
        gallery = self._vectors(direction)[1]
        asked = self._some(direction, np.sort(rankings.query_ids))
        if int(rankings.ends.min()) >= len(gallery):
            return self._whole(direction, rankings.query_ids, rankings.items, asked)
        about = rankings.query_ids, rankings.items, asked, gallery
        return plausible_r_precision(*about, zetas=(0,), cap=CAP, short=short, no_positives="leave_out")

    def score(self, direction: Direction, block: Block) -> Values:
        """Each block is ranked and scored by itself."""
        return self._whole(direction, block.query_ids, block.rankings, self._some(direction, block.query_ids))

    def _whole(self, direction: Direction, query_ids: Ids, items: Ids, queries: ObjectVectors) -> Values:
        """Of rankings of the whole gallery."""
        about = query_ids, items, queries, self._vectors(direction)[1]
        return (
            *plausible_r_precision(*about, zetas=ZETAS, no_positives="leave_out"),
            *plausible_r_precision(*about, zetas=(0,), cap=CAP, no_positives="leave_out"),
        )

    def _vectors(self, direction: Direction) -> tuple[ObjectVectors, ObjectVectors]:
        """Of the queries and of the gallery."""
        return direction.ordered(self.objects["image"], self.objects["caption"])

    def _some(self, direction: Direction, query_ids: Ids) -> ObjectVectors:
        """The vectors of these queries."""
        queries = self._vectors(direction)[0]
        rows = np.searchsorted(queries.ids, query_ids)
        return ObjectVectors(queries.ids[rows], queries.vectors[rows])


def plausible_task(files: Sequence[ImageObjects], sides: Sides, image_of: Ids) -> PlausibleTask:
    """The task over these sides; a caption has the objects of its image.

    Args:
        files: what each file of objects tells; an image in several has the objects of all.
        image_of: (C,) the image's number of each caption of the sides.

    Raises:
        MetricError: the files do not tell of an image.
    """
    told_ids = {image_id for file in files for image_id in file.image_ids}
    missing = [image_id for image_id in sides.images.ids if image_id not in told_ids]
    if missing:
        raise MetricError(
            f"the objects are not told of {len(missing):,} of {len(sides.images):,} images; first: {missing[0]!r}"
            f"{strange_ids_hint(sides.images.ids, list(told_ids))}"
        )
    images = ObjectVectors(sides.images.numbers, _vectors(files, sides))
    captions = images.of_captions(sides.captions.numbers, image_of)
    return PlausibleTask({"image": images, "caption": captions})


def _vectors(files: Sequence[ImageObjects], sides: Sides) -> NDArray[np.bool_]:
    """(I, C) over the classes of all files."""
    classes = sorted({name for file in files for name in file.classes})
    place_of = {name: place for place, name in enumerate(classes)}
    vectors = np.zeros((len(sides.images), len(classes)), dtype=np.bool_)
    row_of = {image_id: row for row, image_id in enumerate(sides.images.ids)}
    for file in files:
        inside = [place for place, image_id in enumerate(file.image_ids) if image_id in row_of]
        rows = np.array([row_of[file.image_ids[place]] for place in inside], np.int64)
        columns = np.array([place_of[name] for name in file.classes], np.int64)
        vectors[rows[:, None], columns] |= file.vectors[inside]
    return vectors


NDCG_K = 10
_TABLES = ("positives.parquet", "negatives.parquet")
GRADED_RELEASE = "graded-release"
"""The set of a release's answers as grades."""


@dataclass(frozen=True, slots=True, eq=False)
class GradedTask(ScoredTask):
    """The graded pairs of one source, in both directions. Rankings have nDCG alone."""

    name: str
    labels: Mapping[Direction, GradedLabels]

    def queries(self, direction: Direction) -> Ids:
        """Those with a graded item."""
        return self.labels[direction].query_ids

    def content(self) -> Sequence[NDArray[Any]]:
        """Its graded pairs of both directions."""
        both = [self.labels[direction] for direction in Direction]
        return [array for labels in both for array in (*_arrays(labels), labels.grades)]

    def ranked(self, direction: Direction, rankings: Ranked, short: Short) -> Values:
        """nDCG@10."""
        head = rankings.block(np.arange(len(rankings.query_ids)), 0, NDCG_K)
        return (ndcg(rankings.query_ids, head, self.labels[direction], k=NDCG_K, short=short),)

    def score(self, direction: Direction, block: Block) -> tuple[Ids, Ids, NDArray[Any]]:
        """The queries, the first places of their rankings, and the similarities of their graded pairs."""
        labels = self.labels[direction]
        places = np.searchsorted(labels.query_ids, block.query_ids)
        starts, stops = labels.offsets[places], labels.offsets[places + 1]
        rows = np.repeat(np.arange(len(places)), stops - starts)
        some = np.concatenate([np.arange(start, stop) for start, stop in zip(starts, stops, strict=True)])
        columns = np.searchsorted(block.gallery_ids, labels.item_ids[some])
        return block.query_ids, block.head(NDCG_K), block.similarities[rows, columns]

    def values(self, direction: Direction, parts: Sequence[tuple[Ids, Ids, NDArray[Any]]]) -> Values:
        """nDCG@10 and Kendall's tau-b; one of them where no query has the other, as where each has one graded item.

        Raises:
            MetricError: no query has either.
        """
        labels = self.labels[direction]
        query_ids, heads, similarities = (np.concatenate(column) for column in zip(*parts, strict=True))
        assert np.array_equal(query_ids, labels.query_ids), "blocks come in the order of their queries"
        defined = []
        for value in (
            partial(ndcg, query_ids, heads, labels, k=NDCG_K, short="zero"),
            partial(kendall, labels, similarities),
        ):
            try:
                defined.append(value())
            except MetricError as error:
                why = error
        if not defined:
            raise why
        return tuple(defined)


def release_grades(folder: Path, sides: Sides) -> GradedTask:
    """The answers of a release: 100% yes 3, partially yes 2, partially no 1, 100% no 0.

    Raises:
        UsageError: the folder holds positives alone.
        ReleaseError: its tables cannot be read, or nobody judged a pair of these images and captions.
    """
    if not (folder / MANIFEST).is_file():
        raise UsageError(f"{str(folder)!r} holds positives alone, without grades; leave --graded out")
    images, captions = sides.images.number_of, sides.captions.number_of
    rows = (
        (images.get(image), captions.get(caption), row["label"])
        for name in _TABLES
        for (image, caption), row in read_pairs(folder, name, "label")
    )
    kept = [row for row in rows if None not in row]
    if not kept:
        raise ReleaseError(
            f"nobody judged a pair in {str(folder)!r}, so it holds no grades; leave --graded out"
        )
    first, second, said = zip(*kept, strict=True)
    return _graded_task(GRADED_RELEASE, (np.array(first), np.array(second)), grades_of(said))


def cxc_grades(sits: RatedPairs) -> GradedTask:
    """CxC's scores of images and captions, 0 to 5, as they are."""
    return _graded_task("graded-cxc", (sits.first, sits.second), sits.scores, CXC_RANGE)


def _graded_task(
    name: str,
    pairs: tuple[Ids, Ids],
    grades: NDArray[np.float64],
    within: tuple[float, float] | None = None,
) -> GradedTask:
    labels = {way: GradedLabels.from_pairs(*way.ordered(*pairs), grades, within=within) for way in Direction}
    return GradedTask(name, labels)
