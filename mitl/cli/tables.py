"""Tables and lines for a terminal, which no text from a stranger can steer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mitl.records import Table

# What could move the cursor, turn the writing direction or break a row on a terminal: captions and workers'
# texts come from strangers.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NUMBER = re.compile(r"–|-?\$?[0-9][0-9,]*(\.[0-9]+)?( %)?")


def render_table(table: Table) -> str:
    """A plain aligned table; numbers and money to the right, whole numbers with separators."""
    rows = [[_cell(value) for value in row] for row in table.rows]
    numeric = [
        bool(rows) and all(_NUMBER.fullmatch(row[place]) for row in rows)
        for place in range(len(table.columns))
    ]
    widths = [
        max(len(column), *(len(row[place]) for row in rows), 0) if rows else len(column)
        for place, column in enumerate(table.columns)
    ]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        )
        return "  " + "  ".join(padded).rstrip()

    head = [printable(table.title)] if table.title else []
    return "\n".join([*head, line(table.columns), *(line(row) for row in rows)])


def printable(text: str) -> str:
    """The text with its control characters written as escapes, so that it cannot steer a terminal."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.3f}"
    return printable(str(value))
