"""Each query's k most similar gallery items: exact, in bounded memory, the same bytes on every backend.

Vectors are searched (``mitl.retrieval.search``). Where only the annotator itself can compare, as with probabilities of
matching and scores of pairs, its similarities are taken block by block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from annotators.base import Annotator, Encoded, Ranking, searches_itself
from mitl.errors import RetrievalError
from mitl.progress import Advance, Progress, no_progress
from mitl.records import AnnotatorKind
from mitl.retrieval.choosing import Task, choose
from mitl.retrieval.faiss_search import best_by_faiss
from mitl.retrieval.processor import about_to_search, count, one_thread_of_blas
from mitl.retrieval.products import Backend, Floors, compared, kth_of_chunks
from mitl.retrieval.search import Cost, Found, Search, halves, most_places, plan, survivor_bytes
from mitl.retrieval.survivors import MOST_POSITIONS, Survivors
from mitl.retrieval.vectors import Floats, Vectors
from mitl.settings import BACKENDS

DEFAULT_BLOCK_BYTES = 256 << 20

VECTOR_KINDS = (AnnotatorKind.INNER_PRODUCT, AnnotatorKind.MULTI_VECTOR)
"""Kinds whose similarities follow from the vectors alone."""


_PAIR_BYTES = 256
"""Memory for each pair of a block: room for some 50 numbers (7 x 7 samples, say) besides our own."""
BLOCK = (128, 2048)
"""Queries and items of a block, from the first ones on. An engine's tiles are multiples of it, so that what has a part
in how an annotator's sums are rounded comes together alike everywhere."""
_MOST_SHARE = 16
"""Newcomers that are taken in at once: one of so many pairs of a block."""


def top_k(
    annotator: Annotator,
    queries: Encoded,
    gallery: Encoded,
    k: int,
    *,
    block_bytes: int = DEFAULT_BLOCK_BYTES,
    progress: Progress = no_progress,
    backend: Backend = "auto",
    used: set[str] | None = None,
) -> Ranking:
    """Each query's ``k`` most similar items of the gallery, best first, ties to the smaller id.

    Vectors (inner_product, multi_vector) are multiplied by ``backend``, in float32 or lower; what can be in the top
    k under the error bound is rescored in float64 in a fixed order and rounded to float32. So the same embeddings
    give the same bytes for every backend, every ``block_bytes`` and any number of threads. Other kinds are asked for
    blocks of similarities, which are taken as they come; ``backend`` does not concern them. An annotator with a
    method ``top_k(queries, gallery, k, *, block_bytes, progress)`` searches itself.

    Args:
        queries, gallery: what ``annotator`` encoded; arrays may be memory maps.
        block_bytes: about how much memory is used besides O(Q k) and the annotator's own; at least one pair's.
        progress: counts pairs of a query and an item.
        backend: ``auto`` measures what this machine's processor can do and takes the fastest; ``numpy`` and
            ``torch`` are float32, ``bf16`` and ``int8`` torch's low precision, ``cuda`` a GPU, ``faiss`` the library.
        used: takes the names of what multiplied the vectors.

    Raises:
        RetrievalError: k is not between 1 and the size of the gallery, gallery ids do not rise, embeddings
            do not fit each other or are not finite, the backend is not there.
    """
    _check(annotator, queries, gallery, k, block_bytes, backend)
    if searches_itself(annotator):
        return annotator.top_k(queries, gallery, k, block_bytes=block_bytes, progress=progress)
    with progress(f"rank {annotator.name}", total=len(queries) * len(gallery)) as advance:
        if annotator.kind not in VECTOR_KINDS:
            found = best_by_annotator(
                annotator, queries, gallery, k, block_bytes=block_bytes, advance=advance
            )
        elif backend == "faiss":
            sides = _sides(queries, gallery)
            if used is not None:
                used.add(backend)
            about_to_search(Task(*sides, k).work)
            found = best_by_faiss(*sides, k, block_bytes=block_bytes, advance=advance)
        else:
            with one_thread_of_blas():
                task = Task(*_sides(queries, gallery), k)
                found = _search(task, backend, block_bytes, advance, used).one_way(k)
    return _ranking(queries, gallery, found)


def top_k_both(
    annotator: Annotator,
    images: Encoded,
    captions: Encoded,
    k_i2t: int,
    k_t2i: int,
    *,
    block_bytes: int = DEFAULT_BLOCK_BYTES,
    progress: Progress = no_progress,
    backend: Backend = "auto",
    used: set[str] | None = None,
) -> tuple[Ranking, Ranking]:
    """Each image's best captions and each caption's best images, the same bytes as ``top_k`` gives twice.

    Of vectors every pair is multiplied once for both. Other kinds, and faiss, are searched twice.

    Args:
        block_bytes: about how much memory is used besides O((images + captions) k).
        progress: counts pairs, once where they are multiplied once.
        used: as of ``top_k``.

    Raises:
        RetrievalError: as ``top_k``.
    """
    _check(annotator, images, captions, k_i2t, block_bytes, backend)
    _check(annotator, captions, images, k_t2i, block_bytes, backend)
    if searches_itself(annotator) or annotator.kind not in VECTOR_KINDS or backend == "faiss":
        options: Any = {"block_bytes": block_bytes, "progress": progress, "backend": backend, "used": used}
        return (
            top_k(annotator, images, captions, k_i2t, **options),
            top_k(annotator, captions, images, k_t2i, **options),
        )
    label, pairs = f"rank {annotator.name} both ways", len(images) * len(captions)
    with progress(label, total=pairs) as advance, one_thread_of_blas():
        # The survivors of the left side stay to the end, those of the right only for a span.
        if len(images) <= len(captions):
            task = Task(*_sides(images, captions), k_i2t, k_t2i)
            there, back = _search(task, backend, block_bytes, advance, used).both_ways(k_i2t, k_t2i)
        else:
            task = Task(*_sides(captions, images), k_t2i, k_i2t)
            back, there = _search(task, backend, block_bytes, advance, used).both_ways(k_t2i, k_i2t)
    return _ranking(images, captions, there), _ranking(captions, images, back)


def _sides(queries: Encoded, gallery: Encoded) -> tuple[Vectors, Vectors]:
    left, right = Vectors(queries), Vectors(gallery)
    if left.width != right.width:
        raise RetrievalError(
            f"query embeddings are {left.width} wide, but gallery embeddings {right.width}; "
            "encode both with the same annotator"
        )
    return left, right


def _search(
    task: Task, backend: Backend, block_bytes: int, advance: Advance, used: set[str] | None
) -> Search:
    about_to_search(task.work)
    choice = choose(backend, task)
    if used is not None:
        used.add(choice.ladder[0].name)
    left, right = task.left, task.right
    number_bytes = max(product.number_bytes for product in choice.ladder)
    fewest = (2 * task.k + 64, 2 * (task.k_back or 0) + 64)
    places = [
        min(wanted, max(least, most_places(block_bytes)))
        for wanted, least in zip(choice.places, fewest, strict=True)
    ]
    there, back = (survivor_bytes(count) for count in places)
    cost = Cost(
        cell=max(product.cell_bytes for product in choice.ladder) * left.per_item * right.per_item,
        query=left.width * left.per_item * number_bytes + there,
        item=right.width * right.per_item * number_bytes + (back if task.k_back else 0),
    )
    first = choice.ladder[0]
    threads = min(count(), first.threads)
    chosen = plan(len(left), len(right), first.tile, cost, threads=threads, block_bytes=block_bytes)
    return Search(left, right, choice.ladder, (places[0], places[1]), chosen, advance)


def _ranking(queries: Encoded, gallery: Encoded, found: Found) -> Ranking:
    return Ranking(np.asarray(queries.ids, np.int64), gallery.ids[found.positions], found.similarities)


def _check(
    annotator: Annotator, queries: Encoded, gallery: Encoded, k: int, block_bytes: int, backend: Backend
) -> None:
    if backend not in BACKENDS:
        raise RetrievalError(f"no top-k backend called {backend!r}; known: {', '.join(BACKENDS)}")
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
    if block_bytes < 1:
        raise RetrievalError(f"a block of {block_bytes} bytes holds nothing; leave it at 256 MiB")
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
) -> Found:
    """The best k of the gallery for each query, by blocks of ``annotator.similarities``.

    Raises:
        RetrievalError: a block is of the wrong shape, or a value is not finite.
    """
    found = Found.empty(len(queries), k)
    places = 2 * k + 64
    cost = Cost(_PAIR_BYTES, survivor_bytes(places), 0)
    chosen = plan(*BLOCK, BLOCK, cost, threads=1, block_bytes=block_bytes)
    for rows in _blocks(len(queries), chosen.rows):
        survivors = Survivors(rows.stop - rows.start, k, places, None)
        for columns in _blocks(len(gallery), chosen.columns):
            values = _similarities(annotator, queries.rows(rows), gallery.rows(columns))
            _offer(survivors, values, columns.start)
            advance(values.size)
        found.positions[rows], found.similarities[rows] = survivors.finish()
    return found


def _blocks(count: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def _offer(survivors: Survivors, values: Floats, start: int) -> None:
    """Give the survivors whoever reaches their floors in a block (Q, B) from gallery position ``start`` on."""
    if start == 0 and (known := kth_of_chunks(values, survivors.k)) is not None:
        survivors.reach(known)
    nothing, most = np.zeros(len(values)), max(len(values), values.size // _MOST_SHARE)
    parts = [slice(0, values.shape[1])]
    while parts:
        part = parts.pop()
        floors = Floors(survivors.floors(), "left", part, most)
        found = compared(values, floors.values.astype(np.float32), floors)
        if found is None:
            parts += halves(part)
        else:
            reached = values[found.rows, found.columns]
            survivors.add(found.rows, found.columns + start, reached, nothing)


def _similarities(annotator: Annotator, queries: Encoded, gallery: Encoded) -> Floats:
    """The annotator's block (Q, B), checked."""
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
