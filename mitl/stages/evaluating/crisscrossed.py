"""Ratings in CxC's layout in a set's numbers: positives of the four retrieval tasks, and correlations with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.datasets.cxc import RatedPairs, read_scored
from mitl.datasets.ratings import rated_file, read_split
from mitl.errors import DatasetError
from mitl.metrics.correlation import ScoredPairs, paired_spearman, sampled_spearman
from mitl.metrics.crisscrossed import Task, across_positives, image_positives, scored_pairs, text_positives
from mitl.metrics.positives import Ids, Positives
from mitl.metrics.retrieval import Values
from mitl.progress import Progress
from mitl.records import Direction
from mitl.records.similarity import Likeness, SamplingMethod
from mitl.stages.evaluating.figures import CONFIDENCE, Figure, ModelDifference, Sampling, Scored
from mitl.stages.evaluating.models import Block, Model, ModelSide, Sides, joined, strange_ids_hint
from mitl.stages.evaluating.request import EVERY_TASK, NamedTask, Wanted
from mitl.stages.evaluating.tasks import PositivesTask, block_values

NAME = "cxc"
_CELLS = 1 << 24
_ROWS = 256
"""First items whose pairs are looked up together."""
_MISSING = -(1 << 62)
"""The number of an item that a side lacks."""


@dataclass(frozen=True, slots=True, eq=False)
class Crisscrossed:
    """The scores of one split in the sides' numbers; pairs with an item that the sides lack are left out."""

    split: str
    rated: Mapping[Likeness, RatedPairs]
    left_out: int
    asked: frozenset[NamedTask] = EVERY_TASK
    groups: Ids | None = None
    """(C,) a number for each caption's image, where captions are searched with captions: those of one image match."""

    def has(self, task: NamedTask, model: Model) -> bool:
        """Whether a task is asked for, has ratings and compares what the model knows."""
        return task in self.asked and task.likeness in self.rated and task.sides <= model.sides


def read_crisscrossed(folder: Path, split: str, sides: Sides, wanted: Collection[Likeness]) -> Crisscrossed:
    """The files of a split of the tasks that are wanted; any of the three may be missing.

    Raises:
        DatasetError: a file is malformed, none of those wanted is there, or the sides hold no rated pair.
    """
    rated: dict[Likeness, RatedPairs] = {}
    frames = read_split(folder, split, wanted)
    if not frames:
        files = " or ".join(rated_file(folder, task, split).name for task in Likeness if task in wanted)
        raise DatasetError(f"{str(folder)!r} holds no {files}, which these models are scored on")
    left_out = 0
    for task, whole in frames.items():
        inside = _inside(task, whole, [sides.of(modality) for modality in task.sides])
        left_out += len(whole) - len(inside)
        if len(inside):
            rated[task] = inside
    if not rated:
        first, side = next((whole["first"].iloc[0], task.sides[0]) for task, whole in frames.items())
        raise DatasetError(
            f"the {split} files in {str(folder)!r} rate no pair of these images and captions: their {side}s are called "
            f"{first!r} there{strange_ids_hint(sides.of(side).ids, [first])}"
        )
    return Crisscrossed(split, rated, left_out)


def _inside(task: Likeness, whole: pd.DataFrame, sides: Sequence[ModelSide]) -> RatedPairs:
    """The pairs of which the sides hold both items, in the sides' numbers."""
    first, second = (
        np.array([side.number_of.get(name, _MISSING) for name in whole[column].tolist()], np.int64)
        for column, side in zip(("first", "second"), sides, strict=True)
    )
    kept = (first != _MISSING) & (second != _MISSING)
    return RatedPairs(task, first[kept], second[kept], whole["score"].to_numpy()[kept])


def images_in_ratings(folder: Path, split: str) -> dict[str, str]:
    """Caption → its image, as the original pairs of a folder tell it."""
    path = rated_file(folder, Likeness.SITS, split)
    if not path.is_file():
        return {}
    whole = read_scored(path, Likeness.SITS)
    original = whole[whole["method"] == SamplingMethod.C2I_ORIGINAL.value]
    return dict(zip(original["second"].tolist(), original["first"].tolist(), strict=True))


def across_task(known: Crisscrossed, wanted: Wanted) -> PositivesTask:
    """Image to text and text to image; the ratings hold some of images and captions."""
    positives = across_positives(known.rated[Likeness.SITS])
    return PositivesTask(
        NAME, {direction: positives[Task(direction.value)] for direction in Direction}, wanted
    )


def score_within_sides(
    model: Model, known: Crisscrossed, sides: Sides, wanted: Wanted, progress: Progress
) -> list[Scored]:
    """Those of text to text and image to image that are asked for and that the model and the ratings have."""
    if model.within is None:
        return []
    searched: list[tuple[Task, ModelSide, Positives]] = []
    if known.has(NamedTask.T2T, model):
        assert known.groups is not None, "the groups are there where captions are searched with captions"
        image_groups = sides.captions.numbers, known.groups
        searched.append(
            (Task.T2T, sides.captions, text_positives(known.rated[Likeness.STS], of_images=image_groups))
        )
    if known.has(NamedTask.I2I, model):
        searched.append((Task.I2I, sides.images, image_positives(known.rated[Likeness.SIS])))
    return [
        Scored(NAME, model.name, task.value, _within(model, side, positives, wanted, progress))
        for task, side, positives in searched
        if len(positives)
    ]


def _within(
    model: Model, side: ModelSide, positives: Positives, wanted: Wanted, progress: Progress
) -> Values:
    """The values of one side's items searching the others of the same side."""
    similarities = model.within
    assert similarities is not None
    parts = []
    size = max(1, _CELLS // len(side))
    with progress(f"score {model.name} within {side.plural}", total=len(positives)) as advance:
        for start in range(0, len(positives), size):
            some = positives.query_ids[start : start + size]
            places = side.places(some)
            near = np.array(similarities.between(side.modality, places, side.modality))
            near[np.arange(len(some)), places] = -np.inf  # the query itself is not among what is retrieved
            block = Block(some, side.numbers, near)
            parts.append(block_values(block, positives.of_queries(some), wanted.metrics))
            advance(len(some))
    return joined(parts)


def rated_similarities(model: Model, known: Crisscrossed, sides: Sides, kind: Likeness) -> ScoredPairs | None:
    """The model's similarities beside the scores of a kind; None where it is not asked for or they have it not.

    Raises:
        MetricError: too few queries are rated for a sampled correlation.
    """
    if not known.has(NamedTask(kind.value), model):
        return None
    similarities = _pair_similarities(model, known.rated[kind], sides)
    return None if similarities is None else scored_pairs(known.rated[kind], similarities)


def correlation(model: str, pairs: ScoredPairs, kind: Likeness, sampling: Sampling) -> Figure:
    """The sampled Spearman correlation of one model with one kind of scores.

    Raises:
        MetricError: the similarities or the scores of a sample are all equal.
    """
    drawn = sampled_spearman(pairs, samples=sampling.samples, seed=sampling.seed)
    ends = drawn.interval(CONFIDENCE)
    low, high = (ends.low, ends.high) if sampling.intervals else (None, None)
    return Figure(NAME, model, kind.value, "Spearman", drawn.mean, low, high, drawn.n_queries, std=drawn.std)


def compare_correlations(
    rated: Mapping[str, Mapping[Likeness, ScoredPairs]], against: str, sampling: Sampling
) -> list[ModelDifference]:
    """Every other model's correlations less those of one, on the same samples; kinds that both have."""
    return [
        _comparison(model, against, kind, (pairs, rated[against][kind]), sampling)
        for model, kinds in rated.items()
        for kind, pairs in kinds.items()
        if model != against and kind in rated.get(against, {})
    ]


def _comparison(
    model: str, against: str, kind: Likeness, pairs: tuple[ScoredPairs, ScoredPairs], sampling: Sampling
) -> ModelDifference:
    test = paired_spearman(*pairs, samples=sampling.samples, confidence=CONFIDENCE, seed=sampling.seed)
    return ModelDifference(NAME, model, against, kind.value, "Spearman", *astuple(test))


def _pair_similarities(model: Model, rated: RatedPairs, sides: Sides) -> NDArray[np.float64] | None:
    """(P,) the model's similarities of the pairs; None where it has none of the kind."""
    first, second = (
        sides.of(side).places(items)
        for side, items in zip(rated.kind.sides, (rated.first, rated.second), strict=True)
    )
    block = _lookup(model, rated.kind)
    if block is None:
        return None
    near = np.empty(len(rated))
    order = np.argsort(first, kind="stable")
    heads, starts = np.unique(first[order], return_index=True)
    ends = np.append(starts[1:], len(order))
    for begin in range(0, len(heads), _ROWS):
        rows = heads[begin : begin + _ROWS]
        places = order[starts[begin] : ends[min(begin + _ROWS, len(heads)) - 1]]
        columns = np.unique(second[places])
        table = block(rows, columns)
        near[places] = table[np.searchsorted(rows, first[places]), np.searchsorted(columns, second[places])]
    return near


def _lookup(model: Model, kind: Likeness) -> Callable[[Ids, Ids], NDArray[np.float64]] | None:
    """What gives similarities of some first items with some second ones."""
    within, similarities = model.within, model.similarities
    first, second = kind.sides
    if within is not None:
        return lambda rows, columns: np.asarray(within.between(first, rows, second, columns))
    if similarities is not None and kind is Likeness.SITS:
        return lambda rows, columns: similarities.block(Direction.I2T, rows)[:, columns]
    return None
