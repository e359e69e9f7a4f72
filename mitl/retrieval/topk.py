"""Each query's k most similar gallery items: exact, in bounded memory, the same bytes on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np

from annotators.base import Annotator, Encoded, Ranking, searches_itself
from mitl.errors import RetrievalError
from mitl.progress import Advance, Progress, no_progress
from mitl.records import AnnotatorKind
from mitl.retrieval.blocks import Cost, most_places, plan, survivor_bytes
from mitl.retrieval.choosing import Task, choose
from mitl.retrieval.compiled import about_to_search
from mitl.retrieval.faiss_search import best_by_faiss
from mitl.retrieval.products import Backend
from mitl.retrieval.scoring import best_by_annotator
from mitl.retrieval.search import Found, Search
from mitl.retrieval.sort_keys import MOST_POSITIONS
from mitl.retrieval.threads import count, one_thread_of_blas
from mitl.retrieval.vectors import Vectors
from mitl.settings import BACKENDS

DEFAULT_BLOCK_BYTES = 256 << 20

_VECTORS = (AnnotatorKind.INNER_PRODUCT, AnnotatorKind.MULTI_VECTOR)


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
        if annotator.kind not in _VECTORS:
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
    if searches_itself(annotator) or annotator.kind not in _VECTORS or backend == "faiss":
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
