"""Tables of counted preferences in CSV files, as papers print them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from mitl.analysis.preferences import Floats
from mitl.errors import MetricError

_NAMED = 3


def read_counts(path: Path) -> tuple[list[str], Floats]:
    """The names and the (N, N) counts of a file whose first row and column name the same things in the same order.

    Row i, column j holds how often i was preferred to j; empty cells count 0.

    Raises:
        MetricError: the file is missing, or is no such table.
    """
    wanted = "a CSV table of counts has a first row of names and the same names down its first column"
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)
        raise MetricError(f"cannot read {str(path)!r}: {reason}; {wanted}") from error
    names = [cell.strip() for cell in rows[0][1:]] if rows else []
    down = [row[0].strip() for row in rows[1:]]
    if len(names) < 2 or down != names or len(set(names)) != len(names):
        told = f"{', '.join(names[:_NAMED]) or 'nothing'} across and {', '.join(down[:_NAMED]) or 'nothing'} down"
        raise MetricError(f"{str(path)!r} names {told}; {wanted}")
    wins = np.zeros((len(names), len(names)))
    for i, row in enumerate(rows[1:]):
        if len(row) != len(names) + 1:
            raise MetricError(
                f"row {names[i]!r} of {str(path)!r} has {len(row) - 1} counts, not {len(names)}"
            )
        for j, cell in enumerate(row[1:]):
            text = cell.strip() or "0"
            if not text.isascii() or not text.isdigit():
                raise MetricError(
                    f"{names[i]!r} over {names[j]!r} in {str(path)!r} is {cell!r}, but counts are 0, 1, 2 …"
                )
            wins[i, j] = int(text)
    return names, wins
