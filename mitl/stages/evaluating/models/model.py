"""A model as it is scored: rankings, or similarities of every image and every caption, in a set's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mitl.metrics.positives import Ids
from mitl.metrics.ranked import NOTHING, locate_rows
from mitl.records import Direction

EVERY = slice(None)


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """Rankings of one direction: ``query_ids`` (Q,), ``items`` (Q, depth) best first, ``ends`` (Q,) their lengths.

    Beyond a ranking's end, ``items`` holds ``NOTHING``. It is a ``mitl.metrics.ranked.Rankings``.
    """

    query_ids: Ids
    items: Ids
    ends: Ids

    @classmethod
    def whole(cls, query_ids: Ids, items: Ids) -> Ranked:
        """Rankings that are all as deep as the array."""
        return cls(query_ids, items, np.full(len(items), items.shape[1], np.int64))

    def rows_of(self, wanted: Ids) -> Ids:
        """The rows of these queries: (Q,); MetricError where one has no ranking, or has two."""
        return locate_rows(self.query_ids, wanted)

    def lengths(self, rows: Ids) -> Ids:
        """How many items the rankings of these rows name: (n,)."""
        return self.ends[rows]

    def block(self, rows: Ids, start: int, stop: int) -> NDArray[Any]:
        """The items at places ``start + 1`` to ``stop`` of these rows: (n, stop - start)."""
        found = self.items[rows, start : min(stop, self.items.shape[1])]
        missing = stop - start - found.shape[1]
        return found if missing <= 0 else np.pad(found, ((0, 0), (0, missing)), constant_values=NOTHING)


class Similarities(Protocol):
    """Similarities in the order of both sides; higher is closer."""

    def block(self, direction: Direction, rows: slice | Ids) -> NDArray[Any]:
        """(B, G): of these queries with the whole gallery."""
        ...


@runtime_checkable
class WithinSides(Similarities, Protocol):
    """Similarities of two items of one side as well."""

    def between(
        self, modality: str, rows: slice | Ids, other: str, columns: slice | Ids = EVERY
    ) -> NDArray[Any]:
        """(B, G) of some items of one side with some of another, or of the same one."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """Embeddings in the order of both sides: (I, D) and (C, D), or (I, K, D) and (C, K, D) for the best of K x K."""

    images: NDArray[Any]
    captions: NDArray[Any]

    def side(self, modality: str) -> NDArray[Any]:
        """The images' or the captions'."""
        return self.images if modality == "image" else self.captions

    def block(self, direction: Direction, rows: slice | Ids) -> NDArray[np.float32]:
        """(B, G) inner products, or the best of the K x K."""
        sides = ("image", "caption") if direction is Direction.I2T else ("caption", "image")
        return self.between(sides[0], rows, sides[1])

    def between(
        self, modality: str, rows: slice | Ids, other: str, columns: slice | Ids = EVERY
    ) -> NDArray[np.float32]:
        """(B, G) of some rows of one side with some of another, or of the same one."""
        from annotators.scoring.similarity import best_inner_products, inner_products

        queries, gallery = self.side(modality)[rows], self.side(other)[columns]
        product = best_inner_products if gallery.ndim == 3 else inner_products
        return product(queries, gallery)


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """A matrix of similarities and which of its rows and columns are the sides' items."""

    values: NDArray[Any]
    image_rows: Ids
    caption_columns: Ids

    def block(self, direction: Direction, rows: slice | Ids) -> NDArray[Any]:
        """(B, G): the rows of some images, or the columns of some captions turned."""
        if direction is Direction.I2T:
            return np.asarray(self.values[self.image_rows[rows]])[:, self.caption_columns]
        return np.asarray(self.values[:, self.caption_columns[rows]])[self.image_rows].T


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """One model, fitted to a set's images and captions."""

    name: str
    rankings: Mapping[Direction, Ranked] = field(default_factory=dict)
    similarities: Similarities | None = None
    cut: bool = False
    """Whether the rankings are only as deep as the tasks that are not ``deep`` need."""
