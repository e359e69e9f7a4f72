"""Graded labels as a task: nDCG@10, and Kendall's tau-b of a model's similarities with people's grades."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.datasets.crisscrossed import RatedPairs
from mitl.errors import ReleaseError, UsageError
from mitl.metrics.graded import CXC_RANGE, GradedLabels, grades_of, kendall, ndcg
from mitl.metrics.positives import Ids, Short
from mitl.metrics.retrieval import Values
from mitl.positives.folders import MANIFEST
from mitl.positives.sources import read_table
from mitl.records import Direction
from mitl.stages.evaluating.models import Block, Ranked, Sides
from mitl.stages.evaluating.scoring import Running

K = 10
_TABLES = ("positives.parquet", "negatives.parquet")
GRADED_RELEASE = "graded-release"
"""The set of a release's answers as grades."""


@dataclass(frozen=True, slots=True, eq=False)
class GradedTask:
    """The graded pairs of one source, in both directions. Rankings have nDCG alone."""

    name: str
    labels: Mapping[Direction, GradedLabels]
    deep: bool = True

    def queries(self, direction: Direction) -> Ids:
        """Those with a graded item."""
        return self.labels[direction].query_ids

    def depth(self, direction: Direction) -> int:
        """K of nDCG@K."""
        return K

    def ranked(self, direction: Direction, rankings: Ranked, short: Short) -> Values:
        """nDCG@10."""
        head = rankings.block(np.arange(len(rankings.query_ids)), 0, min(K, int(rankings.ends.min())))
        return (ndcg(rankings.query_ids, head, self.labels[direction], k=K, short=short),)

    def start(self, direction: Direction) -> Running:
        """Heads and the similarities of graded pairs are collected, and scored at the end."""
        return _GradedRunning(self.labels[direction])


@dataclass(slots=True, eq=False)
class _GradedRunning:
    labels: GradedLabels
    heads: list[Ids] = field(default_factory=list)
    query_ids: list[Ids] = field(default_factory=list)
    similarities: list[NDArray[Any]] = field(default_factory=list)

    def add(self, block: Block) -> None:
        self.query_ids.append(block.query_ids)
        self.heads.append(block.head(K))
        places = np.searchsorted(self.labels.query_ids, block.query_ids)
        starts, stops = self.labels.offsets[places], self.labels.offsets[places + 1]
        rows = np.repeat(np.arange(len(places)), stops - starts)
        some = np.concatenate([np.arange(start, stop) for start, stop in zip(starts, stops, strict=True)])
        columns = np.searchsorted(block.gallery_ids, self.labels.item_ids[some])
        self.similarities.append(block.similarities[rows, columns])

    def values(self) -> Values:
        query_ids = np.concatenate(self.query_ids)
        assert np.array_equal(query_ids, self.labels.query_ids), "blocks come in the order of their queries"
        found = ndcg(query_ids, np.concatenate(self.heads), self.labels, k=K, short="zero")
        return found, kendall(self.labels, np.concatenate(self.similarities))


def release_grades(folder: Path, sides: Sides) -> GradedTask:
    """The answers of a release: 100% yes 3, partially yes 2, partially no 1, 100% no 0.

    Raises:
        UsageError: the folder holds positives alone.
        ReleaseError: its tables cannot be read, or nobody judged a pair of these images and captions.
    """
    if not (folder / MANIFEST).is_file():
        raise UsageError(f"{str(folder)!r} holds positives alone, without grades; leave --graded out")
    rows = [row for name in _TABLES for row in read_table(folder, name) if row["label"] is not None]
    pairs = [
        (
            sides.images.number_of.get(str(row["image_id"])),
            sides.captions.number_of.get(str(row["caption_id"])),
        )
        for row in rows
    ]
    kept = [place for place, pair in enumerate(pairs) if None not in pair]
    if not kept:
        raise ReleaseError(
            f"nobody judged a pair in {str(folder)!r}, so it holds no grades; leave --graded out"
        )
    images, captions = (np.array([pairs[place][side] for place in kept], np.int64) for side in (0, 1))
    return _task(GRADED_RELEASE, images, captions, grades_of([str(rows[place]["label"]) for place in kept]))


def cxc_grades(sits: RatedPairs) -> GradedTask:
    """CxC's scores of images and captions, 0 to 5, as they are."""
    return _task("graded-cxc", sits.first, sits.second, sits.scores)


def _task(name: str, images: Ids, captions: Ids, grades: NDArray[np.float64]) -> GradedTask:
    within = CXC_RANGE if name == "graded-cxc" else None
    return GradedTask(
        name,
        {
            Direction.I2T: GradedLabels.from_pairs(images, captions, grades, within=within),
            Direction.T2I: GradedLabels.from_pairs(captions, images, grades, within=within),
        },
    )
