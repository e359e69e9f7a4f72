"""Rankings, or ranks that are known already, under the metrics of the table.

Rankings are (Q, depth) integer arrays of item ids, best first, with the query id of each row; only the head that a
metric needs is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.metrics.positives import Ids, NoPositives, Positives, QueryValues, Short
from mitl.metrics.ranked import ArrayRankings, Rankings
from mitl.metrics.ranks import PositiveRanks, first_ranks, ranks_in
from mitl.metrics.table import ANYWHERE, Asked, Scores, asked_metrics, usual_metrics

Values = tuple[QueryValues, ...]

_CELLS = 1 << 20
"""Pairs of a positive and a place looked at in one go; bounds the memory to some 10 MB whatever R is."""
_COUNT_AS_MISSES = "or count the missing places as misses (short='zero')"


def score_queries(
    query_ids: NDArray[Any],
    items: NDArray[Any],
    positives: Positives,
    *,
    ks: Sequence[int] = (1, 5, 10),
    by_r: bool = True,
    median_rank: bool = False,
    short: Short = "raise",
    no_positives: NoPositives = "raise",
) -> Values:
    """All metrics of one direction, query by query: ``R@K`` for each K, ``R-Precision``, ``mAP@R``, ``median rank``.

    Args:
        query_ids: (N,) the query of each row of ``items``; may hold more queries than are scored.
        items: (N, depth) item ids, best first.
        by_r: whether R-Precision and mAP@R are wanted; else only max(ks) places are read.
        median_rank: whether the rank of each query's first positive is wanted.
        short: what a ranking means that is shorter than K or R, or that ends before the first positive. "raise"
            refuses it. "zero" counts the missing places as misses; R-Precision and mAP@R are still over R, and a
            first positive that was not met stands right behind the end.
        no_positives: what a query without positives means: an error, or "leave_out".

    Raises:
        MetricError: K is below 1; ids are no integers; a query has no ranking, or two; a ranking names a positive
            twice; and as ``short`` and ``no_positives`` say, with the query named.
    """
    asked = usual_metrics(ks, by_r=by_r, median_rank=median_rank)
    rankings = ArrayRankings(query_ids, items)
    return score_metrics(rankings, positives, asked, short=short, no_positives=no_positives)


def score_ranked(
    rankings: Rankings,
    positives: Positives,
    *,
    ks: Sequence[int] = (1, 5, 10),
    by_r: bool = True,
    median_rank: bool = False,
    short: Short = "raise",
    no_positives: NoPositives = "raise",
) -> Values:
    """As :func:`score_queries`, for rankings of any form."""
    asked = usual_metrics(ks, by_r=by_r, median_rank=median_rank)
    return score_metrics(rankings, positives, asked, short=short, no_positives=no_positives)


def score_metrics(
    rankings: Rankings,
    positives: Positives,
    metrics: Iterable[Asked | str],
    *,
    short: Short = "raise",
    no_positives: NoPositives = "raise",
) -> Values:
    """Any metrics of ``METRICS``, by name or as :func:`asked_metrics` gives them; else as :func:`score_queries`."""
    asked = tuple(
        one for each in metrics for one in (asked_metrics([each]) if isinstance(each, str) else (each,))
    )
    scored = with_positives(positives, no_positives)
    rows = rankings.rows_of(scored.query_ids)
    far, near = [one for one in asked if one.reads_on], [one for one in asked if not one.reads_on]
    found: dict[str, list[Scores]] = {one.name: [] for one in asked}
    if near:
        lengths = rankings.lengths(rows)
        if short == "raise":
            _refuse_short(scored, lengths, near)
        longest = int(lengths.max())
        for block in _query_blocks(scored, near, longest):
            part = _rows(scored, block)
            depth = _depth(part.counts, near, longest)
            ranks = ranks_in(rankings.block(rows[block], 0, depth), part)
            known = PositiveRanks.of(part, ranks, lengths[block], depth)
            if short == "raise":
                _refuse_unmet(known, near)
            for one in near:
                found[one.name].append(one.metric.of(known, one.k))
    if far:
        known = first_ranks(rankings, scored)
        if short == "raise":
            _refuse_unmet(known, far)
        for one in far:
            found[one.name].append(one.metric.of(known, one.k))
    left_out = len(positives) - len(scored)
    return tuple(one.values(found[one.name], scored.query_ids, left_out) for one in asked)


def score_ranks(
    positives: Positives, ranks: Ids, gallery: int, asked: Sequence[Asked], *, short: Short, left_out: int = 0
) -> Values:
    """The metrics of queries whose positives' ranks in a gallery of so many items are known, (P,).

    A rank is 0 where the positive is not in the gallery, or does not matter to a metric.

    Raises:
        MetricError: the gallery has fewer items than K or R, or none of a query's positives, and ``short`` is "raise".
    """
    if short == "raise":
        _refuse_small(positives, gallery, asked)
    found: dict[str, list[Scores]] = {one.name: [] for one in asked}
    for block in _query_blocks(positives, asked, gallery):
        part = _rows(positives, block)
        own = ranks[positives.offsets[block.start] : positives.offsets[block.stop]]
        depth = _depth(part.counts, asked, gallery)
        known = PositiveRanks.of(part, own, np.full(len(part), gallery), depth)
        if short == "raise":
            _refuse_unheld(known, asked)
        for one in asked:
            found[one.name].append(one.metric.of(known, one.k))
    return tuple(one.values(found[one.name], positives.query_ids, left_out) for one in asked)


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
    reaches = [int(one.reach(counts).max(initial=0)) for one in asked if not one.reads_on]
    return max((longest if reach == ANYWHERE else reach for reach in reaches), default=0)


def _query_blocks(positives: Positives, asked: Sequence[Asked], longest: int) -> Iterator[slice]:
    """Queries that are scored together."""
    each = max(1, -(-len(positives.item_ids) // len(positives)))
    size = max(1, _CELLS // (each * max(1, _depth(positives.counts, asked, longest))))
    for start in range(0, len(positives), size):
        yield slice(start, min(start + size, len(positives)))


def _rows(positives: Positives, block: slice) -> Positives:
    offsets: Ids = positives.offsets[block.start : block.stop + 1]
    return Positives(
        positives.query_ids[block], offsets - offsets[0], positives.item_ids[offsets[0] : offsets[-1]]
    )


def _deepest(asked: Sequence[Asked]) -> Asked | None:
    """The metric of the largest K."""
    return max((one for one in asked if one.metric.places == "K"), key=lambda one: one.k, default=None)


def _refuse_short(positives: Positives, lengths: Ids, asked: Sequence[Asked]) -> None:
    """MetricError where a ranking ends before K or R."""
    deepest, shortest = _deepest(asked), int(lengths.argmin())
    if deepest is not None and lengths[shortest] < deepest.k:
        raise MetricError(
            f"{deepest.long_name} needs {deepest.k} ranked items, but the rankings end at {lengths[shortest]} "
            f"(query {positives.query_ids[shortest]}); rank deeper, {_COUNT_AS_MISSES}"
        )
    lacking = positives.counts - lengths
    worst = int(lacking.argmax())
    if any(one.metric.places == "R" for one in asked) and lacking[worst] > 0:
        raise MetricError(
            f"query {positives.query_ids[worst]} has {positives.counts[worst]} positives, "
            f"but its ranking ends at {lengths[worst]}; rank deeper, {_COUNT_AS_MISSES}"
        )


def _refuse_unmet(found: PositiveRanks, asked: Sequence[Asked]) -> None:
    """MetricError where a metric needs ranks wherever they are, and a ranking ends before them."""
    for one in asked:
        if one.metric.places != "any":
            continue
        lacking = found.first == 0
        if one.metric.positives == "all":
            lacking = np.minimum.reduceat(found.ranks, found.positives.offsets[:-1]) == 0
        missing = np.flatnonzero(lacking)
        if len(missing):
            which = "no positive" if one.metric.positives == "first" else "not every positive"
            raise MetricError(
                f"{which} of query {found.positives.query_ids[missing[0]]} is among the {found.ends[missing[0]]} items "
                f"that its ranking names ({len(missing)} of {len(lacking)} queries are so), so the {one.name} is not "
                "known; rank deeper, or count a missing positive as right behind the end (short='zero')"
            )


def _refuse_small(positives: Positives, gallery: int, asked: Sequence[Asked]) -> None:
    """MetricError where a gallery has fewer items than K or R."""
    deepest = _deepest(asked)
    if deepest is not None and deepest.k > gallery:
        raise MetricError(
            f"{deepest.long_name} needs {deepest.k} ranked items, but the gallery has {gallery}; "
            f"ask for less, {_COUNT_AS_MISSES}"
        )
    longest = int(positives.counts.argmax())
    if any(one.metric.places == "R" for one in asked) and positives.counts[longest] > gallery:
        raise MetricError(
            f"query {positives.query_ids[longest]} has {positives.counts[longest]} positives, but the gallery has "
            f"{gallery} items; count the missing places as misses (short='zero')"
        )


def _refuse_unheld(found: PositiveRanks, asked: Sequence[Asked]) -> None:
    """MetricError where a metric needs ranks wherever they are, and the gallery lacks the positives."""
    far = [one for one in asked if one.metric.places == "any"]
    if far and (found.first == 0).any():
        query = found.positives.query_ids[found.first == 0][0]
        raise MetricError(
            f"the gallery holds no positive of query {query}, so the {far[0].name} is not known; leave the query out, "
            "or count a missing positive as right behind the end (short='zero')"
        )
