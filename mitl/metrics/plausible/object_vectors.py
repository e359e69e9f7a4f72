"""Which objects belong to each image or caption, as binary vectors over the object classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.metrics.positives import Ids, Places


@dataclass(frozen=True, slots=True, eq=False)
class ObjectVectors:
    """``vectors`` (N, C), true where an object of class c belongs to the item; ``ids`` (N,), each once."""

    ids: Ids
    vectors: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or len(self.vectors) != len(self.ids):
            raise MetricError(f"object vectors are {self.vectors.shape}, but {len(self.ids)} ids were given")
        if self.vectors.dtype != np.bool_:
            raise MetricError(f"object vectors are {self.vectors.dtype}; give booleans, an item a row")

    def __len__(self) -> int:
        return len(self.ids)

    def of_captions(self, caption_ids: Ids, image_ids: Ids) -> ObjectVectors:
        """The captions' vectors: those of their images, ``image_ids`` (M,) beside ``caption_ids`` (M,).

        Raises:
            MetricError: the arrays differ in length, or an image is not among these.
        """
        if len(caption_ids) != len(image_ids):
            raise MetricError(f"{len(caption_ids)} captions, but {len(image_ids)} images of theirs")
        places = Places.of(self.ids, "images with objects").need(image_ids, "the captions' images")
        return ObjectVectors(np.asarray(caption_ids, dtype=np.int64), self.vectors[places])

    def with_objects(self) -> ObjectVectors:
        """These without the items that have no object."""
        some = self.vectors.any(axis=1)
        return ObjectVectors(self.ids[some], self.vectors[some])


@dataclass(frozen=True, slots=True, eq=False)
class ObjectKinds:
    """The distinct vectors (U, C), as numbers for products, and the kind of each item (N,)."""

    vectors: NDArray[np.float32]
    of_item: Ids

    @classmethod
    def of(cls, vectors: NDArray[np.bool_]) -> ObjectKinds:
        """The kinds of (N, C) vectors."""
        words = _words(vectors)
        order = np.lexsort(words.T)
        new = np.ones(len(order), dtype=np.bool_)
        new[1:] = (words[order][1:] != words[order][:-1]).any(axis=1)
        of_item = np.empty(len(order), dtype=np.int64)
        of_item[order] = np.cumsum(new) - 1
        return cls(vectors[order[new]].astype(np.float32), of_item)

    def distances(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """(B, U) in how many classes each of ``vectors`` (B, C) differs from each kind."""
        common = vectors @ self.vectors.T  # whole numbers below 2 ** 24: exact
        lengths = vectors.sum(axis=1)[:, None] + self.vectors.sum(axis=1)[None, :]
        return np.asarray(lengths - 2 * common, dtype=np.float32)


def _words(vectors: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """The vectors as (N, W) words of 64 classes each, one at least."""
    packed = np.packbits(vectors, axis=1)
    missing = -packed.shape[1] % 8 if packed.shape[1] else 8
    return np.ascontiguousarray(np.pad(packed, ((0, 0), (0, missing)))).view(np.uint64)
