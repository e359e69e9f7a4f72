"""How well items match, in grades, and rankings compared with them: nDCG@K and Kendall's tau-b."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mitl.analysis.diversity import tau_b_rows
from mitl.core.arrays import Floats
from mitl.errors import MetricError
from mitl.metrics.positives import Ids, ItemsOfQueries, Positives, QueryValues, Short, integer_ids
from mitl.metrics.ranks import NOTHING, ArrayRankings, Rankings, ranks_in, runs
from mitl.records import Label

Gain = Callable[[Floats], Floats]
"""From grades to what an item of that grade earns, at least 0."""
Ungraded = Literal["zero", "leave_out"]
"""Ranked items that nobody graded: they earn nothing, or are passed over as if they were not in the ranking."""

FOUR_GRADES: Mapping[str, float] = {Label.YES: 3.0, Label.WEAK_YES: 2.0, Label.WEAK_NO: 1.0, Label.NO: 0.0}
"""The four answers as evenly spaced grades."""
CXC_RANGE = (0.0, 5.0)
"""CxC's scores of similarity lie here; they serve as grades as they are."""


@dataclass(frozen=True, slots=True, eq=False)
class GradedLabels(ItemsOfQueries):
    """The graded items of each query, with ``grades`` (P,) beside ``item_ids``."""

    grades: Floats

    @classmethod
    def from_pairs(
        cls,
        query_ids: NDArray[Any],
        item_ids: NDArray[Any],
        grades: NDArray[Any],
        *,
        within: tuple[float, float] | None = None,
    ) -> GradedLabels:
        """Grades from one (query, item, grade) per place.

        Args:
            within: the lowest and the highest grade that there may be.

        Raises:
            MetricError: the arrays differ in length or are empty, a pair is graded twice, a grade is not a number
                or lies outside ``within``.
        """
        of, item = integer_ids(query_ids, "query"), integer_ids(item_ids, "item")
        grade = np.asarray(grades, dtype=np.float64)
        if not len(of) == len(item) == len(grade):
            raise MetricError(
                f"{len(of)} query ids, {len(item)} item ids and {len(grade)} grades; each pair needs all three"
            )
        if not len(of):
            raise MetricError("no pair is graded")
        _refuse_strange(of, item, grade, within)
        order = np.lexsort((item, of))
        of, item, grade = of[order], item[order], grade[order]
        twice = np.flatnonzero((of[1:] == of[:-1]) & (item[1:] == item[:-1]))
        if len(twice):
            raise MetricError(f"query {of[twice[0]]} × item {item[twice[0]]} is graded twice; keep one grade")
        queries, starts = np.unique(of, return_index=True)
        return cls(queries, np.append(starts, len(of)).astype(np.int64), item, grade)


def grades_of(labels: Sequence[str], grades: Mapping[str, float] = FOUR_GRADES) -> Floats:
    """(P,) the grade of each label.

    Raises:
        MetricError: a label has no grade.
    """
    strange = next((label for label in labels if label not in grades), None)
    if strange is not None:
        raise MetricError(f"label {str(strange)!r} has no grade; known: {', '.join(map(str, grades))}")
    return np.array([grades[label] for label in labels], dtype=np.float64)


def _refuse_strange(of: Ids, item: Ids, grade: Floats, within: tuple[float, float] | None) -> None:
    low, high = within or (-np.inf, np.inf)
    strange = np.flatnonzero(~np.isfinite(grade) | (grade < low) | (grade > high))
    if len(strange):
        place = strange[0]
        bounds = f"go from {low:g} to {high:g}" if within else "are numbers"
        raise MetricError(
            f"query {of[place]} × item {item[place]} has the grade {grade[place]:g}, but grades {bounds}"
        )


def tau_b_groups(one: Floats, other: Floats, offsets: Ids) -> Floats:
    """(Q,) tau-b of the values from ``offsets[i]`` to ``offsets[i + 1]``; NaN where a side tells no two apart.

    Args:
        one, other: (P,) without NaN.
        offsets: (Q + 1,) rising.
    """
    lengths = np.diff(offsets)
    taus = np.full(len(lengths), np.nan)
    for length in np.unique(lengths[lengths > 1]):
        groups = np.flatnonzero(lengths == length)
        places = offsets[groups][:, None] + np.arange(length)  # (B, n)
        taus[groups] = tau_b_rows(one[places], other[places])
    return taus


def linear(grades: Floats) -> Floats:
    """The grade itself.

    Source: Järvelin and Kekäläinen, Cumulated Gain-based Evaluation of IR Techniques, TOIS 2002.
    """
    return grades


def exponential(grades: Floats) -> Floats:
    """2 to the grade, less 1.

    Source: Burges et al., Learning to Rank using Gradient Descent, ICML 2005.
    """
    return np.asarray(np.exp2(grades) - 1, dtype=np.float64)


def ndcg(
    query_ids: NDArray[Any],
    items: NDArray[Any],
    labels: GradedLabels,
    *,
    k: int = 10,
    gain: Gain = exponential,
    ungraded: Ungraded = "zero",
    short: Short = "raise",
) -> QueryValues:
    """nDCG@K: gains discounted by 1 / log2(1 + rank) over the first K places, over the best that the grades allow.

    Queries whose items all earn nothing are left out: every order of them is as good. With ``ungraded`` as
    "leave_out" ranks are counted among graded items alone, so that a model is not blamed for what nobody judged; the
    metric is then called nDCG'@K.

    Args:
        query_ids: (N,) the query of each row of ``items``; may hold more queries than ``labels``.
        items: (N, depth) item ids, best first; ``NOTHING`` behind the end of a shorter ranking.

    Raises:
        MetricError: ``k`` is below 1, a gain is below 0, a query has no ranking, a ranking names a graded item twice,
            or is too short for K places or for K graded items (unless what is missing earns nothing).
    Source: Järvelin and Kekäläinen, TOIS 2002; the discount as Burges et al., ICML 2005; the shortened list as
        Sakai, Alternatives to Bpref, SIGIR 2007.
    """
    if k < 1:
        raise MetricError(f"K is {k}, but ranks start at 1")
    rankings = ArrayRankings(query_ids, items)
    gains = _gains(labels, gain)
    best = _sums(labels, gains, _order_in_query(labels, -gains), k)
    ranks = _ranks(rankings, labels, items.shape[1])
    if short == "raise":
        ends = (np.asarray(items)[rankings.rows_of(labels.query_ids)] != NOTHING).sum(axis=1)
        _refuse_short(labels, ranks, ends, k, ungraded)
    if ungraded == "leave_out":
        absent = ranks == 0
        ranks = _order_in_query(labels, np.where(absent, np.inf, ranks))
        ranks[absent] = 0
    scored = best > 0
    if not scored.any():
        raise MetricError("every graded item earns nothing, so nDCG is undefined for every query")
    values = _sums(labels, gains, ranks, k)[scored] / best[scored]
    name = f"nDCG@{k}" if ungraded == "zero" else f"nDCG'@{k}"
    return QueryValues(name, labels.query_ids[scored], values, left_out=int((~scored).sum()))


def kendall(labels: GradedLabels, similarities: NDArray[Any]) -> QueryValues:
    """Kendall's tau-b between a model's similarities and the grades of each query's graded items, -1 to 1.

    Queries with fewer than two graded items, with one grade only, or whose items the model does not tell apart
    are left out and counted.

    Args:
        similarities: (P,) the model's, beside ``labels.item_ids``.

    Raises:
        MetricError: similarities are not one per grade, or one is not a number; or tau is undefined for all queries.
    """
    similarities = np.asarray(similarities, dtype=np.float64)
    if similarities.shape != labels.grades.shape:
        raise MetricError(
            f"{similarities.shape} similarities, but {len(labels.grades)} grades; give one for each"
        )
    strange = np.flatnonzero(np.isnan(similarities))
    if len(strange):
        row = labels.query_ids[labels.rows[strange[0]]]
        raise MetricError(f"the similarity of query {row} × item {labels.item_ids[strange[0]]} is nan")
    return _defined(labels.query_ids, tau_b_groups(similarities, labels.grades, labels.offsets))


def kendall_dense(query_ids: Ids, similarities: NDArray[Any], grades: NDArray[Any]) -> QueryValues:
    """As ``kendall`` where every item of the gallery is graded, as by pseudo-labels: (Q, G) each.

    Raises:
        MetricError: the shapes differ, a value is not a number, or tau is undefined for all queries.
    Source: Li et al., Image-Text Retrieval with Binary and Continuous Label Supervision, eq. 2 and Table VI.
    """
    one, other = np.asarray(similarities, dtype=np.float64), np.asarray(grades, dtype=np.float64)
    if one.ndim != 2 or one.shape != other.shape or len(one) != len(query_ids):
        raise MetricError(f"similarities are {one.shape}, grades {other.shape}, for {len(query_ids)} queries")
    for what, values in (("similarity", one), ("grade", other)):
        strange = np.isnan(values).any(axis=1)
        if strange.any():
            raise MetricError(f"a {what} of query {query_ids[strange.argmax()]} is nan")
    return _defined(query_ids, tau_b_rows(one, other))


def _defined(query_ids: Ids, taus: Floats) -> QueryValues:
    defined = ~np.isnan(taus)
    if not defined.any():
        raise MetricError("Kendall's tau is undefined for every query: nothing is told apart by both sides")
    return QueryValues("Kendall tau-b", query_ids[defined], taus[defined], left_out=int((~defined).sum()))


def _gains(labels: GradedLabels, gain: Gain) -> Floats:
    gains = np.asarray(gain(labels.grades), dtype=np.float64)
    strange = np.flatnonzero(~np.isfinite(gains) | (gains < 0))
    if len(strange):
        place = strange[0]
        raise MetricError(
            f"the grade {labels.grades[place]:g} earns {gains[place]:g}, but gains are at least 0"
        )
    return gains


def _order_in_query(labels: GradedLabels, keys: Floats) -> Ids:
    """(P,) the rank, from 1, of each graded item among its query's by rising key."""
    rows = labels.rows
    order = np.lexsort((keys, rows))
    ranks = np.empty(len(keys), dtype=np.int64)
    ranks[order] = np.arange(len(keys)) - labels.offsets[rows[order]] + 1
    return ranks


def _sums(labels: GradedLabels, gains: Floats, ranks: Ids, k: int) -> Floats:
    """(Q,) the discounted gains of the items at ranks 1 to ``k``."""
    earning = (ranks > 0) & (ranks <= k)
    earned = gains[earning] / np.log2(1 + ranks[earning])
    return np.asarray(np.bincount(labels.rows[earning], earned, len(labels)), dtype=np.float64)


def _ranks(rankings: Rankings, labels: GradedLabels, depth: int) -> Ids:
    """(P,) the rank of each graded item in its query's ranking, 0 where the ranking lacks it."""
    rows = rankings.rows_of(labels.query_ids)
    graded = Positives(labels.query_ids, labels.offsets, labels.item_ids)
    ranks = [
        ranks_in(rankings.block(rows[part], 0, depth), graded.take(part))
        for part in np.split(np.arange(len(rows)), [part.stop for part in runs(labels.counts, depth)][:-1])
    ]
    return np.concatenate(ranks)


def _refuse_short(labels: GradedLabels, ranks: Ids, ends: Ids, k: int, ungraded: Ungraded) -> None:
    if ungraded == "zero":
        row = int(ends.argmin())
        if ends[row] < k:
            raise MetricError(
                f"nDCG@{k} needs {k} ranked items, but the ranking of query {labels.query_ids[row]} ends at "
                f"{ends[row]}; rank deeper, or count the missing places as earning nothing (short='zero')"
            )
        return
    found = np.bincount(labels.rows[ranks > 0], minlength=len(labels))
    missing = np.flatnonzero(found < np.minimum(labels.counts, k))
    if len(missing):
        row = missing[0]
        raise MetricError(
            f"nDCG@{k} of query {labels.query_ids[row]} needs {min(labels.counts[row], k)} graded items in its "
            f"ranking, which holds {found[row]} of {labels.counts[row]}; rank deeper, or count the missing ones as "
            "earning nothing (short='zero')"
        )
