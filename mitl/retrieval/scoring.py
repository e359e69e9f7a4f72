"""Rankings by similarities that only the annotator itself can compute: probabilities of matching, pair scores."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from annotators.base import Annotator, Encoded
from mitl.errors import RetrievalError
from mitl.progress import Advance
from mitl.retrieval.blocks import Cost, plan, survivor_bytes
from mitl.retrieval.products import compared
from mitl.retrieval.search import Found, halves
from mitl.retrieval.seeding import kth_of_chunks
from mitl.retrieval.survivors import Survivors
from mitl.retrieval.vectors import Floats

_PAIR_BYTES = 256
"""Memory for each pair of a block: room for some 50 numbers (7 x 7 samples, say) besides our own."""
BLOCK = (128, 2048)
"""Queries and items of a block, from the first ones on. An engine's tiles are multiples of it, so that what has a part
in how an annotator's sums are rounded comes together alike everywhere."""
_MOST_SHARE = 16
"""Newcomers that are taken in at once: one of so many pairs of a block."""


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
        found = compared(values, survivors.floors().astype(np.float32), "left", part, most)
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
