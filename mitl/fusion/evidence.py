"""What a probability is fused from: rankings, vectors of single items, captions by image, and the answers so far.

Rankings become features: similarities and ranks in both directions, on scales of no one query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.core.arrays import Ints, distinct, places, unpack_ids
from mitl.records import Direction
from mitl.records.frames import Schema

Floats = NDArray[np.float32]

ANSWERED: Schema = {
    "pair": ("int64", "packed, ascending and distinct"),
    "yes": ("float64", "usable answers that call it a match"),
    "no": ("float64", "usable answers that do not"),
}
"""What people have said of pairs so far, each answer counted once."""


@dataclass(frozen=True, slots=True, eq=False)
class UnitVectors:
    """Unit vectors of one side's items, whose cosine says how alike two of them are."""

    name: str
    ids: Ints
    """(N,) rising."""
    rows: Floats
    """(N, D) of length 1, or zero where nothing is known of an item."""

    def of(self, ids: Ints) -> Floats:
        """(n, D) of these items; zero rows for those that it lacks."""
        at = places(self.ids, ids)
        rows: Floats = self.rows[np.maximum(at, 0)] * (at >= 0)[:, None].astype(np.float32)
        return rows


def of_length_1(rows: Floats) -> Floats:
    """The rows scaled to length 1; zero ones stay zero."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Floats = (rows / np.where(length > 0, length, 1)).astype(np.float32)
    return scaled


WIDEST = 256
"""Numbers of a vector that are compared; wider ones are turned into their main directions."""


def narrowed(vectors: UnitVectors) -> UnitVectors:
    """Vectors of ``WIDEST`` numbers at most, by the directions in which the items differ most from zero."""
    rows = vectors.rows
    if rows.shape[1] <= WIDEST:
        return vectors
    _, axes = np.linalg.eigh((rows.T @ rows).astype(np.float64))
    turned = rows @ axes[:, -WIDEST:].astype(np.float32)
    return UnitVectors(vectors.name, vectors.ids, of_length_1(turned))


def joined(name: str, several: Sequence[UnitVectors]) -> tuple[UnitVectors, ...]:
    """One set of vectors whose cosine is the mean of the cosines of several; none of none."""
    if not several:
        return ()
    assert all(np.array_equal(vectors.ids, several[0].ids) for vectors in several), "of the same items"
    rows = of_length_1(np.concatenate([narrowed(vectors).rows for vectors in several], axis=1))
    return (narrowed(UnitVectors(name, several[0].ids, rows)),)


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """One annotator's vectors of both sides in one space."""

    images: UnitVectors
    captions: UnitVectors


@dataclass(frozen=True, eq=False)
class FusionEvidence:
    """All that the features of ranked pairs are made of; what is missing leaves its features out."""

    ranked: pd.DataFrame
    """``PROPOSALS``: each pair, annotator and direction once, to the rankings' full depth."""
    captions: Ints
    """(C,) rising."""
    image_of: Ints
    """(C,) the image that each caption was written for."""
    answers: pd.DataFrame
    """``ANSWERED``."""
    texts: tuple[UnitVectors, ...] = ()
    """Of captions."""
    pictures: tuple[UnitVectors, ...] = ()
    """Of images."""
    joint: tuple[Joint, ...] = ()
    words: tuple[tuple[str, ...], ...] = field(default=())
    """(C,) the words of each caption, in its order; empty where no text is read."""

    @cached_property
    def pairs(self) -> Ints:
        """(n,) the ranked pairs, ascending and distinct."""
        return distinct(self.ranked["pair"].to_numpy())

    @cached_property
    def images(self) -> Ints:
        """(n,) the pairs' images."""
        return unpack_ids(self.pairs)[0]

    @cached_property
    def pair_captions(self) -> Ints:
        """(n,) the pairs' captions."""
        return unpack_ids(self.pairs)[1]

    @cached_property
    def groups(self) -> Ints:
        """(n,) the images that the pairs' captions were written for."""
        return self.group_of(self.pair_captions)

    def group_of(self, captions: Ints) -> Ints:
        """The image that each of these captions was written for."""
        at = places(self.captions, captions)
        assert (at >= 0).all(), "a ranked caption is one of the data set"
        return self.image_of[at]

    @cached_property
    def own(self) -> OwnCaptions:
        """The captions of each image."""
        return OwnCaptions.of(self.captions, self.image_of)


@dataclass(frozen=True, slots=True, eq=False)
class OwnCaptions:
    """Captions by the image that they were written for."""

    images: Ints
    """(G,) rising; those that have captions."""
    starts: Ints
    """(G + 1,) where each image's captions begin."""
    captions: Ints
    """(C,) by image."""

    @classmethod
    def of(cls, captions: Ints, image_of: Ints) -> OwnCaptions:
        """From each caption's image."""
        order = np.lexsort((captions, image_of))
        images, first = np.unique(image_of[order], return_index=True)
        return cls(images, np.append(first, len(order)).astype(np.int64), captions[order])

    def of_image(self, image: int) -> Ints:
        """An image's captions; none where it has none."""
        at = int(np.searchsorted(self.images, image))
        if at == len(self.images) or self.images[at] != image:
            return self.captions[:0]
        return self.captions[self.starts[at] : self.starts[at + 1]]


DIRECTIONS = tuple(Direction)


def ranking_features(evidence: FusionEvidence) -> tuple[list[str], Floats]:
    """Names, and (n, F): of each annotator and direction the similarity within its query and the rank.

    * ``gap``: how far below the query's best, in standard deviations of the annotator's similarities within queries;
    * ``place``: 1 / rank;
    * ``similarity``: as it is.

    A pair that a query's ranking does not list has the values of its last place, beyond which it lies; NaN stands
    where its item did not search.
    """
    names: list[str] = []
    columns: list[Floats] = []
    for name, rows in _by_annotator(evidence.ranked):
        by_direction = []
        for number, direction in enumerate(DIRECTIONS):
            ranked = rows[rows["direction"] == number]
            if len(ranked):
                queries = evidence.images if direction is Direction.I2T else evidence.pair_captions
                by_direction.append(_of_ranking(ranked, direction, evidence.pairs, queries))
                names += [f"{name}.{direction}.gap", f"{name}.{direction}.place"]
                columns += [by_direction[-1][0], by_direction[-1][1]]
        names.append(f"{name}.similarity")
        columns.append(np.fmax.reduce([features[2] for features in by_direction]))
    names += ["ranked_by", "mean_place", "mean_gap"]
    # How many annotators rank the pair in any direction.
    codes = evidence.ranked["annotator"].cat.codes.to_numpy()
    at = places(evidence.pairs, evidence.ranked["pair"].to_numpy())
    finds = np.unique(np.stack([at, codes.astype(np.int64)], axis=1), axis=0)
    finders = np.bincount(finds[:, 0], minlength=len(evidence.pairs)).astype(np.float32)
    columns += [finders, *_means(names, columns)]
    return names, np.stack(columns, axis=1).astype(np.float32)


def _by_annotator(ranked: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for name in ranked["annotator"].cat.categories:
        rows = ranked[ranked["annotator"] == name]
        if len(rows):
            yield str(name), rows


def _of_ranking(
    rows: pd.DataFrame, direction: Direction, pairs: Ints, queries: Ints
) -> tuple[Floats, Floats, Floats]:
    """(n,) each: gap, place and similarity by the rankings of one annotator in one direction."""
    packed = rows["pair"].to_numpy()
    images, captions = unpack_ids(packed)
    asking = images if direction is Direction.I2T else captions
    similarity = rows["similarity"].to_numpy(np.float64)
    rank = rows["rank"].to_numpy(np.float64)
    searchers, at = np.unique(asking, return_inverse=True)
    best, worst = np.full(len(searchers), -np.inf), np.full(len(searchers), np.inf)
    np.maximum.at(best, at, similarity)
    np.minimum.at(worst, at, similarity)
    deepest = np.zeros(len(searchers))
    np.maximum.at(deepest, at, rank)
    count = np.bincount(at)
    mean = np.bincount(at, similarity) / count
    spread = float(np.sqrt(np.mean((similarity - mean[at]) ** 2))) or 1.0
    of_query = places(searchers, queries)
    asked = of_query >= 0
    gap, place, value = (np.full(len(pairs), np.nan) for _ in range(3))
    who = of_query[asked]
    gap[asked], place[asked], value[asked] = (best - worst)[who], 1 / (deepest[who] + 1), worst[who]
    listed = places(pairs, packed)
    gap[listed], place[listed], value[listed] = best[at] - similarity, 1 / rank, similarity
    return (gap / spread).astype(np.float32), place.astype(np.float32), value.astype(np.float32)


def _means(names: list[str], columns: list[Floats]) -> Iterator[Floats]:
    """(n,) the mean place and the mean gap over annotators and directions; NaN where nothing is known."""
    for kind in (".place", ".gap"):
        block = np.stack(
            [column for name, column in zip(names, columns, strict=False) if name.endswith(kind)]
        )
        defined = ~np.isnan(block)
        count = defined.sum(axis=0)
        total = np.where(defined, block, 0).sum(axis=0)
        yield np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(np.float32)
