"""The retrieval metrics straight from embeddings or similarities: no ranking is made, let alone kept.

Every metric follows from the ranks of a query's positives, and a rank from counting what is more similar. The
numbers are those of the full rankings of ``mitl.retrieval``: canonical similarities, ties to the smaller id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from annotators.base import Encoded
from mitl.core.arrays import places
from mitl.errors import MetricError, RetrievalError
from mitl.metrics.official import (
    NAMES,
    SIDES,
    Fold,
    OfficialName,
    Side,
    fold_values,
    known_names,
    official_sets,
)
from mitl.metrics.positives import Ids, Positives, Short, integer_ids, rising
from mitl.metrics.ranks import PositiveRanks
from mitl.metrics.retrieval import Values, score_ranks, with_positives
from mitl.metrics.similarity_ranks import WantedRanks, ranks_of_blocks, ranks_of_vectors
from mitl.metrics.table import KS, Asked, MetricRequest, ScoreOptions, WithoutR, usual_metrics
from mitl.retrieval.rescoring import Rescorer
from mitl.retrieval.vectors import Vectors

Name = TypeVar("Name", bound=str)


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
        at = places(ordered, wanted)
        missing = at < 0
        if missing.any():
            raise MetricError(
                f"{what} {wanted[missing][0]} has no embedding ({int(missing.sum())} of {len(wanted)} have none); "
                "encode all of them, and give each its own id"
            )
        return EmbeddingSet(wanted, self.vectors[order[at]])

    def in_order(self, what: str) -> EmbeddingSet:
        """All items in order of their ids; MetricError where one stands here twice."""
        ordered = np.sort(integer_ids(self.ids, what))
        refuse_twice(ordered, what)
        return self.take(ordered, what)


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
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
class _Located:
    """The positives that the gallery holds: their places among the positives, and their keys as pairs."""

    places: Ids
    keys: Ids

    @classmethod
    def of(cls, positives: Positives, queries: Ids, gallery: Ids) -> _Located:
        """Both sides' ids rise; all queries are there."""
        items = positives.item_ids
        positions = places(gallery, items)
        held = np.flatnonzero(positions >= 0)
        rows = np.searchsorted(queries, positives.query_ids)[positives.rows[held]]
        return cls(held, rows * len(gallery) + positions[held])


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """What the tasks of one direction want to know, each pair once."""

    tasks: Sequence[_Task]
    located: Sequence[_Located]
    keys: Ids
    wanted: WantedRanks

    @classmethod
    def of(
        cls, tasks: Sequence[_Task], queries: Ids, gallery: Ids, vectors: tuple[Vectors, Vectors]
    ) -> _Asked:
        located = [_Located.of(task.positives, queries, gallery) for task in tasks]
        size = max(len(gallery), 1)
        nothing = np.zeros(0, np.int64)
        pairs = _Pairs.of(np.concatenate([nothing, *(of_task.keys for of_task in located)]), size, vectors)
        caps = np.full(len(pairs.keys), -1)
        for task, of_task in zip(tasks, located, strict=True):
            places, first = np.searchsorted(pairs.keys, of_task.keys), pairs.first(of_task.keys)
            counts = task.positives.counts[task.positives.rows[of_task.places]]
            for request in task.asked:
                some = slice(None) if request.metric.positives == "all" else first
                np.maximum.at(caps, places[some], request.reach(counts)[some])
        asked = np.flatnonzero(caps >= 0)
        rows, positions = np.divmod(pairs.keys[asked], size)
        wanted = WantedRanks.of(rows, positions, len(queries), pairs.similarities[asked], caps[asked])
        return cls(tasks, located, pairs.keys[asked], wanted)

    def ranks(self, counted: Ids) -> list[Ids]:
        """(P,) of each task's positives; 0 where one was not asked for, is beyond its cap or not in the gallery."""
        all_ranks = []
        for task, located in zip(self.tasks, self.located, strict=True):
            ranks = np.zeros(len(task.positives.item_ids), np.int64)
            found_at = places(self.keys, located.keys)
            asked = found_at >= 0
            # What is beyond its cap was not counted to the end.
            exact = np.where(counted <= self.wanted.caps, counted, 0)
            ranks[located.places[asked]] = exact[found_at[asked]]
            all_ranks.append(ranks)
        return all_ranks


def positive_ranks(
    left: EmbeddingSet,
    right: EmbeddingSet,
    there: Sequence[_Task],
    back: Sequence[_Task],
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
    both = [part.ranks(ranks) for part, ranks in zip(asked, counted, strict=True)]
    return both[0], both[1]


def _vectors(side: EmbeddingSet, what: str) -> Vectors:
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


def score_embeddings(
    queries: NDArray[Any],
    gallery: NDArray[Any],
    query_ids: NDArray[Any],
    gallery_ids: NDArray[Any],
    positives: Positives,
    **options: Unpack[ScoreOptions],
) -> Values:
    """What ``score_queries`` gives for the full rankings by inner product.

    Each positive that may matter is compared with the whole gallery: of many hundreds of positives a query, ranking to
    depth R (``mitl.retrieval``) and ``score_queries`` are faster.

    Args:
        queries, gallery: (Q, D) and (G, D), or (Q, K, D) and (G, L, D) of which the largest product counts.
        query_ids, gallery_ids: (Q,) and (G,), in any order; further queries than those scored may be among them.
        short: what a gallery means that holds fewer items than K or R, or none of a query's positives: an error, or
            ("zero") misses, and a first positive right behind the end.

    Raises:
        MetricError: an id stands twice or is missing, widths differ, a vector is not finite, and as ``score_queries``.
    """
    scoring = MetricRequest.of(**options)
    scored = with_positives(positives, scoring.no_positives)
    left = EmbeddingSet(query_ids, queries).take(scored.query_ids, "query")
    right = EmbeddingSet(gallery_ids, gallery).in_order("gallery item")
    (ranks,), _ = positive_ranks(left, right, [_Task(scored, scoring.asked)], [], ("query", "gallery item"))
    return score_ranks(positives, scored, ranks, len(right.ids), scoring)


def score_similarities(
    similarities: NDArray[Any] | Iterable[NDArray[Any]],
    query_ids: NDArray[Any],
    gallery_ids: NDArray[Any],
    positives: Positives,
    **options: Unpack[ScoreOptions],
) -> Values:
    """What ``score_queries`` gives for the full rankings by these similarities, which are taken as they are.

    Args:
        similarities: (Q, G), higher is closer, a memory map included; or blocks of its rows, (n, G) each, in the
            order of ``query_ids``. For the other direction give its transpose.
        short: as for ``score_embeddings``.

    Raises:
        MetricError: a similarity is NaN, shapes and ids do not fit, an id stands twice, and as ``score_queries``.
    """
    return score_blocks(similarities, query_ids, gallery_ids, positives, MetricRequest.of(**options))


def score_blocks(
    similarities: NDArray[Any] | Iterable[NDArray[Any]],
    query_ids: NDArray[Any],
    gallery_ids: NDArray[Any],
    positives: Positives,
    scoring: MetricRequest,
) -> Values:
    """As ``score_similarities``, under any metrics of the table."""
    scored = with_positives(positives, scoring.no_positives)
    queries, gallery = integer_ids(query_ids, "query"), integer_ids(gallery_ids, "gallery item")
    order = np.argsort(gallery, kind="stable")
    refuse_twice(gallery[order], "gallery item")
    places = EmbeddingSet(queries, np.arange(len(queries))).take(scored.query_ids, "query").vectors
    located = _Located.of(scored, scored.query_ids, gallery[order])
    rows, positions = np.divmod(located.keys, max(len(gallery), 1))
    # Blocks come in the order of the rows, so what is wanted is put in that order for the time of counting.
    by_row = np.argsort(places[rows], kind="stable")
    wanted = WantedRanks.of(places[rows][by_row], positions[by_row], len(queries))
    ranks = np.zeros(len(scored.item_ids), np.int64)
    counted = ranks_of_blocks(_row_blocks(similarities, order), wanted, len(gallery))
    ranks[located.places[by_row]] = counted
    return score_ranks(positives, scored, ranks, len(gallery), scoring)


def score_both_ways(
    left: EmbeddingSet,
    right: EmbeddingSet,
    positives: Mapping[tuple[Name, Side], Positives],
    *,
    by_r: bool | Collection[str] = True,
    what: tuple[str, str] = ("image", "caption"),
    **options: Unpack[WithoutR],
) -> dict[tuple[Name, Side], Values]:
    """Any number of sets of positives in both directions, from one pass over the similarities.

    Args:
        left, right: images and captions; all of them are the gallery of the other side's queries.
        positives: by set and direction, ``i2t`` for queries of the left, ``t2i`` for queries of the right.
        by_r: whether R-Precision and mAP@R are wanted, or of which sets.
        ks, median_rank, short, no_positives: as for ``score_embeddings``.
        what: what the two sides are called in messages.

    Raises:
        MetricError: as ``score_embeddings``.
    """
    scorings = {with_r: MetricRequest.of(by_r=with_r, **options) for with_r in (True, False)}
    left, right = left.in_order(what[0]), right.in_order(what[1])
    tasks: dict[Side, dict[tuple[Name, Side], _Task]] = {side: {} for side in SIDES}
    for (name, side), of in positives.items():
        scoring = scorings[by_r if isinstance(by_r, bool) else name in by_r]
        tasks[side][name, side] = _Task(with_positives(of, scoring.no_positives), scoring.asked)
    ranks = positive_ranks(left, right, list(tasks["i2t"].values()), list(tasks["t2i"].values()), what)
    scores = {}
    for side, of_side, gallery in zip(SIDES, ranks, (right, left), strict=True):
        for (key, task), of_task in zip(tasks[side].items(), of_side, strict=True):
            scoring = replace(scorings[True], asked=task.asked)
            scores[key] = score_ranks(positives[key], task.positives, of_task, len(gallery.ids), scoring)
    return {key: scores[key] for key in positives}


def score_official_embeddings(
    images: EmbeddingSet,
    captions: EmbeddingSet,
    names: Iterable[OfficialName] = NAMES,
    *,
    ks: Sequence[int] = KS,
    median_rank: bool = False,
    short: Short = "raise",
) -> dict[tuple[OfficialName, Side], Values]:
    """What ``score_official`` gives for the full rankings of both directions, from one pass over the similarities.

    The gallery is COCO's test split; embeddings of further items are left aside. Each fold of COCO 1K is multiplied
    by itself, which is a fifth more.

    Raises:
        DatasetError: the package ``eccv_caption`` is not installed.
        MetricError: an item of the test split has no embedding, or two; and as ``score_embeddings``.
    """
    metrics = usual_metrics(ks, by_r=False, median_rank=median_rank)
    sets, names = official_sets(), known_names(names)
    left, right = images.take(sets.image_ids, "image"), captions.take(sets.caption_ids, "caption")
    scores: dict[tuple[OfficialName, Side], Values] = {}
    if "coco_1k" in names:
        folds = sets.folds["i2t"], sets.folds["t2i"]
        of_folds = _score_folds(left, right, folds, metrics)
        scores["coco_1k", "i2t"], scores["coco_1k", "t2i"] = of_folds
    whole = {(name, side): of for (name, side), of in sets.positives.items() if name in names}
    if whole:
        options: WithoutR = {"ks": ks, "median_rank": median_rank, "short": short}
        scores |= score_both_ways(left, right, whole, by_r=("eccv",), **options)
    return {(name, side): scores[name, side] for name in names for side in SIDES}


def _score_folds(
    left: EmbeddingSet,
    right: EmbeddingSet,
    folds: tuple[Sequence[Fold], Sequence[Fold]],
    asked: Sequence[Asked],
) -> tuple[Values, Values]:
    first: tuple[list[PositiveRanks], list[PositiveRanks]] = ([], [])
    for there, back in zip(*folds, strict=True):
        sides = left.take(back.item_ids, "image"), right.take(there.item_ids, "caption")
        one, other = (_Task(fold.positives, asked) for fold in (there, back))
        of_sides = positive_ranks(*sides, [one], [other], ("image", "caption"))
        for into, fold, (ranks,) in zip(first, (there, back), of_sides, strict=True):
            ends = np.full(len(fold.positives), len(fold.item_ids))
            into.append(PositiveRanks.of(fold.positives, ranks, ends, 0))
    return fold_values(first[0], asked), fold_values(first[1], asked)


def _row_blocks(similarities: NDArray[Any] | Iterable[NDArray[Any]], order: Ids) -> Iterable[NDArray[Any]]:
    """Some rows at a time, the gallery in order of its ids."""
    sorted_already = bool((order[1:] > order[:-1]).all())
    blocks: Iterable[NDArray[Any]] = similarities
    if isinstance(similarities, np.ndarray):
        if similarities.ndim != 2:
            raise MetricError(f"similarities are {similarities.shape}; give (queries, gallery)")
        blocks = (similarities[start : start + 512] for start in range(0, len(similarities), 512))
    for block in blocks:
        fits = np.ndim(block) == 2 and np.shape(block)[1] == len(order)
        yield block if sorted_already or not fits else np.asarray(block)[:, order]
