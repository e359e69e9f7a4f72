"""Pseudo-labels as what models are compared with: of the whole gallery query by query, and beside people's ratings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypedDict

import numpy as np

from mitl.datasets.cxc import RatedPairs
from mitl.errors import MetricError
from mitl.metrics.correlation import ScoredPairs, pearson, pseudo_labels
from mitl.metrics.positives import Ids, Positives, QueryValues
from mitl.metrics.pseudo import CaptionLabels, dense_values
from mitl.metrics.retrieval import Values
from mitl.records import Direction
from mitl.records.similarity import Likeness
from mitl.stages.evaluating.models import Block, Sides, joined
from mitl.stages.evaluating.scoring import ScoredTask

PSEUDO_LABELS = "pseudo-labels"


class LabelledModel(TypedDict):
    """One model on the rated pairs."""

    with_scores: Annotated[float, "Pearson's correlation of its similarities with people's scores"]
    with_labels: Annotated[float, "the same with the pseudo-labels"]


class LabelledRatings(TypedDict):
    """Pseudo-labels beside people's ratings of images and captions, over all rated pairs."""

    pairs: Annotated[int, "rated pairs"]
    labels_with_scores: Annotated[float, "Pearson's correlation of the pseudo-labels with people's scores"]
    models: Annotated[
        dict[str, LabelledModel], "model → `with_scores` and `with_labels`, Pearson's correlations"
    ]


@dataclass(frozen=True, slots=True, eq=False)
class PseudoLabelsTask(ScoredTask):
    """Kendall's tau-b and Pearson of every query over the whole gallery.

    Rankings have neither: they do not say how much more like one item is than another.
    """

    labels: CaptionLabels
    image_of: Ids
    """(C,) the number of each caption's image."""
    sides: Sides
    name: str = PSEUDO_LABELS

    def queries(self, direction: Direction) -> Ids:
        """All items that search."""
        return self.sides.queries(direction).numbers

    def score(self, direction: Direction, block: Block) -> tuple[QueryValues, ...]:
        """The values of a block; none where nothing in it can be told apart."""
        places = self.sides.queries(direction).places(block.query_ids)
        i2t = direction is Direction.I2T
        labels = self.labels.of_images(places) if i2t else self.labels.of_captions(places)
        try:
            return dense_values(block.query_ids, block.similarities, labels)
        except MetricError:
            return ()

    def values(self, direction: Direction, parts: Sequence[tuple[QueryValues, ...]]) -> Values:
        """Of all queries.

        Raises:
            MetricError: no query has a value.
        """
        scored = [part for part in parts if part]
        if not scored:
            raise MetricError("the model or the pseudo-labels tell nothing apart, so they do not correlate")
        left_out = len(self.queries(direction)) - sum(len(part[0]) for part in scored)
        return tuple(
            QueryValues(values.metric, values.query_ids, values.values, left_out=left_out)
            for values in joined(scored)
        )


def pseudo_task(vectors: np.ndarray, sides: Sides, image_of: Ids) -> PseudoLabelsTask:
    """The task over these sides.

    Args:
        vectors: (C, D) of the captions, in their order.
        image_of: (C,) the number of each caption's image.
    """
    places = sides.images.places(image_of)
    return PseudoLabelsTask(CaptionLabels(vectors, places, len(sides.images)), image_of, sides)


def on_ratings(
    task: PseudoLabelsTask, pairs: RatedPairs, rated: Mapping[str, Mapping[Likeness, ScoredPairs]]
) -> LabelledRatings:
    """Pseudo-labels, people's scores and each model over the rated pairs of images and captions."""
    captions = task.sides.captions.numbers
    labels = pseudo_labels(
        pairs.first,
        pairs.second,
        (captions, task.labels.vectors),
        Positives.from_pairs(task.image_of, captions),
    )
    return {
        "pairs": len(pairs),
        "labels_with_scores": pearson(labels, pairs.scores),
        "models": {
            model: {
                "with_scores": pearson(kinds[Likeness.SITS].similarities, pairs.scores),
                "with_labels": pearson(kinds[Likeness.SITS].similarities, labels),
            }
            for model, kinds in rated.items()
            if Likeness.SITS in kinds
        },
    }
