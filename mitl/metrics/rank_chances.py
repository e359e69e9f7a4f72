"""How likely an unjudged pair is a match, by where the compared models together rank it and what an audit shows there.

One chance for each band of places, the same for all models: the share of matches among the audited pairs of the band,
each standing for 1 / inclusion pairs, and never higher further down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mitl.core.packed import places
from mitl.metrics.incomplete import AuditSample
from mitl.metrics.partial_labels import Flags, Floats, PartialLabels
from mitl.metrics.positives import Ids
from mitl.metrics.ranks import NOTHING, Rankings

BANDS = (1, 2, 4, 8, 16, 32, 64)
"""The last place of each band; what stands behind all of them is the remainder."""
_DAMPING = 60
"""Source: Cormack, Clarke and Büttcher, Reciprocal Rank Fusion, SIGIR 2009."""
_PRIOR = 2.0
"""Pairs of the mean share that each band is taken to hold beside its audited ones."""


def with_rank_chances(
    judged: PartialLabels, rankings: Sequence[Rankings], audit: AuditSample
) -> PartialLabels:
    """The judged pairs, and those that the models together rank first with the chance of their band.

    Args:
        judged: the judged pairs alone; what else they say of other pairs is replaced.
    """
    queries, items, bands = fused_pairs(rankings, judged.query_ids, BANDS[-1])
    listed = PartialLabels.of(
        judged.query_ids,
        judged.gallery,
        (queries, items),
        np.zeros(len(items)),
        np.zeros(len(items), np.bool_),
    )
    rows = places(judged.query_ids, audit.queries)
    open_ = np.flatnonzero((rows >= 0) & (judged.find(np.maximum(rows, 0), audit.items) < 0))
    at = listed.find(rows[open_], audit.items[open_])
    rates = band_rates(np.append(bands, len(BANDS))[at], audit.matches[open_], audit.inclusion[open_])
    weights = band_weights(np.append(bands, len(BANDS))[at], audit.inclusion[open_])
    new = judged.find(listed.rows, items) < 0
    found = PartialLabels.of(
        judged.query_ids,
        judged.gallery,
        (
            np.concatenate([judged.query_ids[judged.rows], queries[new]]),
            np.concatenate([judged.items, items[new]]),
        ),
        np.concatenate([judged.chances, rates[bands[new]]]),
        np.concatenate([judged.judged, np.zeros(int(new.sum()), np.bool_)]),
        remainder=float(rates[-1]),
    )
    at = listed.find(found.rows, found.items)
    of_each = np.append(weights[bands], 1.0)[at]
    return replace(found, weights=np.where(found.judged, 1.0, of_each), remainder_weight=float(weights[-1]))


def fused_pairs(rankings: Sequence[Rankings], query_ids: Ids, depth: int) -> tuple[Ids, Ids, Ids]:
    """(P,) query ids, items and bands of the pairs that the models together place first, by reciprocal rank fusion.

    They are in order of query, then item.

    Args:
        depth: how far each ranking is read.
    """
    parts = []
    for ranking in rankings:
        items = np.asarray(ranking.block(ranking.rows_of(query_ids), 0, depth), np.int64)
        rows, at = np.nonzero(items != NOTHING)
        parts.append((rows, items[rows, at], 1 / (_DAMPING + 1 + at)))
    rows, items, gains = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.lexsort((items, rows))
    rows, items, gains = rows[order], items[order], gains[order]
    firsts = np.flatnonzero(np.append(True, (rows[1:] != rows[:-1]) | (items[1:] != items[:-1])))
    rows, items, fused = rows[firsts], items[firsts], np.add.reduceat(gains, firsts)
    order = np.lexsort((items, -fused, rows))
    starts = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
    place = np.empty(len(rows), np.int64)
    place[order] = np.arange(len(rows)) - np.repeat(starts, np.diff(np.append(starts, len(rows)))) + 1
    kept = place <= BANDS[-1]
    return query_ids[rows[kept]], items[kept], np.searchsorted(BANDS, place[kept]).astype(np.int64)


def band_rates(bands: NDArray[np.integer], matches: Flags, inclusion: Floats) -> Floats:
    """(B + 1,) the chance in each band and, last, in the remainder, of audited pairs that nobody had judged.

    Args:
        bands: (n,) of the audited pairs; the number of bands for the remainder.
    """
    weights = 1 / inclusion
    total = np.bincount(bands, weights, len(BANDS) + 1).astype(np.float64)
    found = np.bincount(bands, weights * matches, len(BANDS) + 1)
    mean = found.sum() / total.sum() if len(bands) else 0.0
    one = weights.mean() if len(bands) else 1.0
    return _falling((found + _PRIOR * one * mean) / (total + _PRIOR * one), total + _PRIOR * one)


def band_weights(bands: NDArray[np.integer], inclusion: Floats) -> Floats:
    """(B + 1,) the mean of 1 / inclusion over the pairs of each band, from the audited ones, each standing for so many.

    Where a band holds none, it is the largest of all.
    """
    weights = 1 / inclusion
    total = np.bincount(bands, weights, len(BANDS) + 1)
    squares = np.bincount(bands, weights**2, len(BANDS) + 1)
    most = float(weights.max(initial=1.0))
    return np.asarray(np.divide(squares, total, out=np.full(len(total), most), where=total > 0))


def _falling(values: Floats, weights: Floats) -> Floats:
    """The nearest values that never rise, by pooling neighbours that do.

    Source: Ayer et al., Annals of Mathematical Statistics 1955.
    """
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] < blocks[-1][0]:
            (v, w, n), (u, x, m) = blocks.pop(), blocks.pop()
            blocks.append(((u * x + v * w) / (x + w), x + w, m + n))
    return np.repeat([value for value, _, _ in blocks], [n for _, _, n in blocks])
