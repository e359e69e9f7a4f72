"""Each query's k most similar gallery items: exact, in bounded memory, the same bytes on every backend."""

from __future__ import annotations

from functools import partial

import numpy as np

from annotators.base import Annotator, Encoded, Ranking
from mitl.errors import RetrievalError
from mitl.progress import Advance, Progress, no_progress
from mitl.records import AnnotatorKind
from mitl.retrieval.products import Backend, choose_product
from mitl.retrieval.scoring import AnnotatorScorer, Buffers, Scorer, VectorScorer, vectors
from mitl.retrieval.shortlist import Shortlist, survivors_per_row

DEFAULT_BLOCK_BYTES = 64 << 20

_QUERY_BLOCK, _GALLERY_BLOCK = 2048, 8192
"""The largest block. Few large products suffer less than many small ones when other work has a core."""
_PAIR_BYTES = 10
"""Memory for each pair of a block: two buffers of float32, what reached the floor."""
_JOINT_PAIR_BYTES = 256
"""The same where an annotator scores pairs itself: room for some 50 numbers each (7 x 7 samples, say)."""
_NUMBER_BYTES = 16
"""Memory for each number of a block's vectors: as read, in float32, in float64."""
_SURVIVOR_BYTES = 128
"""Memory for each survivor: it waits, is sorted, is rescored."""
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
) -> Ranking:
    """Each query's ``k`` most similar items of the gallery, best first, ties to the smaller id.

    Vectors (inner_product, multi_vector) are multiplied in float32 by ``backend``; what can be in the top k
    under the error bound is rescored in float64 in a fixed order and rounded to float32. So the same
    embeddings give the same bytes for every backend and every ``block_bytes``. Other kinds are asked for
    blocks of similarities, which are taken as they come; ``backend`` does not concern them.

    Args:
        queries, gallery: what ``annotator`` encoded; arrays may be memory maps.
        block_bytes: about how much memory is used besides O(Q k) and the annotator's own; at least one pair's.
        progress: counts pairs of a query and an item.

    Raises:
        RetrievalError: k is not between 1 and the size of the gallery, gallery ids do not rise, embeddings
            do not fit each other or are not finite, the backend is not there.
    """
    _check(annotator, gallery, k, block_bytes)
    if annotator.kind in _VECTORS:
        left, right = vectors(queries), vectors(gallery)
        width = right.shape[2]
        item_bytes = _NUMBER_BYTES * width * max(left.shape[1], right.shape[1])
        pair_bytes = _PAIR_BYTES
        product = choose_product(backend, work=float(len(left)) * left.shape[1] * right.size, width=width)
        rows_per_pass = max(1, min(_GALLERY_BLOCK, block_bytes // item_bytes))
        scorer: Scorer = VectorScorer(queries, gallery, product, rows_per_pass)
    else:
        item_bytes, pair_bytes = 0, _JOINT_PAIR_BYTES
        scorer = AnnotatorScorer(annotator, queries, gallery)
    shape = block_shape(len(queries), len(gallery), k, item_bytes, pair_bytes, block_bytes)
    with progress(f"rank {annotator.name}", total=len(queries) * len(gallery)) as advance:
        return _search(scorer, queries, gallery, k, shape, advance)


def block_shape(
    queries: int, items: int, k: int, item_bytes: int, pair_bytes: int, block_bytes: int
) -> tuple[int, int]:
    """How many queries and items make a block of at most about ``block_bytes``; at least one of each."""
    rows, columns = max(1, min(_QUERY_BLOCK, queries)), max(1, min(_GALLERY_BLOCK, items))

    def needed() -> int:
        waiting = rows * survivors_per_row(k) * _SURVIVOR_BYTES
        return rows * columns * pair_bytes + (rows + columns) * item_bytes + waiting

    while needed() > block_bytes and (rows > 1 or columns > 1):
        if columns >= rows:
            columns = (columns + 1) // 2
        else:
            rows = (rows + 1) // 2
    return rows, columns


def _search(
    scorer: Scorer, queries: Encoded, gallery: Encoded, k: int, shape: tuple[int, int], advance: Advance
) -> Ranking:
    items = np.empty((len(queries), k), np.int64)
    similarities = np.empty((len(queries), k), np.float32)
    buffers = Buffers()
    for first in range(0, len(queries), shape[0]):
        rows = slice(first, min(first + shape[0], len(queries)))
        error = scorer.error(rows)
        rescore = None if error is None else partial(scorer.rescore, rows)
        shortlist = Shortlist(rows.stop - rows.start, k, error, rescore)
        for start in range(0, len(gallery), shape[1]):
            part = slice(start, min(start + shape[1], len(gallery)))
            values = scorer.block(rows, part, buffers)
            shortlist.offer(values, start)
            advance(values.size)
        positions, similarities[rows] = shortlist.finish()
        items[rows] = gallery.ids[positions]
    return Ranking(np.asarray(queries.ids, np.int64), items, similarities)


def _check(annotator: Annotator, gallery: Encoded, k: int, block_bytes: int) -> None:
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
        raise RetrievalError(f"a block of {block_bytes} bytes holds nothing; leave it at 64 MiB")
    falling = np.flatnonzero(np.diff(gallery.ids) <= 0)
    if len(falling):
        raise RetrievalError(
            f"gallery ids must rise, but {gallery.ids[falling[0] + 1]} follows {gallery.ids[falling[0]]}"
        )
