"""How far scores move when only some annotators' proposals make the positives: ECCV Caption, appendix E."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.analysis.diversity import tau_b_table
from mitl.analysis.records import SizeBias
from mitl.core.statistics import ranked_alike
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
    or by K where R is larger. A query without positives scores 0: its first item is not a match, and every subset is
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
    return GradedScores(ranked_alike(recall), ranked_alike(precision), int((counts > depth).any(0).sum()))


def _counts(pairs: GradedPairs, subset: int, queries: int) -> Ids:
    """R of each query under one subset: (Q,)."""
    used = (pairs.proposers & subset) != 0
    return np.bincount(pairs.queries[used], minlength=queries).astype(np.int64)


def _looked_up(ranking: NDArray[np.integer[Any]], pairs: GradedPairs) -> tuple[Scores, Ids]:
    """Grade and proposers of each ranked item, (Q, K) each; 0 for an item that is not a positive."""
    if not len(pairs):
        return np.zeros(ranking.shape), np.zeros(ranking.shape, np.int64)
    span = int(max(pairs.items.max(), ranking.max())) + 1
    keys = pairs.queries * span + pairs.items
    order = np.argsort(keys)
    ranked = np.arange(len(ranking), dtype=np.int64)[:, None] * span + ranking
    places = np.minimum(np.searchsorted(keys[order], ranked), len(keys) - 1)
    at = order[places]
    hit = keys[at] == ranked
    return np.where(hit, pairs.grades[at], 0.0), np.where(hit, pairs.proposers[at], 0)


MOST = 12
"""Annotators of which every subset can still be gone through: 4,095."""


def all_subsets(count: int) -> Ids:
    """Every subset of ``count`` annotators but the empty one, as bits; by size, then in the annotators' order.

    Raises:
        MetricError: there are more annotators than can be gone through.
    """
    if count > MOST:
        raise MetricError(
            f"{count} annotators have {2**count - 1:,} subsets, which are too many to go through; name at most "
            f"{MOST} of them with --annotator"
        )
    bits = [1 << place for place in range(count)]
    return np.array(
        [sum(some) for size in range(1, count + 1) for some in combinations(bits, size)], np.int64
    )


def used_by(subsets: Ids, count: int) -> NDArray[np.bool_]:
    """(S, A) whether each subset uses each annotator."""
    uses: NDArray[np.bool_] = (subsets[:, None] >> np.arange(count)) & 1 == 1
    return uses


def bias_by_size(
    scores: Scores, used: NDArray[np.bool_], reference: Scores, *, sizes: Sequence[int] | None = None
) -> tuple[SizeBias, ...]:
    """The bias against the reference scores averaged over all subsets of each size, as in Fig. E.2.

    Args:
        scores: (S, A) under each subset's positives.
        used: (S, A) the annotators of each subset; at least one.
        reference: (A,) under all annotators' positives, or under the truth.
        sizes: only these; all that occur where None.

    Raises:
        MetricError: shapes disagree, or a subset uses no annotator.
    """
    if scores.shape != used.shape or scores.shape[1:] != reference.shape:
        raise MetricError(
            f"scores are {scores.shape}, subsets {used.shape} and the reference {reference.shape}; they should be "
            "(S, A), (S, A) and (A,)"
        )
    if not used.any(1).all():
        raise MetricError("a subset without annotators has no positives and so no bias; leave it out")
    distance, count = np.abs(scores - reference), used.sum(1)
    others = np.where(count < used.shape[1], used.shape[1] - count, np.nan)
    of_subset = {
        "total": distance.mean(1),  # equation E.5
        "own": (distance * used).sum(1) / count,
        "other": (distance * ~used).sum(1) / others,
        "shift": (scores - reference).mean(1),
        "tau": [tau_b_table(np.stack([row, reference]))[0, 1] for row in scores],
    }
    by_size = pd.DataFrame(of_subset).groupby(count)
    means = by_size.mean().astype(object).where(lambda mean: mean.notna(), None)
    return tuple(
        SizeBias(size, int(by_size.size()[size]), **means.loc[size])
        for size in (means.index.tolist() if sizes is None else sizes)
    )
