"""COCO 1K: recall within each fifth of the test split, averaged over the fifths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.metrics.positives import Ids, Positives, QueryValues, Short, Statistic, integer_ids, rising
from mitl.metrics.ranked import ArrayRankings, Rankings
from mitl.metrics.ranks import Members, PositiveRanks, first_ranks
from mitl.metrics.retrieval import Values
from mitl.metrics.table import Asked, usual_metrics

FOLDS = 5


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """The queries that are scored together, with their positives, and the gallery that they are scored in."""

    positives: Positives
    """Of this fold's queries; those outside ``item_ids`` are passed over."""
    item_ids: Ids
    """(G,) rising."""


def split_folds(
    caption_ids: NDArray[Any], images_of: Positives, captions_of: Positives, *, folds: int = FOLDS
) -> tuple[tuple[Fold, ...], tuple[Fold, ...]]:
    """The folds of both directions: image queries, then caption queries.

    A fold is a run of ``caption_ids`` (N,), the official order of the test split, with the image of each of
    these captions (of the smallest id, where one has several). Captions that are left over when N is no multiple of
    ``folds`` belong to none.

    Args:
        images_of: each caption's images.
        captions_of: each image's captions.

    Raises:
        MetricError: there are fewer captions than folds, or one has no positives.
    Source: ``coco_1k_recalls`` of the package eccv_caption, 0.1.0.
    """
    ids = integer_ids(caption_ids, "caption")
    if len(ids) < folds:
        raise MetricError(f"{len(ids)} captions cannot make {folds} folds")
    size = len(ids) // folds
    there, back = [], []
    for number in range(folds):
        captions = rising(ids[number * size : (number + 1) * size])
        of_captions = _all_of(images_of, captions, "caption")
        images = rising(of_captions.item_ids[of_captions.offsets[:-1]])
        there.append(Fold(_all_of(captions_of, images, "image"), captions))
        back.append(Fold(of_captions, images))
    return tuple(there), tuple(back)


def score_folds(
    query_ids: NDArray[Any],
    items: NDArray[Any],
    folds: Sequence[Fold],
    *,
    ks: Sequence[int] = (1, 5, 10),
    median_rank: bool = False,
    short: Short = "raise",
) -> tuple[QueryValues, ...]:
    """Recall@K, and the median rank, of each query within its fold's gallery.

    The rankings name items of the whole gallery; those outside a fold are passed over, and a row is read until a
    positive or max(ks) items of the fold were met. The weights make the estimate the mean over the folds' means; the
    median is taken over all queries at once.

    Args:
        query_ids, items: (N,) and (N, depth) as for ``score_queries``.
        short: what a ranking means that ends before it is decided: an error, or ("zero") a miss at each K that it
            does not reach, and for the median rank a first positive right behind the items that it named.

    Raises:
        MetricError: K is below 1; a query has no ranking, or two; and as ``short`` says, with the query named.
    """
    asked = usual_metrics(ks, by_r=False, median_rank=median_rank)
    return score_folds_ranked(ArrayRankings(query_ids, items), folds, asked, short=short)


def score_folds_ranked(
    rankings: Rankings, folds: Sequence[Fold], asked: Sequence[Asked], *, short: Short = "raise"
) -> Values:
    """Metrics of first positives, as :func:`score_folds`, for rankings of any form."""
    enough = fold_reach(asked)
    found = []
    for fold in folds:
        found.append(first_ranks(rankings, fold.positives, members=Members(fold.item_ids), enough=enough))
        if short == "raise":
            _refuse_undecided(found[-1], fold, enough)
    return fold_values(found, asked)


def fold_reach(asked: Sequence[Asked]) -> int | None:
    """The rank within a fold beyond which its first positive does not matter; None where it always does."""
    return None if any(one.reads_on for one in asked) else max((one.k for one in asked), default=None)


def fold_values(found: Sequence[PositiveRanks], asked: Sequence[Asked]) -> Values:
    """Values of each query from the first ranks within its fold, one part a fold."""
    query_ids = np.concatenate([part.positives.query_ids for part in found])
    sizes = [len(part.positives) for part in found]
    weights = None  # of folds of one size the mean of means is the mean
    if len(set(sizes)) > 1:
        weights = np.repeat([1 / (len(sizes) * size) for size in sizes], sizes)
    values = [one.values([one.metric.of(part, one.k) for part in found], query_ids) for one in asked]
    return tuple(
        each if each.statistic is Statistic.MEDIAN else replace(each, weights=weights) for each in values
    )


def _refuse_undecided(found: PositiveRanks, fold: Fold, enough: int | None) -> None:
    needed = len(fold.item_ids) + 1 if enough is None else min(enough, len(fold.item_ids))
    ended = np.flatnonzero((found.first == 0) & (found.ends < needed))
    if len(ended):
        wanted = "a positive" if enough is None else f"a positive or {needed} of them"
        raise MetricError(
            f"the ranking of query {fold.positives.query_ids[ended[0]]} ends after {found.ends[ended[0]]} of the "
            f"{len(fold.item_ids)} items of its fold, before {wanted} "
            f"(as do {len(ended)} of the fold's {len(found.first)} queries); "
            "rank deeper, or count the missing places as misses (short='zero')"
        )


def _all_of(positives: Positives, wanted: Ids, what: str) -> Positives:
    found = positives.of_queries(wanted)
    if len(found) != len(wanted) or not found.counts.all():
        lacking = np.setdiff1d(wanted, found.query_ids[found.counts > 0])
        raise MetricError(f"{what} {lacking[0]} has no positives, so it belongs to no fold")
    return found
