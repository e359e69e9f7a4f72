"""How well some items match each query, in grades: one number for each judged (query, item)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.metrics.positives import Ids, integer_ids
from mitl.records import Label

Floats = NDArray[np.float64]

FOUR_GRADES: Mapping[str, float] = {Label.YES: 3.0, Label.WEAK_YES: 2.0, Label.WEAK_NO: 1.0, Label.NO: 0.0}
"""The four answers as evenly spaced grades."""
BIAS_GRADES: Mapping[str, float] = {Label.YES: 1.0, Label.WEAK_YES: 0.5, Label.WEAK_NO: 0.0, Label.NO: 0.0}
"""The four answers as ECCV Caption's graded matching weighs them (appendix E)."""
CXC_RANGE = (0.0, 5.0)
"""CxC's scores of similarity lie here; they serve as grades as they are."""


@dataclass(frozen=True, slots=True, eq=False)
class GradedLabels:
    """The grades of each query: query ``i`` owns ``item_ids[offsets[i]:offsets[i + 1]]`` and the grades beside them.

    ``query_ids`` (Q,) rise strictly, ``offsets`` is (Q + 1,), ``item_ids`` and ``grades`` are (P,); a query's items
    rise strictly.
    """

    query_ids: Ids
    offsets: Ids
    item_ids: Ids
    grades: Floats

    @property
    def counts(self) -> Ids:
        """How many items of each query are graded: (Q,)."""
        return np.diff(self.offsets)

    @property
    def rows(self) -> Ids:
        """The query's place for each grade: (P,)."""
        return np.repeat(np.arange(len(self.query_ids)), self.counts)

    def __len__(self) -> int:
        return len(self.query_ids)

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
            MetricError: the arrays differ in length or are empty, a pair is graded twice, a grade is no number
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
        known, starts = np.unique(of, return_index=True)
        return cls(known, np.append(starts, len(of)).astype(np.int64), item, grade)


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
