"""Each query's k most similar gallery items: exact, in bounded memory, the same bytes on every backend.

Vectors are searched (``mitl.retrieval.search``). Where only the annotator itself can compare, as with probabilities of
matching and scores of pairs, its similarities are taken block by block; ``mitl.retrieval.faiss_lists`` asks faiss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np

from annotators.base import Annotator, Encoded, Ranking, searches_itself
from mitl.errors import RetrievalError
from mitl.progress import Advance, Progress, no_progress
from mitl.records import AnnotatorKind, Direction
from mitl.retrieval.choosing import SearchTask, choose
from mitl.retrieval.faiss_lists import best_by_faiss
from mitl.retrieval.processor import about_to_search, count, one_thread_of_blas
from mitl.retrieval.products import Backend, Floors, Reached, compared, kth_of_chunks
from mitl.retrieval.search import (
    Best,
    MemoryCost,
    Search,
    most_places,
    plan,
    reached_by_parts,
    survivor_bytes,
)
from mitl.retrieval.survivors import MOST_POSITIONS, Survivors
from mitl.retrieval.vectors import VECTOR_KINDS, Floats, Vectors
from mitl.settings import BACKENDS

if TYPE_CHECKING:
    from mitl.retrieval.card import CardSearch

DEFAULT_BLOCK_BYTES = 256 << 20
_PAIR_BYTES = 256
"""Memory for each pair of a block: room for some 50 numbers (7 x 7 samples, say) besides our own."""
BLOCK = (128, 2048)
"""Queries and items of a block, from the first ones on. An engine's tiles are multiples of it, so that what has a part
in how an annotator's sums are rounded comes together alike everywhere."""
_MANY_ROWS = 1 << 14
_MOST_SHARE = 16
"""Newcomers that are taken in at once: one of so many pairs of a block."""


class SearchKeywords(TypedDict, total=False):
    """Keywords of a search."""

    block_bytes: int
    progress: Progress
    backend: Backend
    used: set[str]


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How a search is done. Nothing of it changes a byte of the result."""

    block_bytes: int = DEFAULT_BLOCK_BYTES
    """About how much memory is used besides O(Q k) and the annotator's own; at least one pair's. Of a GPU's memory
    most of what is free may be used."""
    progress: Progress = no_progress
    """Counts pairs of a query and an item, once where one product serves both directions."""
    backend: Backend = "auto"
    """``auto`` measures what this machine's processor can do and takes the fastest; ``numpy`` and ``torch`` are
    float32, ``int16`` integers by numba, ``bf16`` and ``int8`` torch's low precision, ``cuda`` a GPU, ``faiss`` the
    library."""
    used: set[str] = field(default_factory=set)
    """Takes the names of what multiplied the vectors."""


def top_k(
    annotator: Annotator, queries: Encoded, gallery: Encoded, k: int, **options: Unpack[SearchKeywords]
) -> Ranking:
    """Each query's ``k`` most similar items of the gallery, best first, ties to the smaller id.

    Vectors (inner_product, multi_vector) are multiplied by ``backend``, in float32 or lower; what can be in the top
    k under the error bound is rescored in float64 in a fixed order and rounded to float32. So the same embeddings
    give the same bytes for every backend, every ``block_bytes`` and any number of threads. Other kinds are asked for
    blocks of similarities, which are taken as they come; ``backend`` does not concern them. An annotator with a
    method ``top_k(queries, gallery, k, *, block_bytes, progress)`` searches itself.

    Args:
        queries, gallery: what ``annotator`` encoded; arrays may be memory maps.
        block_bytes, progress, backend, used: see ``SearchOptions``.

    Raises:
        RetrievalError: k is not between 1 and the size of the gallery, gallery ids do not rise, embeddings
            do not fit each other or are not finite, the backend is not there.
    """
    (ranking,) = rank(annotator, (queries, gallery), (k,), SearchOptions(**options))
    return ranking


def top_k_both(
    annotator: Annotator,
    images: Encoded,
    captions: Encoded,
    k_i2t: int,
    k_t2i: int,
    **options: Unpack[SearchKeywords],
) -> tuple[Ranking, Ranking]:
    """Each image's best captions and each caption's best images, the same bytes as ``top_k`` gives twice.

    Of vectors every pair is multiplied once for both. Other kinds, and faiss, are searched twice.

    Raises:
        RetrievalError: as ``top_k``.
    """
    there, back = rank(annotator, (images, captions), (k_i2t, k_t2i), SearchOptions(**options))
    return there, back


def rank(
    annotator: Annotator, sides: tuple[Encoded, Encoded], ks: Sequence[int], options: SearchOptions
) -> list[Ranking]:
    """As ``top_k`` for one k, as ``top_k_both`` for two: the best of the right side for the left one first."""
    directions = list(zip((sides, sides[::-1]), ks, strict=False))
    for (queries, gallery), k in directions:
        _check(annotator, queries, gallery, k, options)
    if searches_itself(annotator) or annotator.kind not in VECTOR_KINDS or options.backend == "faiss":
        ways = [f" {way}" for way in Direction] if len(ks) > 1 else [""]
        return [
            _rank_one_way(annotator, *direction, options, f"rank {annotator.name}{way}")
            for direction, way in zip(directions, ways, strict=True)
        ]
    # The survivors of the left side stay to the end, those of the right only for a span.
    turned = len(ks) > 1 and len(sides[0]) > len(sides[1])
    if turned:
        directions.reverse()
    label = f"rank {annotator.name} both ways" if len(ks) > 1 else f"rank {annotator.name}"
    with options.progress(label, total=len(sides[0]) * len(sides[1])) as advance, one_thread_of_blas():
        task = SearchTask(*_vectors(annotator.name, *directions[0][0]), *(k for _, k in directions))
        best = _search(task, options, advance).run(task.k, task.k_back)
    rankings = [
        _ranking(*direction, nearest) for (direction, _), nearest in zip(directions, best, strict=True)
    ]
    return rankings[::-1] if turned else rankings


def _rank_one_way(
    annotator: Annotator, sides: tuple[Encoded, Encoded], k: int, options: SearchOptions, label: str
) -> Ranking:
    """By the annotator itself, by blocks of its similarities, or by faiss."""
    if searches_itself(annotator):
        return annotator.top_k(*sides, k, block_bytes=options.block_bytes, progress=options.progress)
    with options.progress(label, total=len(sides[0]) * len(sides[1])) as advance:
        if annotator.kind not in VECTOR_KINDS:
            best = best_by_annotator(annotator, *sides, k, block_bytes=options.block_bytes, advance=advance)
        else:
            vectors = _vectors(annotator.name, *sides)
            options.used.add(options.backend)
            about_to_search(SearchTask(*vectors, k).work)
            best = best_by_faiss(*vectors, k, block_bytes=options.block_bytes, advance=advance)
    return _ranking(*sides, best)


def _vectors(annotator: str, queries: Encoded, gallery: Encoded) -> tuple[Vectors, Vectors]:
    left, right = Vectors(queries), Vectors(gallery)
    if left.width != right.width:
        raise RetrievalError(
            f"query embeddings of annotator {annotator!r} are {left.width} wide, but gallery embeddings "
            f"{right.width}; encode both alike, under another fingerprint where one side is mended"
        )
    return left, right


def _search(task: SearchTask, options: SearchOptions, advance: Advance) -> Search | CardSearch:
    about_to_search(task.work)
    choice = choose(options.backend, task)
    if choice.device is not None:
        from mitl.retrieval.card import CardSearch

        options.used.add("cuda")
        return CardSearch(task.left, task.right, advance, device=choice.device, memory=options.block_bytes)
    first = choice.ladder[0]
    options.used.add(first.name)
    left, right = task.left, task.right
    most = most_places(options.block_bytes)
    fewest = (2 * task.k + 64, 2 * (task.k_back or 0) + 64)
    there, back = (min(room, max(least, most)) for room, least in zip(choice.places, fewest, strict=True))
    number_bytes = max(product.number_bytes for product in choice.ladder)
    cost = MemoryCost(
        cell=max(product.cell_bytes for product in choice.ladder) * left.per_item * right.per_item,
        query=left.width * left.per_item * number_bytes + survivor_bytes(there),
        item=right.width * right.per_item * number_bytes + (survivor_bytes(back) if task.k_back else 0),
        spans=2 if task.k_back else 3,  # one way the last one's tiles are still made
    )
    threads = min(count(), first.threads)
    chosen = plan(len(left), len(right), first.tile, cost, threads=threads, block_bytes=options.block_bytes)
    return Search(left, right, choice.ladder, (there, back), chosen, advance)


def _ranking(queries: Encoded, gallery: Encoded, best: Best) -> Ranking:
    places, first = best.positions, gallery.ids[0]
    if gallery.ids[-1] - first == len(gallery) - 1:  # they rise, so none is left out
        places += first
    else:
        # In place: a copy of all would be a large share of the peak.
        for start in range(0, len(places), _MANY_ROWS):
            places[start : start + _MANY_ROWS] = gallery.ids[places[start : start + _MANY_ROWS]]
    return Ranking(np.asarray(queries.ids, np.int64), places, best.similarities)


def _check(annotator: Annotator, queries: Encoded, gallery: Encoded, k: int, options: SearchOptions) -> None:
    if options.backend not in BACKENDS:
        raise RetrievalError(f"no top-k backend called {options.backend!r}; known: {', '.join(BACKENDS)}")
    if annotator.kind is AnnotatorKind.RANKING:
        raise RetrievalError(
            f"annotator {annotator.name!r} brings its own rankings; there is nothing to search"
        )
    if k < 1:
        raise RetrievalError(f"top-k is {k}, but it must be at least 1")
    if k > len(gallery):
        raise RetrievalError(
            f"top-k is {k}, but the gallery has {len(gallery)} items; ask for {len(gallery)} at most"
        )
    if options.block_bytes < 1:
        raise RetrievalError(f"a block of {options.block_bytes} bytes holds nothing; leave it at 256 MiB")
    if len(gallery) > MOST_POSITIONS:
        raise RetrievalError(
            f"the gallery has {len(gallery)} items; search it in parts of {MOST_POSITIONS} at most"
        )
    falling = np.flatnonzero(np.diff(gallery.ids) <= 0)
    if len(falling):
        raise RetrievalError(
            f"gallery ids must rise, but {gallery.ids[falling[0] + 1]} follows {gallery.ids[falling[0]]}"
        )


def best_by_annotator(
    annotator: Annotator, queries: Encoded, gallery: Encoded, k: int, *, block_bytes: int, advance: Advance
) -> Best:
    """The best k of the gallery for each query, by blocks of ``annotator.similarities``.

    Raises:
        RetrievalError: a block is of the wrong shape, or a value is not finite.
    """
    best = Best.empty(len(queries), k)
    places = 2 * k + 64
    cost = MemoryCost(_PAIR_BYTES, survivor_bytes(places), 0)
    chosen = plan(*BLOCK, BLOCK, cost, threads=1, block_bytes=block_bytes)
    for start in range(0, len(queries), chosen.rows):
        rows = slice(start, min(start + chosen.rows, len(queries)))
        survivors = Survivors(rows.stop - rows.start, k, places, None)
        for first in range(0, len(gallery), chosen.columns):
            columns = slice(first, min(first + chosen.columns, len(gallery)))
            values = checked_similarities(annotator, queries.rows(rows), gallery.rows(columns))
            _offer(survivors, values, first)
            advance(values.size)
        best.positions[rows], best.similarities[rows] = survivors.finish()
    return best


def _offer(survivors: Survivors, values: Floats, start: int) -> None:
    """Give the survivors whoever reaches their floors in a block (Q, B) from gallery position ``start`` on."""
    if start == 0 and (kth := kth_of_chunks(values, survivors.k)) is not None:
        survivors.reach(kth)
    nothing, most = np.zeros(len(values)), max(len(values), values.size // _MOST_SHARE)

    def reached(part: slice) -> Reached | None:
        floors = Floors(survivors.floors(), "left", part, most)
        return compared(values, floors.values.astype(np.float32), floors)

    for rows, columns, _ in reached_by_parts(values.shape[1], reached):
        survivors.add(rows, columns + start, values[rows, columns], nothing)


def checked_similarities(annotator: Annotator, queries: Encoded, gallery: Encoded) -> Floats:
    """The annotator's block (Q, B); RetrievalError where it is of another shape or a number is not finite."""
    values = np.ascontiguousarray(annotator.similarities(queries, gallery), np.float32)
    if values.shape != (len(queries), len(gallery)):
        raise RetrievalError(
            f"annotator {annotator.name!r} gave similarities {values.shape} "
            f"for {len(queries)} queries and {len(gallery)} gallery items"
        )
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise RetrievalError(
            f"annotator {annotator.name!r} gave {values[row, column]} for query {queries.ids[row]} "
            f"and item {gallery.ids[column]}; similarities must be finite"
        )
    return values
