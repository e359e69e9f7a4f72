"""Features of what annotators say: similarities and ranks in both directions, on scales of no one query."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from mitl.core.arrays import Ints, places, unpack_ids
from mitl.fusion.evidence import Floats, FusionEvidence
from mitl.records import Direction

DIRECTIONS = tuple(Direction)


def ranking_features(evidence: FusionEvidence) -> tuple[list[str], Floats]:
    """Names, and (n, F): of each annotator and direction the similarity within its query and the rank.

    * ``gap``: how far below the query's best, in standard deviations of the annotator's similarities within queries;
    * ``place``: 1 / rank;
    * ``similarity``: as it is.

    A pair that a query's ranking does not list has the values of its last place, beyond which it lies; NaN stands
    where its item did not search.
    """
    names: list[str] = []
    columns: list[Floats] = []
    for name, rows in _by_annotator(evidence.ranked):
        found = []
        for number, direction in enumerate(DIRECTIONS):
            own = rows[rows["direction"] == number]
            if len(own):
                queries = evidence.images if direction is Direction.I2T else evidence.pair_captions
                found.append(_of_ranking(own, direction, evidence.pairs, queries))
                names += [f"{name}.{direction}.gap", f"{name}.{direction}.place"]
                columns += [found[-1][0], found[-1][1]]
        names.append(f"{name}.similarity")
        columns.append(np.fmax.reduce([each[2] for each in found]))
    names += ["ranked_by", "mean_place", "mean_gap"]
    columns += [_finders(evidence), *_means(names, columns)]
    return names, np.stack(columns, axis=1).astype(np.float32)


def _by_annotator(ranked: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for name in ranked["annotator"].cat.categories:
        rows = ranked[ranked["annotator"] == name]
        if len(rows):
            yield str(name), rows


def _of_ranking(
    rows: pd.DataFrame, direction: Direction, pairs: Ints, queries: Ints
) -> tuple[Floats, Floats, Floats]:
    """(n,) each: gap, place and similarity by the rankings of one annotator in one direction."""
    packed = rows["pair"].to_numpy()
    images, captions = unpack_ids(packed)
    asking = images if direction is Direction.I2T else captions
    similarity = rows["similarity"].to_numpy(np.float64)
    rank = rows["rank"].to_numpy(np.float64)
    known, at = np.unique(asking, return_inverse=True)
    best, worst = np.full(len(known), -np.inf), np.full(len(known), np.inf)
    np.maximum.at(best, at, similarity)
    np.minimum.at(worst, at, similarity)
    deepest = np.zeros(len(known))
    np.maximum.at(deepest, at, rank)
    count = np.bincount(at)
    mean = np.bincount(at, similarity) / count
    spread = float(np.sqrt(np.mean((similarity - mean[at]) ** 2))) or 1.0
    of_query = places(known, queries)
    asked = of_query >= 0
    gap, place, value = (np.full(len(pairs), np.nan) for _ in range(3))
    own = of_query[asked]
    gap[asked], place[asked], value[asked] = (best - worst)[own], 1 / (deepest[own] + 1), worst[own]
    listed = places(pairs, packed)
    gap[listed], place[listed], value[listed] = best[at] - similarity, 1 / rank, similarity
    return (gap / spread).astype(np.float32), place.astype(np.float32), value.astype(np.float32)


def _finders(evidence: FusionEvidence) -> Floats:
    """(n,) how many annotators rank the pair in any direction."""
    codes = evidence.ranked["annotator"].cat.codes.to_numpy()
    at = places(evidence.pairs, evidence.ranked["pair"].to_numpy())
    each = np.unique(np.stack([at, codes.astype(np.int64)], axis=1), axis=0)
    return np.bincount(each[:, 0], minlength=len(evidence.pairs)).astype(np.float32)


def _means(names: list[str], columns: list[Floats]) -> Iterator[Floats]:
    """(n,) the mean place and the mean gap over annotators and directions; NaN where nothing is known."""
    for kind in (".place", ".gap"):
        block = np.stack(
            [column for name, column in zip(names, columns, strict=False) if name.endswith(kind)]
        )
        known = ~np.isnan(block)
        count = known.sum(axis=0)
        total = np.where(known, block, 0).sum(axis=0)
        yield np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(np.float32)
