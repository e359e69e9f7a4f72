"""Ratings in CxC's layout in a set's numbers: positives of the four retrieval tasks, and correlations with them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pandas as pd

from mitl.datasets.cxc import RatedPairs, rated_file, read_scored, read_split
from mitl.errors import DatasetError
from mitl.metrics.correlation import ScoredPairs, paired_spearman, sampled_spearman
from mitl.metrics.crisscrossed import Task, across_positives, scored_pairs
from mitl.metrics.positives import Positives
from mitl.metrics.table import Asked
from mitl.progress import Progress
from mitl.records import Direction
from mitl.records.similarity import Likeness, SamplingMethod
from mitl.stages.evaluating.figures import Figure, ModelDifference, Sampling, Scored
from mitl.stages.evaluating.models import Model, ModelSide, Sides, blocks, joined, strange_ids_hint
from mitl.stages.evaluating.scoring import named
from mitl.stages.evaluating.tasks import PositivesTask, block_values

NAME = "cxc"
_ROWS = 256
"""First items whose pairs are looked up together."""
_MISSING = -(1 << 62)
"""The number of an item that a side lacks."""


def read_crisscrossed(
    folder: Path, split: str, sides: Sides, wanted: Collection[Likeness]
) -> tuple[dict[Likeness, RatedPairs], int]:
    """The scores of a split of the tasks that are wanted, in the sides' numbers; any of the three files may be missing.

    Pairs with an item that the sides lack are left out and counted.

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
    return rated, left_out


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


def across_task(sits: RatedPairs, asked: Sequence[Asked]) -> PositivesTask:
    """Image to text and text to image."""
    positives = across_positives(sits)
    return PositivesTask(NAME, {way: positives[Task(way.value)] for way in Direction}, asked)


def score_within_sides(
    model: Model,
    positives: Mapping[Task, Positives],
    sides: Sides,
    asked: Sequence[Asked],
    progress: Progress,
) -> list[Scored]:
    """Text to text and image to image, of those that the model compares and that have a query.

    Raises:
        MetricError: a metric is undefined for what the model brings; the query is named by its own id.
    """
    scored = []
    for way, listed in positives.items():
        side = sides.queries(way)
        if not len(listed) or not model.compares(side.modality, side.modality):
            continue
        assert model.similarities is not None
        label = f"score {model.name} within {side.plural}"
        with named(model.name, NAME, sides, way):
            parts = [
                block_values(block, listed.of_queries(block.query_ids), asked)
                for block in blocks(model.similarities, sides, way, listed.query_ids, progress, label)
            ]
        scored.append(Scored(NAME, model.name, way.value, joined(parts)))
    return scored


def rated_similarities(model: Model, rated: RatedPairs, sides: Sides) -> ScoredPairs | None:
    """The model's similarities of the pairs beside their scores; None where it has none of the kind.

    Raises:
        MetricError: too few queries are rated for a sampled correlation.
    """
    similarities, (one, other) = model.similarities, rated.kind.sides
    if similarities is None or not model.compares(one, other):
        return None
    first, second = sides.of(one).places(rated.first), sides.of(other).places(rated.second)
    near = np.empty(len(rated))
    order = np.argsort(first, kind="stable")
    heads, starts = np.unique(first[order], return_index=True)
    ends = np.append(starts[1:], len(order))
    for begin in range(0, len(heads), _ROWS):
        rows = heads[begin : begin + _ROWS]
        places = order[starts[begin] : ends[min(begin + _ROWS, len(heads)) - 1]]
        columns = np.unique(second[places])
        table = np.asarray(similarities.between(one, rows, other, columns))
        near[places] = table[np.searchsorted(rows, first[places]), np.searchsorted(columns, second[places])]
    return scored_pairs(rated, near)


def correlation(model: str, pairs: ScoredPairs, kind: Likeness, sampling: Sampling) -> Figure:
    """The sampled Spearman correlation of one model with one kind of scores.

    Raises:
        MetricError: the similarities or the scores of a sample are all equal.
    """
    drawn = sampled_spearman(pairs, samples=sampling.samples, seed=sampling.seed)
    ends = drawn.interval()
    low, high = (ends.low, ends.high) if sampling.intervals else (None, None)
    return Figure(NAME, model, kind.value, "Spearman", drawn.mean, low, high, drawn.n_queries, std=drawn.std)


def compare_correlations(
    rated: Mapping[str, Mapping[Likeness, ScoredPairs]], against: str, sampling: Sampling
) -> list[ModelDifference]:
    """Every other model's correlations less those of one, on the same samples; kinds that both have."""
    differences = []
    for model, kinds in rated.items():
        for kind, pairs in kinds.items():
            theirs = rated.get(against, {}).get(kind)
            if model != against and theirs is not None:
                test = paired_spearman(pairs, theirs, samples=sampling.samples, seed=sampling.seed)
                about = NAME, model, against, kind.value, "Spearman"
                differences.append(ModelDifference(*about, *astuple(test)))
    return differences
