"""A table of scores from a CSV file: one row for each model, or for each model and direction."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mitl.analysis.machines.metric_correlation import ScoreTable
from mitl.errors import MetricError

MODEL, DIRECTION = "model", "direction"


def read_scores(path: Path) -> ScoreTable:
    """The scores in a CSV file with a heading: ``model``, where wanted ``direction``, and a column for each metric.

    An empty cell is a score that is not known. Every model has a row in each direction that occurs.

    Raises:
        MetricError: the file is missing, no such table, or names a model twice in one direction.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as source:
            rows = [row for row in csv.reader(source) if any(cell.strip() for cell in row)]
    except FileNotFoundError:
        raise MetricError(
            f"there is no file {str(path)!r}; --scores takes a CSV with the columns model, metric, metric, …"
        ) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise MetricError(f"{str(path)!r} is no CSV in UTF-8: {error}") from error
    heading = [cell.strip() for cell in rows[0]] if rows else []
    _check_heading(heading, path)
    return _table(heading, rows[1:], path)


def _check_heading(heading: Sequence[str], path: Path) -> None:
    if MODEL not in heading:
        found = ", ".join(map(repr, heading)) or "nothing"
        raise MetricError(
            f"the heading of {str(path)!r} is {found}; it should name a column 'model' and metrics"
        )
    twice = next((name for place, name in enumerate(heading) if name in heading[:place]), None)
    if twice is not None:
        raise MetricError(f"the heading of {str(path)!r} has the column {twice!r} twice; name each once")
    if "" in heading:
        raise MetricError(f"column {heading.index('') + 1} of {str(path)!r} has no name; name each metric")
    if len(heading) == sum(name in (MODEL, DIRECTION) for name in heading):
        raise MetricError(f"{str(path)!r} holds no metric; give one column for each beside 'model'")


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]], path: Path) -> ScoreTable:
    metrics = tuple(name for name in heading if name not in (MODEL, DIRECTION))
    scores: dict[tuple[str, str], list[float]] = {}
    for number, row in enumerate(rows, 2):
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
        missing = next((one for one in directions if (model, one) not in scores), None)
        if missing is not None:
            raise MetricError(
                f"{str(path)!r} has no row of model {model!r} in direction {missing!r}; add it, with empty cells "
                "where scores are not known"
            )
    values = np.array([[scores[model, one] for model in models] for one in directions])
    return ScoreTable(models, metrics, directions, values.reshape(len(directions), len(models), len(metrics)))


def _number(cell: str, metric: str, row: int, path: Path) -> float:
    if not cell:
        return math.nan
    try:
        found = float(cell)
    except ValueError:
        found = math.inf
    if not math.isfinite(found):
        raise MetricError(
            f"{metric!r} in row {row} of {str(path)!r} is {cell!r}; it should be a number, or empty where unknown"
        )
    return found
