"""What a probability is fused from: rankings, vectors of single items, captions by image, and the answers so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.core.arrays import Ints, distinct, places, unpack_ids
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
        found: Floats = self.rows[np.maximum(at, 0)] * (at >= 0)[:, None].astype(np.float32)
        return found


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
    assert all(np.array_equal(one.ids, several[0].ids) for one in several), "of the same items"
    rows = of_length_1(np.concatenate([narrowed(one).rows for one in several], axis=1))
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
