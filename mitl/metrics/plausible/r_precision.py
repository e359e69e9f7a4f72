"""Plausible Match R-Precision (PMRP): items match where their images show nearly the same objects.

An image is a binary vector over object classes (80 in COCO), and a caption has its image's. Two items match where
their vectors differ in at most ζ places. A query can have ten thousand matches, so matches are told from the
distances of distinct vectors and never listed. Sources: Chun et al., Probabilistic Embeddings for Cross-Modal
Retrieval, CVPR 2021 (the metric, mean over ζ = 0, 1, 2); Chun et al., ECCV Caption, section 4.1 (ζ = 0 and
min(R, 50) in place of R).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.metrics.plausible.object_vectors import ObjectVectors
from mitl.metrics.plausible.search import PlausibleSearch, refuse_short
from mitl.metrics.positives import Ids, NoPositives, Positives, QueryValues, Short
from mitl.metrics.ranked import ArrayRankings
from mitl.metrics.ranks import ranks_in

ZETAS = (0, 1, 2)
"""The distances that PCME's PMRP is the mean over."""
CAP = 50
"""ECCV Caption's bound on R."""
Objectless = Literal["leave_out", "keep"]
"""Items without any object: left out of queries and gallery, as in PCME's evaluation, or taken to match each other."""
_CELLS = 1 << 22
"""Places looked at in one go: some 100 MB."""


def plausible_r_precision(
    query_ids: NDArray[Any],
    items: NDArray[Any],
    queries: ObjectVectors,
    gallery: ObjectVectors,
    *,
    zetas: Sequence[int] = ZETAS,
    cap: int | None = None,
    objectless: Objectless = "leave_out",
    short: Short = "raise",
    no_positives: NoPositives = "raise",
) -> tuple[QueryValues, ...]:
    """R-Precision under plausible matches: one for each ζ and, where there are several, their mean, ``PMRP``.

    Args:
        query_ids: (N,) the query of each row of ``items``; may hold more queries than ``queries``.
        items: (N, depth) gallery ids, best first.
        queries: the queries to score, with their objects.
        gallery: the objects of all items that the rankings may name.
        cap: R is at most this; all matches where None. Rankings then need no more than ``cap`` places, beside
            those that items without objects take.

    Raises:
        MetricError: queries and gallery differ in the number of classes, a ranked item has no vector, a ranking
            names an item twice, is shorter than R (unless missing places count as misses), or a query has no
            ranking or no match (unless those without a match are left out).
    """
    _check(queries, gallery, zetas, cap)
    rankings = ArrayRankings(query_ids, items)
    heard = queries.with_objects() if objectless == "leave_out" else queries
    search = PlausibleSearch.of(gallery, leave_out=objectless == "leave_out")
    order = np.argsort(heard.ids)
    ids, vectors = heard.ids[order], heard.vectors[order]
    counts = search.counts(vectors, zetas)  # (Z, Q)
    matched = counts.min(axis=0, initial=1) > 0
    _refuse_unmatched(ids, matched, no_positives)
    ids, vectors, counts = ids[matched], vectors[matched], counts[:, matched]
    wanted = counts if cap is None else np.minimum(counts, cap)
    rows = rankings.rows_of(ids)
    deepest = wanted.max(axis=0)
    values = np.empty(wanted.shape)
    for part in blocks(deepest, search.width):
        stop = search.reach(int(deepest[part].max()))
        head = rankings.block(rows[part], 0, min(stop, items.shape[1]))
        values[:, part] = search.precisions(ids[part], head, vectors[part], wanted[:, part], zetas, short)
    named = [
        QueryValues(_name(z, cap), ids, v, left_out=len(queries) - len(ids))
        for z, v in zip(zetas, values, strict=True)
    ]
    if len(zetas) > 1:
        named.append(
            QueryValues(_name(None, cap), ids, values.mean(axis=0), left_out=len(queries) - len(ids))
        )
    return tuple(named)


def listed_r_precision(
    query_ids: NDArray[Any],
    items: NDArray[Any],
    matches: Positives,
    *,
    zeta: int = 0,
    cap: int | None = None,
    short: Short = "raise",
    no_positives: NoPositives = "raise",
) -> QueryValues:
    """R-Precision under matches that were listed beforehand, as in ECCV Caption's files of plausible matches.

    Args:
        query_ids: (N,) the query of each row of ``items``; may hold more queries than ``matches``.
        items: (N, depth) gallery ids, best first.
        zeta: the distance that the lists were made with; it names the metric.

    Raises:
        MetricError: as :func:`plausible_r_precision`.
    """
    _check_cap(cap)
    rankings = ArrayRankings(query_ids, items)
    _refuse_unmatched(matches.query_ids, matches.counts > 0, no_positives)
    scored = matches.with_positives()
    rows = rankings.rows_of(scored.query_ids)
    wanted = scored.counts if cap is None else np.minimum(scored.counts, cap)
    if short == "raise":
        refuse_short(np.full(len(wanted), items.shape[1]), wanted, scored.query_ids)
    values = np.empty(len(scored))
    for part in blocks(wanted):
        head = rankings.block(rows[part], 0, min(int(wanted[part].max()), items.shape[1]))
        matches_of = scored.take(part)
        ranks, rows = ranks_in(head, matches_of), matches_of.rows
        hits = (ranks > 0) & (ranks <= wanted[part][rows])
        values[part] = np.bincount(rows, hits, len(part)) / wanted[part]
    return QueryValues(_name(zeta, cap), scored.query_ids, values, left_out=len(matches) - len(scored))


def blocks(needed: Ids, least: int = 1) -> Iterator[Ids]:
    """Queries, in rising order, in blocks of like need: a block's head is hardly longer than its rows want."""
    order = np.argsort(-needed, kind="stable")
    start = 0
    while start < len(order):
        width = max(int(needed[order[start]]), least)
        stop = start + max(1, _CELLS // width)
        yield np.sort(order[start:stop])
        start = stop


def _name(zeta: int | None, cap: int | None) -> str:
    """``PMRP``, ``PMRP zeta=0``, ``PMRP zeta=0 R<=50``."""
    parts = ["PMRP", "" if zeta is None else f"zeta={zeta}", "" if cap is None else f"R<={cap}"]
    return " ".join(part for part in parts if part)


def _refuse_unmatched(ids: Ids, matched: NDArray[np.bool_], no_positives: NoPositives) -> None:
    strange = ids[~matched]
    if len(strange) and no_positives == "raise":
        raise MetricError(
            f"query {strange[0]} has no plausible match in the gallery ({len(strange)} of {len(ids)} have none), "
            "so its score is undefined; leave it out"
        )
    if len(strange) == len(ids):
        raise MetricError("no query has objects and a plausible match, so there is nothing to score")


def _check(queries: ObjectVectors, gallery: ObjectVectors, zetas: Sequence[int], cap: int | None) -> None:
    classes = queries.vectors.shape[1], gallery.vectors.shape[1]
    if classes[0] != classes[1]:
        raise MetricError(
            f"queries have {classes[0]} object classes, but the gallery has {classes[1]}; use one list of classes"
        )
    if not zetas or min(zetas) < 0:
        raise MetricError(f"zeta is {min(zetas, default='missing')}, but distances start at 0")
    _check_cap(cap)


def _check_cap(cap: int | None) -> None:
    if cap is not None and cap < 1:
        raise MetricError(f"R is bounded by {cap}, but the bound is at least 1")
