"""Whether a ranking puts a query's judged items in the order of their graded answers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.analysis.machines.kendall import tau_b_rows

Ids = NDArray[np.int64]

QUERIES_AT_A_TIME = 64


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
    for rows in np.split(order, range(QUERIES_AT_A_TIME, len(order), QUERIES_AT_A_TIME)):
        width = int(sizes[rows].max(initial=0))
        if width < 2:
            continue  # one item has no order
        filled = np.arange(width) < sizes[rows, None]  # (B, P)
        owned = by_query[np.where(filled, starts[rows, None] + np.arange(width), 0)]
        places = _places(ranking[rows], items[owned])
        # Both rise from good to bad: a small place and a small code.
        taus[rows] = tau_b_rows(places, codes[owned].astype(np.float64), filled)
    return taus


def _places(ranking: NDArray[np.integer[Any]], items: Ids) -> NDArray[np.float64]:
    """(B, P) where each item stands in its row's ranking (B, K), from 0; K for one that does not."""
    same = items[:, :, None] == ranking[:, None, :]  # (B, P, K)
    found: NDArray[np.float64] = np.where(same.any(2), same.argmax(2), float(ranking.shape[1]))
    return found
