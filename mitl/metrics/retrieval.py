"""Rankings, or ranks that are known already, under the metrics of the table.

Rankings are (Q, depth) integer arrays of item ids, best first, with the query id of each row; only the head that a
metric needs is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.metrics.positives import Ids, NoPositives, Positives, QueryValues
from mitl.metrics.ranks import ArrayRankings, PositiveRanks, Rankings, first_ranks, ranks_in
from mitl.metrics.table import (
    KS,
    MAP_AT_R,
    R_PRECISION,
    Asked,
    Gaps,
    MetricRequest,
    ScoreOptions,
    Scores,
    asked_metrics,
)

Values = tuple[QueryValues, ...]

_CELLS = 1 << 20
"""Pairs of a positive and a place looked at in one go; bounds the memory to some 10 MB whatever R is."""
_COUNT_AS_MISSES = "count the missing places as misses (short='zero')"


def score_queries(
    query_ids: NDArray[Any], items: NDArray[Any], positives: Positives, **options: Unpack[ScoreOptions]
) -> Values:
    """All metrics of one direction, query by query: ``R@K`` for each K, ``R-Precision``, ``mAP@R``, ``median rank``.

    Args:
        query_ids: (N,) the query of each row of ``items``; may hold more queries than are scored.
        items: (N, depth) item ids, best first.
        ks: K of Recall@K, 1, 5 and 10 by default.
        by_r: whether R-Precision and mAP@R are wanted, as by default; else only max(ks) places are read.
        median_rank: whether the rank of each query's first positive is wanted.
        short: what a ranking means that is shorter than K or R, or that ends before the first positive. "raise", the
            default, refuses it. "zero" counts the missing places as misses; R-Precision and mAP@R are still over R,
            and a first positive that was not met stands right behind the end.
        no_positives: what a query without positives means: an error, or "leave_out".

    Raises:
        MetricError: K is below 1; ids are not integers; a query has no ranking, or two; a ranking names a positive
            twice; and as ``short`` and ``no_positives`` say, with the query named.
    """
    return score_rankings(ArrayRankings(query_ids, items), positives, MetricRequest.of(**options))


def score_ranked(rankings: Rankings, positives: Positives, **options: Unpack[ScoreOptions]) -> Values:
    """As ``score_queries``, for rankings of any form."""
    return score_rankings(rankings, positives, MetricRequest.of(**options))


def score_metrics(
    rankings: Rankings, positives: Positives, metrics: Iterable[Asked | str], **gaps: Unpack[Gaps]
) -> Values:
    """Any metrics of ``METRICS``, by name or as ``asked_metrics`` gives them; else as ``score_queries``."""
    asked = tuple(
        request
        for metric in metrics
        for request in (asked_metrics([metric]) if isinstance(metric, str) else (metric,))
    )
    return score_rankings(rankings, positives, MetricRequest(asked, **gaps))


def score_rankings(rankings: Rankings, positives: Positives, scoring: MetricRequest) -> Values:
    """All metrics that are asked for; else as ``score_queries``."""
    scored = with_positives(positives, scoring.no_positives)
    rows, refuses = rankings.rows_of(scored.query_ids), scoring.short == "raise"
    far, near = (
        [request for request in scoring.asked if request.reads_on is reads_on] for reads_on in (True, False)
    )
    left_out = len(positives) - len(scored)
    values: Values = ()
    if near:
        lengths = rankings.lengths(rows)
        if refuses:
            _refuse_short(scored, lengths, near)
        longest = int(lengths.max())

        def heads() -> Iterator[PositiveRanks]:
            for block in _query_blocks(scored, near, longest):
                part = scored.take(np.arange(block.start, block.stop))
                depth = _depth(part.counts, near, longest)
                ranks = ranks_in(rankings.block(rows[block], 0, depth), part)
                yield PositiveRanks.of(part, ranks, lengths[block], depth)

        values += values_of(heads(), near, left_out, _refuse_unmet if refuses else None)
    if far:
        blocks = (first_ranks(rankings, scored),)
        values += values_of(blocks, far, left_out, _refuse_unmet if refuses else None)
    by_name = {scores.metric: scores for scores in values}
    return tuple(by_name[request.name] for request in scoring.asked)


def score_ranks(
    positives: Positives, scored: Positives, ranks: Ids, gallery: int, scoring: MetricRequest
) -> Values:
    """The metrics of queries whose positives' ranks in a gallery of so many items are known, (P,).

    A rank is 0 where the positive is not in the gallery, or does not matter to a metric.

    Args:
        scored: those of ``positives`` that are to be scored, see ``with_positives``.

    Raises:
        MetricError: the gallery has fewer items than K or R, or none of a query's positives, and ``short`` is "raise".
    """
    asked, refuses = scoring.asked, scoring.short == "raise"
    if refuses:
        _refuse_short(scored, np.full(len(scored), gallery), asked, of_gallery=True)

    def blocks() -> Iterator[PositiveRanks]:
        for block in _query_blocks(scored, asked, gallery):
            part = scored.take(np.arange(block.start, block.stop))
            part_ranks = ranks[scored.offsets[block.start] : scored.offsets[block.stop]]
            depth = _depth(part.counts, asked, gallery)
            yield PositiveRanks.of(part, part_ranks, np.full(len(part), gallery), depth)

    left_out = len(positives) - len(scored)
    return values_of(blocks(), asked, left_out, _refuse_unheld if refuses else None)


def values_of(
    blocks: Iterable[PositiveRanks],
    asked: Sequence[Asked],
    left_out: int = 0,
    refuse: Callable[[PositiveRanks, Sequence[Asked]], None] | None = None,
) -> Values:
    """What every scoring comes down to: values from the ranks of the positives, some queries at a time."""
    query_ids: list[Ids] = []
    parts: dict[str, list[Scores]] = {request.name: [] for request in asked}
    for block in blocks:
        if refuse is not None:
            refuse(block, asked)
        query_ids.append(block.positives.query_ids)
        for request in asked:
            values = np.asarray(request.metric.of(block, request.k), dtype=np.float64)
            if values.shape != block.positives.query_ids.shape:
                raise MetricError(
                    f"the metric {request.name!r} gave {values.shape} for {len(block.positives)} queries; it should "
                    "give one value for each"
                )
            parts[request.name].append(values)
    ids = np.concatenate(query_ids)
    return tuple(
        QueryValues(
            request.name,
            ids,
            np.concatenate(parts[request.name]),
            request.metric.statistic,
            left_out=left_out,
        )
        for request in asked
    )


def with_positives(positives: Positives, no_positives: NoPositives) -> Positives:
    """The queries to score; MetricError where one has no positives and that was not allowed, or none is left."""
    empty = positives.query_ids[positives.counts == 0]
    if len(empty) and no_positives == "raise":
        raise MetricError(
            f"query {empty[0]} has no positives ({len(empty)} of {len(positives)} have none), "
            "so its score is undefined; leave it out"
        )
    scored = positives.with_positives() if len(empty) else positives
    if not len(scored):
        raise MetricError("no query has a positive, so there is nothing to score")
    return scored


def _depth(counts: Ids, asked: Sequence[Asked], longest: int) -> int:
    """The places of a ranking of ``longest`` items that any of these metrics asks for."""
    reaches = (int(request.reach(counts).max(initial=0)) for request in asked if not request.reads_on)
    return max((min(reach, longest) for reach in reaches), default=0)


def _query_blocks(positives: Positives, asked: Sequence[Asked], longest: int) -> Iterator[slice]:
    """Queries that are scored together."""
    per_query = max(1, -(-len(positives.item_ids) // len(positives)))
    size = max(1, _CELLS // (per_query * max(1, _depth(positives.counts, asked, longest))))
    for start in range(0, len(positives), size):
        yield slice(start, min(start + size, len(positives)))


def _refuse_short(
    positives: Positives, lengths: Ids, asked: Sequence[Asked], *, of_gallery: bool = False
) -> None:
    """MetricError where a ranking, or with ``of_gallery`` the gallery itself, ends before K or R."""
    with_k = (request for request in asked if request.metric.places == "K")
    deepest, shortest = max(with_k, key=lambda request: request.k, default=None), int(lengths.argmin())
    if deepest is not None and lengths[shortest] < deepest.k:
        end = f"the rankings end at {lengths[shortest]} (query {positives.query_ids[shortest]}); rank deeper"
        if of_gallery:
            end = f"the gallery has {lengths[shortest]}; ask for less"
        raise MetricError(
            f"{deepest.long_name} needs {deepest.k} ranked items, but {end}, or {_COUNT_AS_MISSES}"
        )
    lacking = positives.counts - lengths
    worst = int(lacking.argmax())
    if any(request.metric.places == "R" for request in asked) and lacking[worst] > 0:
        end = f"its ranking ends at {lengths[worst]}; rank deeper, or"
        if of_gallery:
            end = f"the gallery has {lengths[worst]} items;"
        raise MetricError(
            f"query {positives.query_ids[worst]} has {positives.counts[worst]} positives, but {end} {_COUNT_AS_MISSES}"
        )


def _refuse_unmet(found: PositiveRanks, asked: Sequence[Asked]) -> None:
    """MetricError where a metric needs ranks wherever they are, and a ranking ends before them."""
    for request in asked:
        if request.metric.places != "any":
            continue
        lacking = found.first == 0
        if request.metric.positives == "all":
            lacking = np.minimum.reduceat(found.ranks, found.positives.offsets[:-1]) == 0
        missing = np.flatnonzero(lacking)
        if len(missing):
            which = "no positive" if request.metric.positives == "first" else "not every positive"
            raise MetricError(
                f"{which} of query {found.positives.query_ids[missing[0]]} is among the {found.ends[missing[0]]} items "
                f"that its ranking names ({len(missing)} of {len(lacking)} queries are so), so the {request.name} is "
                "not known; rank deeper, or count a missing positive as right behind the end (short='zero')"
            )


def _refuse_unheld(found: PositiveRanks, asked: Sequence[Asked]) -> None:
    """MetricError where a metric needs ranks wherever they are, and the gallery lacks the positives."""
    far = [request for request in asked if request.metric.places == "any"]
    if far and (found.first == 0).any():
        query = found.positives.query_ids[found.first == 0][0]
        raise MetricError(
            f"the gallery holds no positive of query {query}, so the {far[0].name} is not known; leave the query out, "
            "or count a missing positive as right behind the end (short='zero')"
        )


@dataclass(frozen=True, slots=True)
class RetrievalScores:
    """Means over the queries of one direction, from 0 to 1."""

    n_queries: int
    left_out: int
    """Queries without positives, where those are left out."""
    recall: dict[int, float]
    r_precision: float | None
    """None where only recall was asked for; so is ``map_at_r``."""
    map_at_r: float | None


def recall_at_k(
    query_ids: NDArray[Any], items: NDArray[Any], positives: Positives, k: int, **gaps: Unpack[Gaps]
) -> float:
    """Share of queries with a positive among their first ``k`` items; ``short``, ``no_positives`` as ``score_queries``.

    Raises:
        MetricError: ``k`` is below 1; a query has no positives or no ranking; the rankings are shorter than
            ``k`` and ``short`` is "raise".
    """
    (recall,) = score_queries(query_ids, items, positives, ks=(k,), by_r=False, **gaps)
    return recall.estimate


def r_precision(
    query_ids: NDArray[Any], items: NDArray[Any], positives: Positives, **gaps: Unpack[Gaps]
) -> float:
    """Mean over queries of the share of positives among the first R items, R being the query's positives.

    Raises:
        MetricError: as ``map_at_r``.
    """
    return score_queries(query_ids, items, positives, ks=(), **gaps)[0].estimate


def map_at_r(
    query_ids: NDArray[Any], items: NDArray[Any], positives: Positives, **gaps: Unpack[Gaps]
) -> float:
    """Mean over queries of AP@R: precision at each place from 1 to R that holds a positive, summed, over R.

    Raises:
        MetricError: a query has no positives (unless they are left out) or no ranking; a ranking is shorter
            than R and ``short`` is "raise". With "zero" the missing places count as misses, and the mean is
            still over R.
    Source: Musgrave et al., A Metric Learning Reality Check, ECCV 2020, section 3.2.
    """
    return score_queries(query_ids, items, positives, ks=(), **gaps)[1].estimate


def score(
    query_ids: NDArray[Any],
    items: NDArray[Any],
    positives: Positives,
    *,
    ks: Sequence[int] = KS,
    by_r: bool = True,
    **gaps: Unpack[Gaps],
) -> RetrievalScores:
    """The means of ``score_queries``, with MetricError as there."""
    values = score_queries(query_ids, items, positives, ks=ks, by_r=by_r, **gaps)
    means = {scores.metric: scores.estimate for scores in values}
    recall = {k: means[f"R@{k}"] for k in ks}
    scored = int(np.count_nonzero(positives.counts))
    return RetrievalScores(
        scored, len(positives) - scored, recall, means.get(R_PRECISION), means.get(MAP_AT_R)
    )


def average_precision_at_r(ranking: Sequence[int], positives: Collection[int]) -> float:
    """AP@R of one ranking; MetricError where there are no positives or the ranking is shorter than R."""
    matches = Positives.from_mapping({0: positives})
    return map_at_r(np.zeros(1, dtype=np.int64), np.asarray([ranking]), matches)
