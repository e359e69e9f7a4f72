"""Recall@1 and R-Precision with graded matching, under the positives that some annotators proposed.

Letters: A scored annotators, Q queries, K ranked items, P graded pairs, S subsets. A subset is an integer whose bit
``i`` says that the proposals of annotator ``i`` are used. Source: ECCV Caption, appendix E, equations E.1 to E.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.records import Label

Ids = NDArray[np.int64]
Scores = NDArray[np.float64]

GRADES = {Label.YES: 1.0, Label.WEAK_YES: 0.5, Label.WEAK_NO: 0.0, Label.NO: 0.0}
"""What a retrieved item of this label counts (equation E.4)."""


@dataclass(frozen=True, slots=True, eq=False)
class GradedPairs:
    """The positive pairs of one direction, in any order, each once.

    ``queries`` (P,) are places among the queries, ``items`` (P,) ids that are not negative, ``grades`` (P,) above 0,
    and ``proposers`` (P,) the annotators that proposed the pair, as bits.
    """

    queries: Ids
    items: Ids
    grades: Scores
    proposers: Ids

    def __len__(self) -> int:
        return len(self.queries)


@dataclass(frozen=True, slots=True, eq=False)
class GradedScores:
    """Means over the queries: ``recall_at_1`` and ``r_precision``, (S, A) from 0 to 1."""

    recall_at_1: Scores
    r_precision: Scores
    capped: int
    """Queries that have more than K positives under some subset; there R is K."""


def graded_scores(rankings: NDArray[np.integer[Any]], pairs: GradedPairs, subsets: Ids) -> GradedScores:
    """Scores of every annotator under every subset's positives.

    An item counts its grade where one of the subset's annotators proposed it for that query, and nothing elsewhere;
    R-Precision adds up the first R items and divides by R, the number of the query's positives under the subset,
    or by K where R is larger. A query without positives scores 0: its first item is no match, and every subset is
    scored on the same queries.

    Args:
        rankings: (A, Q, K) item ids, best first.
        subsets: (S,) bits of annotators.

    Raises:
        MetricError: there is no query, or nothing is ranked.
    """
    annotators, queries, depth = rankings.shape
    if not queries or not depth:
        raise MetricError(f"rankings are {rankings.shape}; they should hold a query and a ranked item")
    counts = np.stack([_counts(pairs, int(subset), queries) for subset in subsets])  # (S, Q)
    within = np.minimum(counts, depth)
    recall = np.zeros((len(subsets), annotators))
    precision = np.zeros((len(subsets), annotators))
    rows = np.arange(queries)
    for place in range(annotators):
        grades, proposers = _looked_up(rankings[place], pairs)  # (Q, K) each
        for row, subset in enumerate(subsets):
            matches = np.where((proposers & subset) != 0, grades, 0.0)
            gained = np.cumsum(matches, axis=1)[rows, np.maximum(within[row], 1) - 1]
            recall[row, place] = matches[:, 0].mean()
            precision[row, place] = (gained / np.maximum(within[row], 1)).mean()
    return GradedScores(recall, precision, int((counts > depth).any(0).sum()))


def _counts(pairs: GradedPairs, subset: int, queries: int) -> Ids:
    """R of each query under one subset: (Q,)."""
    used = (pairs.proposers & subset) != 0
    return np.bincount(pairs.queries[used], minlength=queries).astype(np.int64)


def _looked_up(ranking: NDArray[np.integer[Any]], pairs: GradedPairs) -> tuple[Scores, Ids]:
    """Grade and proposers of each ranked item, (Q, K) each; 0 for an item that is no positive."""
    if not len(pairs):
        return np.zeros(ranking.shape), np.zeros(ranking.shape, np.int64)
    span = int(max(pairs.items.max(), ranking.max())) + 1
    keys = pairs.queries * span + pairs.items
    order = np.argsort(keys)
    wanted = np.arange(len(ranking), dtype=np.int64)[:, None] * span + ranking
    places = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    found = order[places]
    hit = keys[found] == wanted
    return np.where(hit, pairs.grades[found], 0.0), np.where(hit, pairs.proposers[found], 0)
