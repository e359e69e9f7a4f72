"""CxC's files in a set's numbers: positives of its four retrieval tasks, and correlations with its scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mitl.datasets.cxc import RatedPairs, read_rated_pairs
from mitl.errors import DatasetError
from mitl.metrics.correlation import ScoredPairs, paired_spearman, sampled_spearman
from mitl.metrics.crisscrossed import Task, across_positives, image_positives, scored_pairs, text_positives
from mitl.metrics.positives import Ids, Positives
from mitl.metrics.retrieval import Values
from mitl.progress import Progress
from mitl.records import Direction
from mitl.records.similarity import Likeness
from mitl.stages.evaluating.figures import CONFIDENCE, Comparison, Figure, Sampling, Scored
from mitl.stages.evaluating.models import Block, Model, Side, Sides, WithinSides, joined
from mitl.stages.evaluating.request import Wanted
from mitl.stages.evaluating.tasks import PositivesTask, block_values

NAME = "cxc"
SPLITS = ("test", "val")
_SIDES = {
    Likeness.SITS: ("image", "caption"),
    Likeness.STS: ("caption", "caption"),
    Likeness.SIS: ("image", "image"),
}
_CELLS = 1 << 24
_ROWS = 256
"""First items whose pairs are looked up together."""


@dataclass(frozen=True, slots=True, eq=False)
class Crisscrossed:
    """The scores of one split in the sides' numbers; pairs with an item that the sides lack are left out."""

    split: str
    rated: Mapping[Likeness, RatedPairs]
    left_out: int


def split_of(folder: Path) -> str:
    """``test``, or ``val`` where the test's scores of images and captions are not there.

    Raises:
        DatasetError: it is not a folder of CxC's files.
    """
    if not folder.is_dir():
        raise DatasetError(
            f"there is no folder {str(folder)!r}; it should hold sits_test.csv, sts_test.csv and sis_test.csv of CxC"
        )
    for split in SPLITS:
        if (folder / f"sits_{split}.csv").is_file():
            return split
    raise DatasetError(
        f"{str(folder)!r} holds neither sits_test.csv nor sits_val.csv; it should be the folder of CxC's files"
    )


def read_crisscrossed(folder: Path, sides: Sides) -> Crisscrossed:
    """The files of a folder; those of captions alone and of images alone may be missing.

    Raises:
        DatasetError: a file is malformed, or the sides hold no rated pair.
    """
    split = split_of(folder)
    rated: dict[Likeness, RatedPairs] = {}
    left_out = 0
    for kind in Likeness:
        path = folder / f"{kind}_{split}.csv"
        if not path.is_file():
            continue
        whole = read_rated_pairs(path, kind)
        found = _inside(whole, [sides.of(modality) for modality in _SIDES[kind]])
        left_out += len(whole) - len(found)
        if len(found):
            rated[kind] = found
    if Likeness.SITS not in rated:
        raise DatasetError(
            f"the {split} files in {str(folder)!r} rate no pair of these images and captions; are the ids COCO's?"
        )
    return Crisscrossed(split, rated, left_out)


def _inside(rated: RatedPairs, sides: Sequence[Side]) -> RatedPairs:
    """The pairs of which the sides hold both items, in the sides' numbers."""
    columns = []
    for ids, side in zip((rated.first, rated.second), sides, strict=True):
        numbers = [side.number_of.get(str(one), -1) for one in ids.tolist()]
        columns.append(np.array(numbers, np.int64))
    kept = (columns[0] >= 0) & (columns[1] >= 0)
    return RatedPairs(rated.kind, columns[0][kept], columns[1][kept], rated.scores[kept])


def across_task(known: Crisscrossed, wanted: Wanted) -> PositivesTask:
    """Image to text and text to image."""
    found = across_positives(known.rated[Likeness.SITS])
    return PositivesTask(NAME, {direction: found[Task(direction.value)] for direction in Direction}, wanted)


def score_within_sides(
    model: Model, known: Crisscrossed, sides: Sides, image_of: Ids, wanted: Wanted, progress: Progress
) -> list[Scored]:
    """Text to text and image to image; nothing for a model without similarities within a side, or without files."""
    if not isinstance(model.similarities, WithinSides):
        return []
    tasks: list[tuple[Task, Side, Positives]] = []
    if Likeness.STS in known.rated:
        own = sides.captions.numbers, image_of
        tasks.append((Task.T2T, sides.captions, text_positives(known.rated[Likeness.STS], of_images=own)))
    if Likeness.SIS in known.rated:
        tasks.append((Task.I2I, sides.images, image_positives(known.rated[Likeness.SIS])))
    return [
        Scored(NAME, model.name, task.value, _within(model, side, positives, wanted, progress))
        for task, side, positives in tasks
        if len(positives)
    ]


def _within(model: Model, side: Side, positives: Positives, wanted: Wanted, progress: Progress) -> Values:
    """The values of one side's items searching the others of the same side."""
    similarities = model.similarities
    assert isinstance(similarities, WithinSides)
    parts = []
    size = max(1, _CELLS // len(side))
    with progress(f"score {model.name} within {side.plural}", total=len(positives)) as advance:
        for start in range(0, len(positives), size):
            some = positives.query_ids[start : start + size]
            places = side.places(some)
            found = np.array(similarities.between(side.modality, places, side.modality))
            found[np.arange(len(some)), places] = -np.inf  # the query itself is not among what is retrieved
            block = Block(some, side.numbers, found)
            parts.append(block_values(block, positives.of_queries(some), wanted.metrics))
            advance(len(some))
    return joined(parts)


def rated_similarities(model: Model, known: Crisscrossed, sides: Sides) -> dict[Likeness, ScoredPairs]:
    """The model's similarities beside each kind of scores that it has them for."""
    found = {kind: _pair_similarities(model, rated, sides) for kind, rated in known.rated.items()}
    return {
        kind: scored_pairs(known.rated[kind], similarities)
        for kind, similarities in found.items()
        if similarities is not None
    }


def correlations(model: str, rated: Mapping[Likeness, ScoredPairs], sampling: Sampling) -> list[Figure]:
    """The sampled Spearman correlation of one model with each kind of scores."""
    return [_correlation(model, pairs, kind, sampling) for kind, pairs in rated.items()]


def compare_correlations(
    rated: Mapping[str, Mapping[Likeness, ScoredPairs]], against: str, sampling: Sampling
) -> list[Comparison]:
    """Every other model's correlations less those of one, on the same samples; kinds that both have."""
    return [
        _comparison(model, against, kind, (pairs, rated[against][kind]), sampling)
        for model, kinds in rated.items()
        for kind, pairs in kinds.items()
        if model != against and kind in rated.get(against, {})
    ]


def _comparison(
    model: str, against: str, kind: Likeness, pairs: tuple[ScoredPairs, ScoredPairs], sampling: Sampling
) -> Comparison:
    test = paired_spearman(*pairs, samples=sampling.samples, confidence=CONFIDENCE, seed=sampling.seed)
    return Comparison(
        NAME,
        model,
        against,
        kind.value,
        "Spearman",
        test.difference,
        test.low,
        test.high,
        test.p_value,
        test.n_queries,
    )


def _correlation(model: str, pairs: ScoredPairs, kind: Likeness, sampling: Sampling) -> Figure:
    drawn = sampled_spearman(pairs, samples=sampling.samples, seed=sampling.seed)
    ends = drawn.interval(CONFIDENCE)
    low, high = (ends.low, ends.high) if sampling.intervals else (None, None)
    return Figure(NAME, model, kind.value, "Spearman", drawn.mean, low, high, drawn.n_queries, std=drawn.std)


def _pair_similarities(model: Model, rated: RatedPairs, sides: Sides) -> NDArray[np.float64] | None:
    """(P,) the model's similarities of the pairs; None where it has none of the kind."""
    one, other = _SIDES[rated.kind]
    first, second = sides.of(one).places(rated.first), sides.of(other).places(rated.second)
    block = _lookup(model, rated.kind)
    if block is None:
        return None
    found = np.empty(len(rated))
    order = np.argsort(first, kind="stable")
    heads, starts = np.unique(first[order], return_index=True)
    ends = np.append(starts[1:], len(order))
    for begin in range(0, len(heads), _ROWS):
        rows = heads[begin : begin + _ROWS]
        places = order[starts[begin] : ends[min(begin + _ROWS, len(heads)) - 1]]
        columns = np.unique(second[places])
        table = block(rows, columns)
        found[places] = table[np.searchsorted(rows, first[places]), np.searchsorted(columns, second[places])]
    return found


def _lookup(model: Model, kind: Likeness) -> Callable[[Ids, Ids], NDArray[np.float64]] | None:
    """What gives similarities of some first items with some second ones."""
    similarities = model.similarities
    one, other = _SIDES[kind]
    if isinstance(similarities, WithinSides):
        return lambda rows, columns: np.asarray(similarities.between(one, rows, other, columns))
    if similarities is not None and kind is Likeness.SITS:
        return lambda rows, columns: similarities.block(Direction.I2T, rows)[:, columns]
    return None
