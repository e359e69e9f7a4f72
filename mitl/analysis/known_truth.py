"""Recall and precision of sets of positives against a known truth, on packed pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mitl.core.arrays import unpack_ids
from mitl.records import Direction


@dataclass(frozen=True, slots=True)
class Score:
    """How many pairs are called positive, how many are positive in truth, and how many are both."""

    found: int
    positives: int
    truth: int

    @property
    def recall(self) -> float | None:
        """Share of the true pairs that are called positive, 0 to 1; None where nothing is true."""
        return self.found / self.truth if self.truth else None

    @property
    def precision(self) -> float | None:
        """Share of the pairs called positive that are true, 0 to 1; None where nothing is called positive."""
        return self.found / self.positives if self.positives else None


@dataclass(frozen=True, slots=True)
class DirectionScores:
    """One set of positives against the truth: for image queries, for caption queries, and for both."""

    i2t: Score
    t2i: Score
    together: Score
    """Over the union of both directions' pairs; a pair that both directions hold counts once."""


def recall_precision(positives: ArrayLike, truth: ArrayLike, universe: ArrayLike | None = None) -> Score:
    """The counts behind recall and precision; each argument is packed pairs in any order, repeats allowed.

    Pairs outside ``universe`` count on neither side. None means that both sets lie inside it already.
    """
    called = np.unique(np.asarray(positives, dtype=np.int64))
    true = np.unique(np.asarray(truth, dtype=np.int64))
    if universe is not None:
        inside = np.asarray(universe, dtype=np.int64)
        called = called[np.isin(called, inside)]
        true = true[np.isin(true, inside)]
    found = np.intersect1d(called, true, assume_unique=True)
    return Score(found=len(found), positives=len(called), truth=len(true))


def within_queries(
    packed: ArrayLike,
    image_queries: ArrayLike,
    caption_queries: ArrayLike,
    direction: Direction | None = None,
) -> NDArray[np.int64]:
    """The pairs whose image is an image query (i2t), whose caption is a caption query (t2i), or either.

    This is membership in query x gallery where the gallery is the whole data set, without listing it:
    1,261 x 25,000 + 1,333 x 5,000 pairs would be 38 million numbers.
    """
    pairs = np.asarray(packed, dtype=np.int64)
    images, captions = unpack_ids(pairs)
    by_image = np.isin(images, np.asarray(image_queries, dtype=np.int64))
    by_caption = np.isin(captions, np.asarray(caption_queries, dtype=np.int64))
    if direction is Direction.I2T:
        return pairs[by_image]
    if direction is Direction.T2I:
        return pairs[by_caption]
    return pairs[by_image | by_caption]


def score_directions(
    positives: ArrayLike, truth: ArrayLike, image_queries: ArrayLike, caption_queries: ArrayLike
) -> DirectionScores:
    """Recall and precision over all query x gallery pairs, by direction and together.

    Args:
        positives, truth: packed pairs; those of other queries are left out.
        image_queries, caption_queries: surrogate ids of the run's queries; the gallery is the whole data set.
    """

    def score(direction: Direction | None) -> Score:
        return recall_precision(
            within_queries(positives, image_queries, caption_queries, direction),
            within_queries(truth, image_queries, caption_queries, direction),
        )

    return DirectionScores(i2t=score(Direction.I2T), t2i=score(Direction.T2I), together=score(None))
