"""How differently annotators rank: Kendall's tau-b between their lists, and where one ranks another's first.

A list is a row of item ids, best first, each id at most once: (Q, k) for Q queries. Two lists seldom hold the same
items, and Kendall's tau is defined on common items, so something must be said of the rest; ``Items`` names the two
readings. Rankings are also compared with graded answers, and metrics by how they order models.

Sources: Kendall, The treatment of ties in ranking problems, Biometrika 33, 1945: concordant less discordant pairs over
the geometric mean of the pairs that each side tells apart. The tables of ECCV Caption, appendix A.2 (Table A.1), which
does not say which reading it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError

_CELLS = 1 << 22
"""Comparisons made at a time; bounds the memory to some 100 MB."""
_LONG = 256
"""Items from which on sorting is faster than comparing every two."""
_FEW = 40
"""Items from which on a table of each two is counted faster by itself than beside the others."""
QUERIES_AT_A_TIME = 512
"""Bounds the memory: (512, 50, 50) comparisons of bytes, some megabytes, for lists of 25."""
LABELLED_AT_A_TIME = 64

Values = NDArray[np.float64]
Ids = NDArray[np.int64]
Lists = NDArray[np.integer[Any]]


def tau_b_rows(one: NDArray[Any], other: NDArray[Any], compared: NDArray[np.bool_] | None = None) -> Values:
    """(Q,) tau-b of each row of (Q, n) with the other's; NaN where a side tells no two apart.

    Args:
        one, other: numbers of any kind; small ones are compared faster.
        compared: (Q, n) which values of a row count; all where None.
    """
    n = one.shape[1]
    taus = np.full(len(one), np.nan)
    if n > _LONG and compared is None:
        from scipy.stats import kendalltau

        return np.array([kendalltau(*rows).statistic for rows in zip(one, other, strict=True)], np.float64)
    size = max(1, _CELLS // max(1, n * n))
    for part in (slice(start, start + size) for start in range(0, len(one), size)):
        # Compared rather than subtracted: two similarities of -inf, which tell nothing, are equal. Of each two one way
        # is true at most: to pick one half of the table takes longer.
        (here, there), (mine, theirs) = ((side[part, :, None], side[part, None, :]) for side in (one, other))
        above, also_above, below = here > there, mine > theirs, mine < theirs
        if compared is not None:
            both = compared[part, :, None] & compared[part, None, :]
            above &= both
            also_above &= both
        agreed = _counts(above & also_above) - _counts(above & below)
        scale = np.sqrt(_counts(above) * _counts(also_above))
        np.divide(agreed, scale, out=taus[part], where=scale > 0)
    return taus


def _counts(flags: NDArray[np.bool_]) -> Values:
    """(Q,) how many of each table are true."""
    if flags.shape[1] < _FEW:
        return np.asarray(flags.reshape(len(flags), -1).sum(axis=1), np.float64)
    return np.array([np.count_nonzero(table) for table in flags], np.float64)


def tau_b_table(columns: Values) -> Values:
    """(M, M) tau-b between every two of M columns of N values; NaN where undefined.

    Two columns are compared over the rows that both have.

    Args:
        columns: (M, N), NaN where a row lacks a value.
    """
    count = columns.shape[1]
    upper = np.triu_indices(count, 1)
    defined = ~np.isnan(columns)
    filled = np.where(defined, columns, 0.0)
    both = (defined[:, upper[0]] & defined[:, upper[1]]).astype(np.float64)  # (M, pairs of rows)
    signs = np.sign(filled[:, upper[0]] - filled[:, upper[1]]) * both
    told_apart = np.abs(signs) @ both.T  # [a, b]: pairs that a tells apart, of those that b knows
    scale = np.sqrt(told_apart * told_apart.T)
    table: Values = np.full((len(columns), len(columns)), np.nan)
    np.divide(signs @ signs.T, scale, out=table, where=scale > 0)
    return table


class Items(StrEnum):
    """Over which items two lists are compared."""

    UNION = "union"
    """All items of either list; those that a list lacks are tied at the rank behind its last. Lists of length k
    without a common item are then nearly opposite, with -k / (k + (k - 1) / 2); identical ones have 1."""
    COMMON = "common"
    """The items of both lists: how alike is the order of what both found, however little that is."""


def kendall_tau_b(one: Lists, other: Lists, items: Items = Items.UNION) -> NDArray[np.float64]:
    """(Q,) tau-b between the two lists of each query, from -1 to 1; NaN where fewer than two items are compared.

    Args:
        one, other: (Q, k) and (Q, m) item ids, best first, no id twice in a row.

    Raises:
        MetricError: the lists are not of the same queries.
    Source: Kendall, The treatment of ties in ranking problems, Biometrika 33, 1945: concordant less discordant
    pairs over the geometric mean of the pairs that each list tells apart.
    """
    _require_lists(one, other)
    out = np.full(len(one), np.nan)
    for start in range(0, len(one), QUERIES_AT_A_TIME):
        part = slice(start, start + QUERIES_AT_A_TIME)
        out[part] = _tau_b(one[part], other[part], items)
    return out


def mutual_rank(one: Lists, rankings: Lists) -> NDArray[np.float64]:
    """(Q,) the rank, from 1, that each query's ranking gives to the first item of the other list.

    An item that a ranking of depth m does not hold counts as rank m + 1: whole rankings give exact ranks.

    Args:
        one: (Q, k) item ids, best first; only the first column counts.
        rankings: (Q, m) item ids, best first.

    Raises:
        MetricError: the lists are not of the same queries.
    """
    _require_lists(one, rankings)
    return np.asarray(_places(rankings, one[:, :1])[:, 0] + 1, np.float64)


def _require_lists(one: Lists, other: Lists) -> None:
    if one.ndim != 2 or other.ndim != 2 or len(one) != len(other):
        raise MetricError(f"lists are {one.shape} and {other.shape}; they should be (Q, k) and (Q, m)")


def tau_table(lists: Sequence[Lists], items: Items = Items.UNION) -> NDArray[np.float64]:
    """(A, A) mean tau-b over the queries for every two of A annotators; 1 on the diagonal.

    Queries whose tau is undefined are left out; NaN where it is undefined for all.
    """
    table = np.eye(len(lists))
    for i, ranking in enumerate(lists):
        for j in range(i):
            table[i, j] = table[j, i] = mean_known(kendall_tau_b(ranking, lists[j], items))
    return table


def mutual_rank_table(rankings: Sequence[Lists]) -> NDArray[np.float64]:
    """(A, A) mean rank of the row annotator's first item in the column annotator's ranking; 1 on the diagonal."""
    return np.array([[mean_known(mutual_rank(row, column)) for column in rankings] for row in rankings])


def _tau_b(one: Lists, other: Lists, items: Items) -> NDArray[np.float64]:
    same = one[:, :, None] == other[:, None, :]  # (Q, k, m)
    in_other, in_one = same.any(2), same.any(1)  # (Q, k), (Q, m)
    k, m = one.shape[1], other.shape[1]
    # The items of ``one``, then those of ``other`` that are not in ``one``; places from 0, behind the end if absent.
    place_in_one = np.concatenate([np.arange(k), np.full(m, k)])
    place_in_other = np.concatenate(
        [np.where(in_other, same.argmax(2), m), np.broadcast_to(np.arange(m), in_one.shape)], axis=1
    )
    if items is Items.UNION:
        compared = np.concatenate([np.ones_like(in_other), ~in_one], axis=1)
    else:
        compared = np.concatenate([in_other, np.zeros_like(in_one)], axis=1)
    shape = compared.shape
    return tau_b_rows(
        np.broadcast_to(place_in_one, shape).astype(np.int32), place_in_other.astype(np.int32), compared
    )


def mean_known(values: NDArray[np.float64]) -> float:
    """The mean of what is defined; NaN where nothing is."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else float("nan")


def label_taus(
    ranking: NDArray[np.integer[Any]], queries: Ids, items: Ids, codes: NDArray[np.integer[Any]]
) -> NDArray[np.float64]:
    """(Q,) Kendall's tau-b of each query: places of its judged items against their labels; NaN where undefined.

    Judged items that the ranking does not hold stand together behind its last. Labels have four levels, so most
    items are tied on that side, which tau-b allows for.

    Args:
        ranking: (Q, K) item ids, best first.
        queries, items: (P,) the judged pairs: place among the queries, item id.
        codes: (P,) label codes, 1 for yes to 4 for no.
    """
    taus = np.full(len(ranking), np.nan)
    by_query = np.argsort(queries, kind="stable")
    sizes = np.bincount(queries, minlength=len(ranking))
    starts = np.cumsum(sizes) - sizes
    # Queries of like sizes together, so that little of a block is filler.
    order = np.argsort(sizes, kind="stable")
    for rows in np.split(order, range(LABELLED_AT_A_TIME, len(order), LABELLED_AT_A_TIME)):
        width = int(sizes[rows].max(initial=0))
        if width < 2:
            continue  # one item has no order
        filled = np.arange(width) < sizes[rows, None]  # (B, P)
        owned = by_query[np.where(filled, starts[rows, None] + np.arange(width), 0)]
        places = _places(ranking[rows], items[owned])
        # Both rise from good to bad: a small place and a small code.
        taus[rows] = tau_b_rows(places, codes[owned].astype(np.int8), filled)
    return taus


def _places(ranking: Lists, items: Lists) -> NDArray[np.int32]:
    """(B, P) where each item stands in its row's ranking (B, K), from 0; K for one that does not."""
    same = items[:, :, None] == ranking[:, None, :]  # (B, P, K)
    places: NDArray[np.int32] = np.where(same.any(2), same.argmax(2), ranking.shape[1]).astype(np.int32)
    return places
