"""The official test of COCO: originals on 1K and 5K, CxC and ECCV Caption, all at once and query by query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import contains
from mitl.errors import MetricError
from mitl.metrics.positives import Ids, Positives, QueryValues, Short, Statistic, integer_ids, rising
from mitl.metrics.ranks import NOTHING, ArrayRankings, Members, PositiveRanks, Rankings, first_ranks
from mitl.metrics.retrieval import Values, score_rankings, values_of
from mitl.metrics.table import KS, Asked, MetricRequest, usual_metrics

OfficialName = Literal["coco_1k", "coco_5k", "cxc", "eccv"]
Side = Literal["i2t", "t2i"]

NAMES: tuple[OfficialName, ...] = get_args(OfficialName)
SIDES: tuple[Side, ...] = get_args(Side)
FOLDS = 5

_LOOKED_AT, _LEAST_KNOWN = 100, 0.1
_FILES = {"i2t": "image_to_caption", "t2i": "caption_to_image"}
_TABLES = {"coco_5k": "original", "cxc": "cxc", "eccv": "eccv"}


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
    these captions (of the smallest id, where one has several). Captions that are left over when N is not a multiple of
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
    ks: Sequence[int] = KS,
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
    """Metrics of first positives, as ``score_folds``, for rankings of any form."""
    enough = fold_reach(asked)
    ranks = []
    for fold in folds:
        ranks.append(first_ranks(rankings, fold.positives, members=Members(fold.item_ids), enough=enough))
        if short == "raise":
            _refuse_undecided(ranks[-1], fold, enough)
    return fold_values(ranks, asked)


def fold_reach(asked: Sequence[Asked]) -> int | None:
    """The rank within a fold beyond which its first positive does not matter; None where it always does."""
    return (
        None
        if any(request.reads_on for request in asked)
        else max((request.k for request in asked), default=None)
    )


def fold_values(found: Sequence[PositiveRanks], asked: Sequence[Asked]) -> Values:
    """Values of each query from the first ranks within its fold, one part a fold."""
    sizes = [len(part.positives) for part in found]
    weights = None  # of folds of one size the mean of means is the mean
    if len(set(sizes)) > 1:
        weights = np.repeat([1 / (len(sizes) * size) for size in sizes], sizes)
    return tuple(
        scores if scores.statistic is Statistic.MEDIAN else replace(scores, weights=weights)
        for scores in values_of(found, asked)
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
    chosen = positives.of_queries(wanted)
    if len(chosen) != len(wanted) or not chosen.counts.all():
        lacking = np.setdiff1d(wanted, chosen.query_ids[chosen.counts > 0])
        raise MetricError(f"{what} {lacking[0]} has no positives, so it belongs to no fold")
    return chosen


@dataclass(frozen=True, slots=True, eq=False)
class OfficialSets:
    """The test split and its positives under COCO's own ids."""

    image_ids: Ids
    """(5000,) rising."""
    caption_ids: Ids
    """(25000,) rising."""
    positives: Mapping[tuple[OfficialName, Side], Positives]
    """``coco_5k``, ``cxc`` and ``eccv``, image queries (``i2t``) and caption queries (``t2i``)."""
    folds: Mapping[Side, tuple[Fold, ...]]
    """The five folds of COCO 1K."""

    def gallery(self, side: Side) -> Ids:
        """What the queries of this side are ranked against."""
        return self.caption_ids if side == "i2t" else self.image_ids


@cache
def official_sets() -> OfficialSets:
    """What the package ``eccv_caption`` carries, read once.

    Raises:
        DatasetError: the package is not installed (the extra ``official`` brings it), or its files are damaged.
    """
    from mitl.datasets.official import coco_test_ids_file, read_positives

    ids_file = coco_test_ids_file()
    tables: dict[tuple[OfficialName, Side], Positives] = {}
    for name in ("coco_5k", "cxc", "eccv"):
        for side in SIDES:
            path = ids_file.parent / f"{_TABLES[name]}_{_FILES[side]}.json"
            tables[name, side] = Positives.from_mapping(read_positives(path))
    ordered = np.load(ids_file)
    there, back = split_folds(ordered, tables["coco_5k", "t2i"], tables["coco_5k", "i2t"])
    return OfficialSets(
        tables["coco_5k", "i2t"].query_ids,
        tables["coco_5k", "t2i"].query_ids,
        tables,
        {"i2t": there, "t2i": back},
    )


def score_official(
    rankings: Mapping[Side, Rankings],
    names: Iterable[OfficialName] = NAMES,
    *,
    ks: Sequence[int] = KS,
    median_rank: bool = False,
    short: Short = "raise",
) -> dict[tuple[OfficialName, Side], Values]:
    """Every metric of the official sets for rankings of one or both directions.

    ECCV Caption is scored by Recall@K, R-Precision and mAP@R, the others by Recall@K; only the heads of the rankings
    are read. 24,972 of the 25,000 captions are queries of CxC. Two of ECCV Caption's positives are not in the
    gallery and count in R all the same.

    Args:
        rankings: ``ArrayRankings`` or ``ListRankings`` for ``i2t``, ``t2i`` or both.
        ks, median_rank, short: as for ``score_queries``; the median rank is for all sets.

    Raises:
        DatasetError: the package ``eccv_caption`` is not installed.
        MetricError: a set is unknown, no direction is given, or as ``score_queries`` and ``score_folds``.
    """
    sets = official_sets()
    names = known_names(names)
    if not rankings:
        raise MetricError("no rankings were given; give i2t, t2i or both")
    scores: dict[tuple[OfficialName, Side], Values] = {}
    for name in names:
        for side in SIDES:
            if side in rankings:
                scoring = MetricRequest.of(ks, name == "eccv", median_rank, short=short)
                positives = sets.positives["coco_5k" if name == "coco_1k" else name, side]
                score: Callable[[Rankings], Values] = partial(
                    score_rankings, positives=positives, scoring=scoring
                )
                if name == "coco_1k":
                    score = partial(
                        score_folds_ranked, folds=sets.folds[side], asked=scoring.asked, short=short
                    )
                scores[name, side] = scored_by_name(
                    score, rankings[side], side, positives, sets.gallery(side)
                )
    return scores


def known_names(names: Iterable[OfficialName]) -> list[OfficialName]:
    """The sets in their usual order; MetricError where one is unknown."""
    wanted = set(names)
    unknown = sorted(wanted - set(NAMES))
    if unknown:
        raise MetricError(f"no official set called {unknown[0]!r}; known: {', '.join(NAMES)}")
    return [name for name in NAMES if name in wanted]


def scored_by_name(
    score: Callable[[Rankings], Values], rankings: Rankings, side: Side, positives: Positives, gallery: Ids
) -> Values:
    """What ``score`` gives; its errors say which direction they are about, and whether ids were meant at all."""
    try:
        try:
            values = score(rankings)
        except MetricError:
            _refuse_strangers(rankings, positives, gallery)
            raise
        if not any(
            scores.statistic is Statistic.MEAN and scores.estimate > _LEAST_KNOWN for scores in values
        ):
            _refuse_strangers(rankings, positives, gallery)
        return values
    except MetricError as error:
        raise MetricError(f"{side}: {error}") from error


def _refuse_strangers(rankings: Rankings, positives: Positives, gallery: Ids) -> None:
    """MetricError where hardly any of the first items is in the gallery: positions were taken for ids."""
    try:
        rows = rankings.rows_of(positives.query_ids[:_LOOKED_AT])
    except MetricError:
        return  # complained of already, with all queries counted
    named = rankings.block(rows, 0, 1).ravel()
    named = named[named != NOTHING]
    known = contains(gallery, named)
    if len(named) and known.mean() < _LEAST_KNOWN:
        known |= np.isin(named, positives.item_ids)  # the positives may be of another gallery
    if len(named) and known.mean() < _LEAST_KNOWN:
        unknown = ", ".join(map(str, named[~known][:3]))
        raise MetricError(
            f"of the first items of {len(named)} rankings {int(known.sum())} are in the gallery, not so {unknown}; "
            "rankings name items by the data set's own ids, not by position"
        )
