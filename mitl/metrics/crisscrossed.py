"""CxC's four retrieval tasks: image to text, text to image, text to text, image to image.

Pairs that people scored high enough are positives. Within a modality likeness goes both ways and the query itself is
never retrieved. Source: Parekh et al., Crisscrossed Captions, EACL 2021, sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import Floats
from mitl.datasets.cxc import RatedPairs
from mitl.errors import MetricError
from mitl.metrics.correlation import ScoredPairs
from mitl.metrics.positives import Ids, NoPositives, Places, Positives, integer_ids
from mitl.metrics.ranks import PositiveRanks
from mitl.metrics.retrieval import Values, values_of, with_positives
from mitl.metrics.table import usual_metrics
from mitl.records.similarity import Likeness

_CELLS = 1 << 22
"""Similarities held at once: some 50 MB."""


class Task(StrEnum):
    """The retrieval tasks, query to gallery."""

    I2T = "i2t"
    T2I = "t2i"
    T2T = "t2t"
    I2I = "i2i"


def across_positives(
    sits: RatedPairs,
    *,
    threshold: float | None = None,
    original: tuple[Ids, Ids] | None = None,
) -> dict[Task, Positives]:
    """Positives of image to text and of text to image, for the queries that have any.

    Args:
        original: image and caption ids of pairs that match whatever their score, such as each image with its own
            captions. Without them the positives are those of the ``eccv_caption`` package.

    Raises:
        MetricError: the ratings are not SITS.
    """
    _need(sits, Likeness.SITS)
    images, captions = sits.pairs(threshold)
    if original is not None:
        images = np.concatenate([images, integer_ids(original[0], "image")])
        captions = np.concatenate([captions, integer_ids(original[1], "caption")])
    return {
        Task.I2T: Positives.from_pairs(images, captions),
        Task.T2I: Positives.from_pairs(captions, images),
    }


def text_positives(
    sts: RatedPairs, *, threshold: float | None = None, of_images: tuple[Ids, Ids] | None = None
) -> Positives:
    """Positives of text to text, for the captions that have any.

    Args:
        of_images: caption ids and the image of each: then captions of one image match as well, rated or not. CxC
            extends COCO's associations; table 3 of its appendix, where CxC's text-to-text Recall@1 lies above
            COCO's, can be had only so, since a third of the rated co-captions lie below the threshold.

    Raises:
        MetricError: the ratings are not STS.
    """
    _need(sts, Likeness.STS)
    one, other = sts.pairs(threshold)
    if of_images is not None:
        more = _within_groups(integer_ids(of_images[0], "caption"), integer_ids(of_images[1], "image"))
        one, other = np.concatenate([one, more[0]]), np.concatenate([other, more[1]])
    return _both_ways(one, other)


def image_positives(sis: RatedPairs, *, threshold: float | None = None) -> Positives:
    """Positives of image to image, for the images that have any. A pair rated in both orders matches if either does.

    Raises:
        MetricError: the ratings are not SIS.
    """
    _need(sis, Likeness.SIS)
    return _both_ways(*sis.pairs(threshold))


def scored_pairs(rated: RatedPairs, similarities: NDArray[Any]) -> ScoredPairs:
    """The pairs as the sampled correlations take them; ``similarities`` (P,) are a model's, beside the scores.

    Raises:
        MetricError: see ``mitl.metrics.correlation.ScoredPairs``.
    """
    return ScoredPairs(rated.first, np.asarray(similarities, dtype=np.float64), rated.scores)


def pair_similarities(
    rated: RatedPairs, first: tuple[Ids, NDArray[Any]], second: tuple[Ids, NDArray[Any]]
) -> Floats:
    """(P,) inner products of the pairs' embeddings.

    Args:
        first, second: ids (N,) and embeddings (N, D) of the first and of the second items; the same for one modality.

    Raises:
        MetricError: a rated item has no embedding, or the embeddings are of unequal width.
    """
    if first[1].shape[1] != second[1].shape[1]:
        raise MetricError(
            f"the first items' embeddings are {first[1].shape[1]} wide, the second ones' {second[1].shape[1]}"
        )
    rows = Places.of(first[0], "embedded items").need(rated.first, "the ratings")
    columns = Places.of(second[0], "embedded items").need(rated.second, "the ratings")
    similarities = np.empty(len(rated))
    for start in range(0, len(rated), 4096):
        part = slice(start, start + 4096)
        similarities[part] = np.einsum(
            "pd,pd->p", first[1][rows[part]], second[1][columns[part]], dtype=np.float64
        )
    return similarities


def _need(rated: RatedPairs, kind: Likeness) -> None:
    if rated.kind is not kind:
        raise MetricError(
            f"these are {rated.kind.upper()} ratings, but {kind.upper()} ratings are needed here"
        )


def _both_ways(one: Ids, other: Ids) -> Positives:
    different = one != other
    one, other = one[different], other[different]
    return Positives.from_pairs(np.concatenate([one, other]), np.concatenate([other, one]))


def _within_groups(ids: Ids, groups: Ids) -> tuple[Ids, Ids]:
    """Every two ids of one group, in one order."""
    if len(ids) != len(groups):
        raise MetricError(f"{len(ids)} captions, but {len(groups)} images of theirs")
    order = np.argsort(groups, kind="stable")
    ids, groups = ids[order], groups[order]
    largest = int(np.unique(groups, return_counts=True)[1].max(initial=0))
    apart = [np.flatnonzero(groups[step:] == groups[:-step]) for step in range(1, largest)]
    first = [ids[places] for places in apart]
    second = [ids[places + step] for step, places in enumerate(apart, start=1)]
    nothing = np.empty(0, dtype=np.int64)
    return np.concatenate([nothing, *first]), np.concatenate([nothing, *second])


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
        MetricError: the shapes do not fit, an embedding holds something that is not a number, a query has no positives
            (unless left out) or is its own, or a query or a positive has no embedding.
    """
    asked = usual_metrics(ks, by_r=False, median_rank=True)
    if embeddings.ndim != 2 or len(embeddings) != len(ids):
        raise MetricError(f"embeddings are {embeddings.shape}, but {len(ids)} ids were given")
    strange = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
    if len(strange):
        raise MetricError(
            f"the embedding of item {np.asarray(ids)[strange[0]]} holds something that is not a number"
        )
    scored = with_positives(positives, no_positives)
    first = first_ranks_within(ids, embeddings, scored)
    ranks = PositiveRanks(scored, np.zeros(len(scored.item_ids), np.int64), first, first, 0)
    return values_of([ranks], asked, left_out=len(positives) - len(scored))


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
    queries = gallery.need(positives.query_ids, "the positives")
    columns = gallery.need(positives.item_ids, "the positives")
    ranks = np.empty(len(positives), dtype=np.int64)
    size = max(1, _CELLS // len(gallery))
    for start in range(0, len(positives), size):
        part = slice(start, min(start + size, len(positives)))
        similarities = vectors[queries[part]] @ vectors.T  # (B, G)
        some = slice(positives.offsets[part.start], positives.offsets[part.stop])
        rows = positives.rows[some] - part.start
        ranks[part] = _first_ranks(similarities, queries[part], rows, columns[some])
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
