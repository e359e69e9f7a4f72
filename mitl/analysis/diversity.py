"""How differently annotators rank: Kendall's tau between their lists, and where one ranks another's first.

A list is a row of item ids, best first, each id at most once: (Q, k) for Q queries. Two lists seldom hold the same
items, and Kendall's tau is defined on common items, so something must be said of the rest; ``Items`` names the two
readings. Source: the tables of ECCV Caption, appendix A.2 (Table A.1), which does not say which reading it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError

QUERIES_AT_A_TIME = 512
"""Bounds the memory: (512, 50, 50) comparisons of bytes, some megabytes, for lists of 25."""

Lists = NDArray[np.integer[Any]]


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
    if one.ndim != 2 or other.ndim != 2 or len(one) != len(other):
        raise MetricError(f"lists are {one.shape} and {other.shape}; they should be (Q, k) and (Q, m)")
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
    if one.ndim != 2 or rankings.ndim != 2 or len(one) != len(rankings):
        raise MetricError(f"lists are {one.shape} and {rankings.shape}; they should be (Q, k) and (Q, m)")
    found = rankings == one[:, :1]  # (Q, m)
    ranks: NDArray[np.float64] = np.where(found.any(1), found.argmax(1) + 1.0, rankings.shape[1] + 1.0)
    return ranks


def tau_table(lists: Sequence[Lists], items: Items = Items.UNION) -> NDArray[np.float64]:
    """(A, A) mean tau-b over the queries for every two of A annotators; 1 on the diagonal.

    Queries whose tau is undefined are left out; NaN where it is undefined for all.
    """
    table = np.eye(len(lists))
    for i, one in enumerate(lists):
        for j in range(i):
            table[i, j] = table[j, i] = _mean(kendall_tau_b(one, lists[j], items))
    return table


def mutual_rank_table(rankings: Sequence[Lists]) -> NDArray[np.float64]:
    """(A, A) mean rank of the row annotator's first item in the column annotator's ranking; 1 on the diagonal."""
    return np.array([[_mean(mutual_rank(row, column)) for column in rankings] for row in rankings])


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
    pairs = compared[:, :, None] & compared[:, None, :]  # (Q, k + m, k + m)
    by_one = np.sign(place_in_one[:, None] - place_in_one[None, :]).astype(np.int8) * pairs
    by_other = np.sign(place_in_other[:, :, None] - place_in_other[:, None, :]).astype(np.int8) * pairs
    agreed = (by_one * by_other).sum((1, 2), dtype=np.int64)
    told_apart = [np.abs(by).sum((1, 2), dtype=np.int64) for by in (by_one, by_other)]
    scale = np.sqrt(told_apart[0].astype(np.float64) * told_apart[1])
    tau: NDArray[np.float64] = np.full(len(one), np.nan)
    np.divide(agreed, scale, out=tau, where=scale > 0)
    return tau


def _mean(values: NDArray[np.float64]) -> float:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else float("nan")
