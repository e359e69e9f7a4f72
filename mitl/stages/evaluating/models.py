"""A model as it is scored: rankings, or similarities of every image and every caption, in a set's numbers.

Similarities are scored block by block, so that no full ranking of all queries is held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mitl.datasets.assembling import id_kind, tie_key
from mitl.errors import MetricError, UsageError
from mitl.metrics.intervals import QueryGroups
from mitl.metrics.positives import Ids, QueryValues
from mitl.metrics.ranks import NOTHING, locate_rows
from mitl.progress import Progress
from mitl.records import Direction, IdKind

Modality = str
"""``image`` or ``caption``."""
BOTH: frozenset[Modality] = frozenset({"image", "caption"})
EVERY = slice(None)
Rows = slice | Ids
_CELLS = 1 << 24
"""Similarities held at once: some 64 MB in float32."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelSide:
    """The images, or the captions, in tie order: ``ids[i]`` has the number ``numbers[i]``; numbers rise strictly."""

    modality: Modality
    ids: tuple[str, ...]
    numbers: Ids
    number_of: Mapping[str, int]

    @classmethod
    def of(cls, modality: Modality, ids: Iterable[str], kind: IdKind) -> ModelSide:
        """A side of these ids in tie order; integers are their own numbers, texts are numbered from 0."""
        ordered = tuple(sorted(set(ids), key=tie_key(kind)))
        numbers = [int(name) for name in ordered] if kind is IdKind.INTEGER else range(len(ordered))
        return cls.numbered(modality, dict(zip(ordered, numbers, strict=True)))

    @classmethod
    def numbered(cls, modality: Modality, number_of: Mapping[str, int]) -> ModelSide:
        """A side whose items have numbers already, rising."""
        return cls(modality, tuple(number_of), np.array(list(number_of.values()), np.int64), number_of)

    @property
    def plural(self) -> str:
        """``images`` or ``captions``."""
        return f"{self.modality}s"

    def __len__(self) -> int:
        return len(self.ids)

    def places(self, numbers: Ids) -> Ids:
        """Where these numbers stand among the side's: what row or column of an array is theirs."""
        return np.searchsorted(self.numbers, numbers).astype(np.int64)

    def id_of(self, number: int) -> str:
        """The external id behind a number; MetricError where there is none."""
        place = int(np.searchsorted(self.numbers, number))
        if place == len(self.ids) or self.numbers[place] != number:
            raise MetricError(f"no {self.modality} has the number {number}")
        return self.ids[place]


@dataclass(frozen=True, slots=True, eq=False)
class Sides:
    """What is searched with and in."""

    images: ModelSide
    captions: ModelSide
    references: Mapping[Direction, Mapping[int, frozenset[int]]] = field(default_factory=dict)
    """Direction → query → items that it may not find: a composed query its reference, and the other way round."""

    @classmethod
    def named(cls, images: Iterable[str], captions: Iterable[str]) -> Sides:
        """Both sides in the tie order that a project of these ids has: by value only if all of both are integers."""
        images, captions = list(images), list(captions)
        kind = id_kind([*images, *captions])
        return cls(ModelSide.of("image", images, kind), ModelSide.of("caption", captions, kind))

    def with_references(self, references: Mapping[str, str]) -> Sides:
        """The same with each composed query's reference, by external ids; those of other queries are left out."""
        numbers = [
            (self.images.number_of[image], self.captions.number_of[query])
            for query, image in references.items()
            if image in self.images.number_of and query in self.captions.number_of
        ]
        hidden: dict[Direction, dict[int, frozenset[int]]] = {direction: {} for direction in Direction}
        for image, query in numbers:
            of_image = hidden[Direction.I2T]
            of_image[image] = of_image.get(image, frozenset()) | {query}
            hidden[Direction.T2I][query] = frozenset([image])
        return replace(self, references=hidden)

    def queries(self, way: str) -> ModelSide:
        """The side that searches, i2t, t2i, t2t or i2i."""
        return self.images if way.startswith("i") else self.captions

    def gallery(self, way: str) -> ModelSide:
        """The side that is searched."""
        return self.images if way.endswith("i") else self.captions

    def of(self, modality: Modality) -> ModelSide:
        """The images or the captions."""
        return self.images if modality == "image" else self.captions


def caption_groups(sides: Sides, image_of: Mapping[str, str]) -> QueryGroups:
    """The captions of each image, under its number; one of which no image is told stands alone."""
    fresh = count(int(sides.images.numbers.max(initial=-1)) + 1)
    number_of = dict(sides.images.number_of)
    groups = [
        number_of.setdefault(image_of[caption_id], next(fresh)) if caption_id in image_of else next(fresh)
        for caption_id in sides.captions.ids
    ]
    return QueryGroups(sides.captions.numbers, np.array(groups, np.int64))


def image_numbers(sides: Sides, image_of: Mapping[str, str]) -> Ids:
    """(C,) the number of each caption's image; UsageError if it is not told, or not among the images."""
    number_of, captions = sides.images.number_of, sides.captions.ids
    lost = next((caption for caption in captions if image_of.get(caption) not in number_of), None)
    if lost is not None:
        raise UsageError(
            f"whose caption {lost} is cannot be told outside a project; give --captions FILE, work in one, or score on "
            "COCO's test split"
        )
    return np.array([number_of[image_of[caption]] for caption in captions], np.int64)


def strange_ids_hint(wanted: Sequence[str], found: Sequence[str]) -> str:
    """What to say besides where ids of a file match none of a set's: most often another way to write them."""
    if not wanted or not found or set(wanted) & set(found):
        return ""
    return f"; ids are compared as texts: the set's look like {wanted[0]!r}, the file's like {found[0]!r}"


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """Rankings of one direction: ``query_ids`` (Q,), ``items`` (Q, depth) best first, ``ends`` (Q,) their lengths.

    Beyond a ranking's end, ``items`` holds ``NOTHING``. It is a ``mitl.metrics.ranks.Rankings``.
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
        items = self.items[rows, start : min(stop, self.items.shape[1])]
        missing = stop - start - items.shape[1]
        return items if missing <= 0 else np.pad(items, ((0, 0), (0, missing)), constant_values=NOTHING)


class Similarities(Protocol):
    """Similarities of items, in the order of their sides; higher is closer."""

    def between(self, modality: Modality, rows: Ids, other: Modality, columns: Rows = EVERY) -> NDArray[Any]:
        """(B, G) of some items of one side with some of another, or of the same one where the model has those."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ModelVectors:
    """Embeddings of one side or both, in their order: (N, D), or (N, K, D) for the best of K x K."""

    of_side: Mapping[Modality, NDArray[Any]]

    def between(self, modality: Modality, rows: Ids, other: Modality, columns: Rows = EVERY) -> NDArray[Any]:
        """(B, G) inner products, or the best of the K x K."""
        from annotators.base import best_inner_products, inner_products

        queries, gallery = self.of_side[modality][rows], self.of_side[other][columns]
        product = best_inner_products if gallery.ndim == 3 else inner_products
        return product(queries, gallery)


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """A matrix of similarities and which of its rows and columns are the sides' items."""

    values: NDArray[Any]
    image_rows: Ids
    caption_columns: Ids

    def between(self, modality: Modality, rows: Ids, other: Modality, columns: Rows = EVERY) -> NDArray[Any]:
        """(B, G): the rows of some images, or the columns of some captions turned."""
        if modality == "image":
            return np.asarray(self.values[self.image_rows[rows]])[:, self.caption_columns[columns]]
        return np.asarray(self.values[:, self.caption_columns[rows]])[self.image_rows[columns]].T


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """One model, fitted to a set's images and captions."""

    name: str
    rankings: Mapping[Direction, Ranked] = field(default_factory=dict)
    similarities: Similarities | None = None
    within_sides: bool = False
    """Whether these are of two items of one side as well."""
    sides: frozenset[Modality] = BOTH
    """The sides whose items it knows."""
    cut: bool = False
    """Whether the rankings are only as deep as the tasks that are not ``deep`` need."""
    mark: str = ""
    """Hash of all that its rankings depend on besides queries and depth; empty where nobody says."""

    @property
    def is_one_sided(self) -> bool:
        """Whether it knows images alone, or captions alone."""
        return self.sides != BOTH

    def require_both_sides(self) -> None:
        """UsageError where it knows one side alone."""
        if self.is_one_sided:
            raise UsageError(
                f"{self.name} knows one side alone, so it ranks nothing of the other; leave it out"
            )

    def compares(self, *sides: Modality) -> bool:
        """Whether it has similarities of an item of one side with an item of the other, or of the same one."""
        known = self.similarities is not None and self.sides.issuperset(sides)
        return known and (self.within_sides or len(set(sides)) > 1)


@dataclass(frozen=True, eq=False)
class Block:
    """Some queries with their similarities (B, G) to the whole gallery; ``gallery_ids`` rise."""

    query_ids: Ids
    gallery_ids: Ids
    similarities: NDArray[Any]

    @cached_property
    def rankings(self) -> Ids:
        """(B, G) the whole gallery, most similar first, ties to the smaller number."""
        return self.gallery_ids[np.argsort(self._falling, axis=1, kind="stable")]

    def head(self, depth: int) -> Ids:
        """(B, depth) the first places of ``rankings``; of the whole gallery where it is smaller."""
        depth = min(depth, len(self.gallery_ids))
        falling = self._falling
        worst = np.partition(falling, depth - 1, axis=1)[:, depth - 1, None]
        rows, columns = np.nonzero(falling <= worst)  # with all that equal the last one
        order = np.lexsort((columns, falling[rows, columns], rows))
        starts = np.searchsorted(rows, np.arange(len(falling)))
        items: Ids = self.gallery_ids[columns[order[starts[:, None] + np.arange(depth)]]]
        return items

    @property
    def _falling(self) -> NDArray[Any]:
        """(B, G) numbers that rise as similarities fall; minus would leave an unsigned 0 the smallest."""
        return ~self.similarities if self.similarities.dtype.kind in "iu" else -self.similarities

    def of(self, query_ids: Ids) -> Block:
        """The part of it that belongs to some queries."""
        rows = np.isin(self.query_ids, query_ids)
        if rows.all():
            return self
        return Block(self.query_ids[rows], self.gallery_ids, self.similarities[rows])


def blocks(
    similarities: Similarities, sides: Sides, way: str, query_ids: Ids, progress: Progress, label: str
) -> Iterator[Block]:
    """The blocks of these queries, in their order.

    Raises:
        MetricError: a similarity is NaN.
    """
    queries, gallery = sides.queries(way), sides.gallery(way)
    size = max(1, _CELLS // max(1, len(gallery)))
    with progress(label, total=len(query_ids)) as advance:
        for start in range(0, len(query_ids), size):
            some = query_ids[start : start + size]
            values = similarities.between(queries.modality, queries.places(some), gallery.modality)
            wrong = np.isnan(values).any(axis=1)
            if wrong.any():
                name = queries.id_of(int(some[int(np.argmax(wrong))]))
                raise MetricError(
                    f"a similarity of {queries.modality} {name} is NaN, so its items have no order; mend the "
                    "model's output"
                )
            yield Block(some, gallery.numbers, _without_hidden(values, some, sides, way))
            advance(len(some))


def _without_hidden(values: NDArray[Any], query_ids: Ids, sides: Sides, way: str) -> NDArray[Any]:
    """(B, G) with what a query may not find behind all else: itself, and its reference, as CIRR's evaluation has it."""
    gallery = sides.gallery(way)
    within = sides.queries(way) is gallery
    forbidden = {} if within else sides.references.get(Direction(way), {})
    if not within and not forbidden:
        return values
    kept = np.array(values, np.result_type(values, np.float32))
    if within:
        kept[np.arange(len(kept)), gallery.places(query_ids)] = -np.inf
    for row, query in enumerate(query_ids.tolist() if forbidden else ()):
        if items := forbidden.get(query):
            kept[row, gallery.places(np.array(sorted(items)))] = -np.inf
    return kept


def joined(parts: Sequence[tuple[QueryValues, ...]]) -> tuple[QueryValues, ...]:
    """One of each metric over the queries of all parts; every part has the same metrics, none of them weighted."""
    if not parts:
        return ()
    return tuple(
        replace(
            first,
            query_ids=np.concatenate([part[place].query_ids for part in parts]),
            values=np.concatenate([part[place].values for part in parts]),
            left_out=sum(part[place].left_out for part in parts),
        )
        for place, first in enumerate(parts[0])
    )
