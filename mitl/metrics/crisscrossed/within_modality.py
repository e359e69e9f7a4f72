"""Retrieval within one modality straight from embeddings: the query is never among what is retrieved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.metrics.positives import Ids, NoPositives, Places, Positives
from mitl.metrics.ranks import PositiveRanks
from mitl.metrics.retrieval import Values, with_positives
from mitl.metrics.table import usual_metrics

_CELLS = 1 << 22
"""Similarities held at once: some 50 MB."""


def score_within(
    ids: NDArray[Any],
    embeddings: NDArray[Any],
    positives: Positives,
    *,
    ks: Sequence[int] = (1, 5, 10),
    no_positives: NoPositives = "raise",
) -> Values:
    """Recall@K and median rank of the queries of ``positives`` in a gallery of all other items.

    The similarity is the inner product; equal ones go to the smaller id. No ranking is held.

    Args:
        ids: (G,) of the items, queries among them.
        embeddings: (G, D), unit rows where the cosine is meant.

    Raises:
        MetricError: the shapes do not fit, an embedding holds something that is no number, a query has no positives
            (unless left out) or is its own, or a query or a positive has no embedding.
    """
    asked = usual_metrics(ks, by_r=False, median_rank=True)
    if embeddings.ndim != 2 or len(embeddings) != len(ids):
        raise MetricError(f"embeddings are {embeddings.shape}, but {len(ids)} ids were given")
    strange = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
    if len(strange):
        raise MetricError(
            f"the embedding of item {np.asarray(ids)[strange[0]]} holds something that is no number"
        )
    scored = with_positives(positives, no_positives)
    first = first_ranks_within(ids, embeddings, scored)
    found = PositiveRanks(scored, np.zeros(len(scored.item_ids), np.int64), first, first, 0)
    left_out = len(positives) - len(scored)
    return tuple(one.values([one.metric.of(found, one.k)], scored.query_ids, left_out) for one in asked)


def first_ranks_within(ids: NDArray[Any], embeddings: NDArray[Any], positives: Positives) -> Ids:
    """(Q,) the rank of each query's first positive among all items but the query, from 1.

    Raises:
        MetricError: a query is its own positive, or a query or a positive has no embedding.
    """
    own_positive = positives.query_ids[positives.rows] == positives.item_ids
    if own_positive.any():
        query = positives.item_ids[own_positive][0]
        raise MetricError(f"query {query} is its own positive, but is never retrieved; leave that pair out")
    order = np.argsort(ids, kind="stable")  # then the smaller place is the smaller id
    gallery = Places.of(np.asarray(ids)[order], "embedded items")
    vectors = np.ascontiguousarray(embeddings[order])
    own = gallery.need(positives.query_ids, "the positives")
    columns = gallery.need(positives.item_ids, "the positives")
    ranks = np.empty(len(positives), dtype=np.int64)
    size = max(1, _CELLS // len(gallery))
    for start in range(0, len(positives), size):
        part = slice(start, min(start + size, len(positives)))
        similarities = vectors[own[part]] @ vectors.T  # (B, G)
        some = slice(positives.offsets[part.start], positives.offsets[part.stop])
        rows = positives.rows[some] - part.start
        ranks[part] = _first_ranks(similarities, own[part], rows, columns[some])
    return ranks


def _first_ranks(
    similarities: NDArray[Any], own: NDArray[Any], rows: NDArray[Any], columns: NDArray[Any]
) -> Ids:
    """(B,) ranks from similarities (B, G), the queries' own columns (B,), and (row, column) of each positive."""
    every = np.arange(len(similarities))
    similarities[every, own] = -np.inf
    near = similarities[rows, columns]
    order = np.lexsort((columns, -near, rows))
    first = order[
        np.searchsorted(rows[order], every)
    ]  # each row's most similar positive, the smallest id of equals
    best, place = near[first, None], columns[first, None]
    before = similarities > best
    level = (similarities == best) & (np.arange(similarities.shape[1]) < place)
    return np.asarray(1 + before.sum(axis=1) + level.sum(axis=1), dtype=np.int64)
