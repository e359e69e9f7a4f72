"""The official test of COCO: originals on 1K and 5K, CxC and ECCV Caption, all at once and query by query."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from mitl.errors import MetricError
from mitl.metrics.coco_folds import Fold, score_folds_ranked, split_folds
from mitl.metrics.positives import Ids, Positives, Short, Statistic
from mitl.metrics.ranked import NOTHING, Rankings
from mitl.metrics.retrieval import Values, score_metrics
from mitl.metrics.table import usual_metrics

OfficialName = Literal["coco_1k", "coco_5k", "cxc", "eccv"]
Side = Literal["i2t", "t2i"]

NAMES: tuple[OfficialName, ...] = get_args(OfficialName)
SIDES: tuple[Side, ...] = get_args(Side)
KS = (1, 5, 10)

_LOOKED_AT, _LEAST_KNOWN = 100, 0.1
_FILES = {"i2t": "image_to_caption", "t2i": "caption_to_image"}
_TABLES = {"coco_5k": "original", "cxc": "cxc", "eccv": "eccv"}


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
    from mitl.datasets.official import coco_test_ids_file

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


def read_positives(path: Path) -> dict[int, tuple[int, ...]]:
    """A JSON of positives by query id, as ``eccv_caption`` and releases keep them.

    Raises:
        MetricError: the file cannot be read, or is no object of lists of integers.
    """
    try:
        table = json.loads(path.read_bytes())
        return {int(query): tuple(map(int, items)) for query, items in table.items()}
    except OSError as error:
        raise MetricError(f"the positives {str(path)!r} cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise MetricError(
            f"{str(path)!r} is no JSON object of query ids with lists of item ids ({error})"
        ) from error


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
    found: dict[tuple[OfficialName, Side], Values] = {}
    for name in names:
        for side in SIDES:
            if side in rankings:
                score = _scorer(sets, name, side, ks, median_rank=median_rank, short=short)
                positives = sets.positives["coco_5k" if name == "coco_1k" else name, side]
                found[name, side] = scored_by_name(score, rankings[side], side, positives, sets.gallery(side))
    return found


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
            found = score(rankings)
        except MetricError:
            _refuse_strangers(rankings, positives, gallery)
            raise
        if not any(each.statistic is Statistic.MEAN and each.estimate > _LEAST_KNOWN for each in found):
            _refuse_strangers(rankings, positives, gallery)
        return found
    except MetricError as error:
        raise MetricError(f"{side}: {error}") from error


def _scorer(
    sets: OfficialSets, name: OfficialName, side: Side, ks: Sequence[int], *, median_rank: bool, short: Short
) -> Callable[[Rankings], Values]:
    asked = usual_metrics(ks, by_r=name == "eccv", median_rank=median_rank)
    if name == "coco_1k":
        return lambda rankings: score_folds_ranked(rankings, sets.folds[side], asked, short=short)
    positives = sets.positives[name, side]
    return lambda rankings: score_metrics(rankings, positives, asked, short=short)


def _refuse_strangers(rankings: Rankings, positives: Positives, gallery: Ids) -> None:
    """MetricError where hardly any of the first items is in the gallery: positions were taken for ids."""
    try:
        rows = rankings.rows_of(positives.query_ids[:_LOOKED_AT])
    except MetricError:
        return  # complained of already, with all queries counted
    named = rankings.block(rows, 0, 1).ravel()
    named = named[named != NOTHING]
    known = gallery[np.minimum(np.searchsorted(gallery, named), len(gallery) - 1)] == named
    if len(named) and known.mean() < _LEAST_KNOWN:
        known |= np.isin(named, positives.item_ids)  # the positives may be of another gallery
    if len(named) and known.mean() < _LEAST_KNOWN:
        unknown = ", ".join(map(str, named[~known][:3]))
        raise MetricError(
            f"of the first items of {len(named)} rankings {int(known.sum())} are in the gallery, not so {unknown}; "
            "rankings name items by the data set's own ids, not by position"
        )
