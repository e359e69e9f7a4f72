"""Embedded items, and the ranks of positives among them: what the metrics of embeddings are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError, RetrievalError
from mitl.metrics.positives import Ids, Positives, integer_ids, rising
from mitl.metrics.similarities.similarity_ranks import Wanted, ranks_of_vectors
from mitl.metrics.table import Asked

if TYPE_CHECKING:
    from mitl.retrieval.vectors import Vectors


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddingSet:
    """Items of one kind with their vectors: ``ids`` (N,), ``vectors`` (N, D), or (N, K, D) where an item has several.

    The similarity of two items is the largest inner product of their vectors. Vectors are float32 or float16, memory
    maps included; float64 is rounded to float32.
    """

    ids: Ids
    vectors: NDArray[Any]

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.vectors):
            raise MetricError(f"{len(self.vectors)} embeddings were given for {len(self.ids)} ids")

    def take(self, wanted: Ids, what: str) -> EmbeddingSet:
        """These items, in the order asked for.

        Raises:
            MetricError: an item is not here, or stands here twice.
        """
        ids = integer_ids(self.ids, what)
        if np.array_equal(ids, wanted):
            return EmbeddingSet(wanted, self.vectors)
        order = np.argsort(ids, kind="stable")
        ordered = ids[order]
        refuse_twice(ordered, what)
        places = np.minimum(np.searchsorted(ordered, wanted), max(len(ordered) - 1, 0))
        missing = ordered[places] != wanted if len(ordered) else np.ones(len(wanted), dtype=np.bool_)
        if missing.any():
            raise MetricError(
                f"{what} {wanted[missing][0]} has no embedding ({int(missing.sum())} of {len(wanted)} have none); "
                "encode all of them, and give each its own id"
            )
        return EmbeddingSet(wanted, self.vectors[order[places]])

    def in_order(self, what: str) -> EmbeddingSet:
        """All items in order of their ids; MetricError where one stands here twice."""
        ordered = np.sort(integer_ids(self.ids, what))
        refuse_twice(ordered, what)
        return self.take(ordered, what)


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Positives whose ranks some metrics ask for: of all of them, or of each query's most similar one alone."""

    positives: Positives
    asked: Sequence[Asked]


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Pairs of a query's row and a gallery position, in this order, each once, with its similarity and cap."""

    keys: Ids
    similarities: NDArray[np.float32]
    gallery: int

    @classmethod
    def of(cls, keys: Ids, gallery: int, vectors: tuple[Vectors, Vectors]) -> _Pairs:
        """Their canonical similarities computed."""
        from mitl.retrieval.rescoring import Rescorer

        for side in vectors:
            side.lengths(side.block(slice(0, len(side))), 0)  # which the rescorer's error bound is made of
        keys = rising(keys)
        return cls(keys, Rescorer(*vectors).similarities(*np.divmod(keys, gallery)), gallery)

    def first(self, keys: Ids) -> NDArray[np.bool_]:
        """Which of some of these pairs are the most similar ones of their rows, ties to the smaller position."""
        rows, similarities = keys // self.gallery, self.similarities[np.searchsorted(self.keys, keys)]
        order = np.lexsort((keys, -similarities, rows))
        best = np.zeros(len(keys), dtype=np.bool_)
        best[order[np.flatnonzero(np.diff(rows[order], prepend=-1))]] = True
        return best


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """The positives that the gallery holds: their places among the positives, and their keys as pairs."""

    places: Ids
    keys: Ids

    @classmethod
    def of(cls, positives: Positives, queries: Ids, gallery: Ids) -> Located:
        """Both sides' ids rise; all queries are there."""
        items = positives.item_ids
        if not len(gallery):
            return cls(*np.zeros((2, 0), np.int64))
        positions = np.minimum(np.searchsorted(gallery, items), len(gallery) - 1)
        places = np.flatnonzero(gallery[positions] == items)
        rows = np.searchsorted(queries, positives.query_ids)[positives.rows[places]]
        return cls(places, rows * len(gallery) + positions[places])


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """What the tasks of one direction want to know, each pair once."""

    tasks: Sequence[Task]
    located: Sequence[Located]
    keys: Ids
    wanted: Wanted

    @classmethod
    def of(
        cls, tasks: Sequence[Task], queries: Ids, gallery: Ids, vectors: tuple[Vectors, Vectors]
    ) -> _Asked:
        located = [Located.of(task.positives, queries, gallery) for task in tasks]
        size = max(len(gallery), 1)
        nothing = np.zeros(0, np.int64)
        pairs = _Pairs.of(np.concatenate([nothing, *(found.keys for found in located)]), size, vectors)
        caps = np.full(len(pairs.keys), -1)
        for task, found in zip(tasks, located, strict=True):
            places, first = np.searchsorted(pairs.keys, found.keys), pairs.first(found.keys)
            counts = task.positives.counts[task.positives.rows[found.places]]
            for one in task.asked:
                some = slice(None) if one.metric.positives == "all" else first
                np.maximum.at(caps, places[some], one.reach(counts)[some])
        asked = np.flatnonzero(caps >= 0)
        rows, positions = np.divmod(pairs.keys[asked], size)
        wanted = Wanted.of(rows, positions, len(queries), pairs.similarities[asked], caps[asked])
        return cls(tasks, located, pairs.keys[asked], wanted)

    def ranks(self, counted: Ids) -> list[Ids]:
        """(P,) of each task's positives; 0 where one was not asked for, is beyond its cap or not in the gallery."""
        found = []
        for task, located in zip(self.tasks, self.located, strict=True):
            ranks = np.zeros(len(task.positives.item_ids), np.int64)
            if len(self.keys):
                places = np.minimum(np.searchsorted(self.keys, located.keys), len(self.keys) - 1)
                asked = self.keys[places] == located.keys
                # What is beyond its cap was not counted to the end.
                known = np.where(counted <= self.wanted.caps, counted, 0)
                ranks[located.places[asked]] = known[places[asked]]
            found.append(ranks)
        return found


def positive_ranks(
    left: EmbeddingSet,
    right: EmbeddingSet,
    there: Sequence[Task],
    back: Sequence[Task],
    what: tuple[str, str],
) -> tuple[list[Ids], list[Ids]]:
    """Ranks of the positives of all tasks of both directions from one pass; ids of both sides rise."""
    one, other = _vectors(left, what[0]), _vectors(right, what[1])
    if one.width != other.width:
        raise MetricError(
            f"{what[0]} embeddings are {one.width} wide, but {what[1]} embeddings {other.width}; "
            "encode both with the same model"
        )
    try:
        asked = (
            _Asked.of(there, left.ids, right.ids, (one, other)),
            _Asked.of(back, right.ids, left.ids, (other, one)),
        )
    except RetrievalError as error:
        raise MetricError(str(error)) from error
    counted = ranks_of_vectors(one, other, *(part.wanted for part in asked))
    found = [part.ranks(ranks) for part, ranks in zip(asked, counted, strict=True)]
    return found[0], found[1]


def _vectors(side: EmbeddingSet, what: str) -> Vectors:
    from annotators.base import Encoded
    from mitl.retrieval.vectors import Vectors

    array = np.asarray(side.vectors)
    if array.dtype == np.float64:
        with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused by name
            array = array.astype(np.float32)
    if array.dtype not in (np.float32, np.float16) or array.ndim not in (2, 3):
        raise MetricError(
            f"{what} embeddings are {array.dtype} {array.shape}; give float32 (N, D) or (N, K, D)"
        )
    try:
        return Vectors(Encoded(what, side.ids, {"embedding": array}))  # type: ignore[arg-type]
    except RetrievalError as error:
        raise MetricError(str(error)) from error


def refuse_twice(ordered: Ids, what: str) -> None:
    """MetricError where an id follows itself."""
    twice = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(twice):
        raise MetricError(f"{what} {ordered[twice[0]]} stands twice among the ids; keep one")
