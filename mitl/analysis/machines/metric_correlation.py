"""How alike metrics rank models: Kendall's tau-b between the columns of a table of scores (Table 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mitl.analysis.machines.kendall import tau_b_table
from mitl.analysis.machines.records import Correlations, Matrix
from mitl.errors import MetricError

Scores = NDArray[np.float64]

RSUM = "RSUM"
_RECALLS = ("R@1", "R@5", "R@10")


@dataclass(frozen=True, slots=True, eq=False)
class ScoreTable:
    """Scores of models: ``values`` (D, N, M) of D directions, N models and M metrics; NaN where there is none."""

    models: tuple[str, ...]
    metrics: tuple[str, ...]
    directions: tuple[str, ...]
    values: Scores

    @property
    def means(self) -> Scores:
        """(N, M) means over the directions; NaN where a direction is missing."""
        found: Scores = self.values.mean(0)
        return found


def correlate(table: ScoreTable) -> Correlations:
    """Kendall's tau-b between every two metrics, over the models that both score.

    Raises:
        MetricError: fewer than two models.
    """
    if len(table.models) < 2:
        raise MetricError(
            f"{len(table.models)} model is no ranking of models; give the scores of two or more"
        )
    return Correlations(table.metrics, as_matrix(tau_b_table(table.means.T)), table.models)


def with_rsum(table: ScoreTable) -> ScoreTable:
    """The table with RSUM beside each set of recalls that has all of R@1, R@5 and R@10 in both directions.

    A set is what the names of three metrics have in common: "COCO 5K R@1", "COCO 5K R@5" and "COCO 5K R@10" give
    "COCO 5K RSUM", the sum of the six recalls of a model. With fewer directions than two there is none.
    """
    sets = recall_sets(table.metrics)
    if len(table.directions) != 2 or not sets:
        return table
    sums = [table.values[:, :, columns].sum((0, 2)) for columns in sets.values()]  # (N,) each
    # The sum stands in both directions, so that their mean is it.
    added = np.repeat(np.stack(sums, 1)[None], len(table.directions), 0)
    names = tuple(f"{name} {RSUM}".strip() for name in sets)
    values = np.concatenate([table.values, added], 2)
    return ScoreTable(table.models, (*table.metrics, *names), table.directions, values)


def recall_sets(metrics: Sequence[str]) -> dict[str, list[int]]:
    """Name of each set that has all three recalls → their columns."""
    places = {name: column for column, name in enumerate(metrics)}
    found = {}
    for name in metrics:
        prefix = name.removesuffix(_RECALLS[0])
        wanted = [prefix + recall for recall in _RECALLS]
        if prefix != name and (not prefix or prefix.endswith(" ")) and all(one in places for one in wanted):
            found[prefix.strip()] = [places[one] for one in wanted]
    return found


def as_matrix(values: Scores) -> Matrix:
    """A 2-d array as rows of numbers, with None for NaN."""
    return tuple(tuple(None if np.isnan(cell) else float(cell) for cell in row) for row in values)
