"""How alike metrics rank models: Kendall's tau-b between the columns of a table of scores, also of a CSV (Table 5)."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mitl.analysis.diversity import tau_b_table
from mitl.analysis.records import Correlations, Matrix
from mitl.core.statistics import ranked_alike
from mitl.datasets.files import refuse_separators
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
        return ranked_alike(self.values.mean(0))


def correlate(table: ScoreTable) -> Correlations:
    """Kendall's tau-b between every two metrics, over the models that both score.

    Raises:
        MetricError: fewer than two models.
    """
    if len(table.models) < 2:
        raise MetricError(
            f"{'1 model is' if table.models else '0 models are'} not a ranking of models; give the scores of two or "
            "more"
        )
    return Correlations(table.metrics, as_matrix(tau_b_table(table.means.T)), table.models)


def with_rsum(table: ScoreTable) -> ScoreTable:
    """The table with RSUM beside each set of recalls that has all of R@1, R@5 and R@10 in both directions.

    A set is what the names of three metrics have in common: "COCO 5K R@1", "COCO 5K R@5" and "COCO 5K R@10" give
    "COCO 5K RSUM", the sum of the six recalls of a model. With fewer directions than two there is none, and one that
    the table brings along stays as it is.
    """
    sets = _recall_sets(table.metrics)
    if len(table.directions) != 2 or not sets:
        return table
    sums = [table.values[:, :, columns].sum((0, 2)) for columns in sets.values()]  # (N,) each
    # The sum stands in both directions, so that their mean is it.
    added = np.repeat(np.stack(sums, 1)[None], len(table.directions), 0)
    values = np.concatenate([table.values, added], 2)
    return ScoreTable(table.models, (*table.metrics, *sets), table.directions, values)


def _recall_sets(metrics: Sequence[str]) -> dict[str, list[int]]:
    """Name of each sum → the columns of its three recalls."""
    places = {name: column for column, name in enumerate(metrics)}
    sets = {}
    for name in metrics:
        prefix = name.removesuffix(_RECALLS[0])
        recalls, summed = [prefix + recall for recall in _RECALLS], prefix + RSUM
        is_prefix = prefix != name and (not prefix or prefix.endswith(" "))
        if is_prefix and summed not in places and all(recall in places for recall in recalls):
            sets[summed] = [places[recall] for recall in recalls]
    return sets


def as_matrix(values: Scores) -> Matrix:
    """A 2-d array as rows of numbers, with None for NaN."""
    return tuple(tuple(None if np.isnan(cell) else float(cell) for cell in row) for row in values)


MODEL, DIRECTION = "model", "direction"


def read_scores(path: Path) -> ScoreTable:
    """The scores in a CSV file with a heading: ``model``, where wanted ``direction``, and a column for each metric.

    An empty cell is a score that is not known. Every model has a row in each direction that occurs.

    Raises:
        MetricError: the file is missing, no such table, or names a model twice in one direction.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as source:
            lines = enumerate(csv.reader(source), 1)
            rows = [(number, row) for number, row in lines if any(cell.strip() for cell in row)]
    except FileNotFoundError:
        raise MetricError(
            f"there is no file {str(path)!r}; --scores takes a CSV with the columns model, metric, metric, …"
        ) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise MetricError(f"{str(path)!r} is not a CSV in UTF-8: {error}") from error
    heading = [cell.strip() for cell in rows[0][1]] if rows else []
    refuse_separators(path, heading)
    _check_heading(heading, path)
    return _table(heading, rows[1:], path)


def _check_heading(heading: Sequence[str], path: Path) -> None:
    if MODEL not in heading:
        names = ", ".join(map(repr, heading)) or "nothing"
        raise MetricError(
            f"the heading of {str(path)!r} is {names}; it should name a column 'model' and metrics"
        )
    twice = next((name for place, name in enumerate(heading) if name in heading[:place]), None)
    if twice is not None:
        raise MetricError(f"the heading of {str(path)!r} has the column {twice!r} twice; name each once")
    if "" in heading:
        raise MetricError(f"column {heading.index('') + 1} of {str(path)!r} has no name; name each metric")
    if len(heading) == sum(name in (MODEL, DIRECTION) for name in heading):
        raise MetricError(f"{str(path)!r} holds no metric; give one column for each beside 'model'")


def _table(heading: Sequence[str], rows: Sequence[tuple[int, Sequence[str]]], path: Path) -> ScoreTable:
    metrics = tuple(name for name in heading if name not in (MODEL, DIRECTION))
    scores: dict[tuple[str, str], list[float]] = {}
    for number, row in rows:
        if len(row) != len(heading):
            raise MetricError(
                f"row {number} of {str(path)!r} has {len(row)} cells; its heading has {len(heading)}"
            )
        cells = dict(zip(heading, (cell.strip() for cell in row), strict=True))
        key = cells[MODEL], cells.get(DIRECTION, "")
        if key in scores:
            where = f" in direction {key[1]!r}" if key[1] else ""
            raise MetricError(
                f"row {number} of {str(path)!r} is a second row of model {key[0]!r}{where}; keep one"
            )
        scores[key] = [_number(cells[name], name, number, path) for name in metrics]
    models = tuple(dict.fromkeys(model for model, _ in scores))
    directions = tuple(dict.fromkeys(direction for _, direction in scores))
    for model in models:
        missing = next((direction for direction in directions if (model, direction) not in scores), None)
        if missing is not None:
            raise MetricError(
                f"{str(path)!r} has no row of model {model!r} in direction {missing!r}; add it, with empty cells "
                "where scores are not known"
            )
    values = np.array([[scores[model, direction] for model in models] for direction in directions])
    return ScoreTable(models, metrics, directions, values.reshape(len(directions), len(models), len(metrics)))


def _number(cell: str, metric: str, row: int, path: Path) -> float:
    if not cell:
        return math.nan
    try:
        score = float(cell)
    except ValueError:
        score = math.inf
    if not math.isfinite(score):
        raise MetricError(
            f"{metric!r} in row {row} of {str(path)!r} is {cell!r}; it should be a number, or empty where unknown"
        )
    return score
