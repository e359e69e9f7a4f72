"""Tables and texts as a terminal can show them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import zip_longest
from unicodedata import category, east_asian_width

from mitl.records import Table

# What could move the cursor, turn the writing direction or break a row on a terminal: captions and workers'
# texts come from strangers.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NUMBER = re.compile(r"–|[<>] [0-9.]+ %|-?\$?[0-9][0-9,]*(\.[0-9]+)?( %)?")


def render_table(table: Table, room: int | None = None) -> str:
    """A plain aligned table; numbers and money to the right, whole numbers with separators.

    Args:
        room: columns of the terminal, to which the longest texts are folded between words where that makes it fit;
            where nothing does, each row is a block of a line for each column.
    """
    columns = [printable(column) for column in table.columns]
    rows = [[_cell(value) for value in row] for row in table.rows]
    numeric = [
        bool(rows) and all(_NUMBER.fullmatch(row[place]) for row in rows) for place in range(len(columns))
    ]
    widths = [
        max(_wide(column), *(_wide(row[place]) for row in rows), 0) if rows else _wide(column)
        for place, column in enumerate(columns)
    ]

    head = [printable(table.title)] if table.title else []
    if room is not None:
        least = [_narrowest(column) for column in zip(columns, *rows, strict=True)]
        if rows and len(columns) > _SIDE_BY_SIDE and _total(least) > room:
            return "\n".join([*head, "\n\n".join(_block(columns, row, room) for row in rows)])
        widths = _fitting(widths, least, room)

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if right else cell + " " * (width - _wide(cell))
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        )
        return "  " + "  ".join(padded).rstrip()

    folded = ([_folded(cell, width) for cell, width in zip(row, widths, strict=True)] for row in rows)
    lines = (line(cells) for row in folded for cells in zip_longest(*row, fillvalue=""))
    return "\n".join([*head, line(columns), *lines])


def _wide(text: str) -> int:
    """Columns of a terminal that a text takes: two for a Chinese character or an emoji, none for a combining mark."""
    if text.isascii():
        return len(text)
    marks = sum(category(sign) in {"Mn", "Me", "Cf"} for sign in text)
    return len(text) - marks + sum(east_asian_width(sign) in {"W", "F"} for sign in text)


def terminal_room() -> int | None:
    """Columns of the terminal that reads standard output; None where none does."""
    with suppress(OSError, ValueError):
        if sys.stdout.isatty():
            return os.get_terminal_size(sys.stdout.fileno()).columns or None
    return None


_SIDE_BY_SIDE = 2
"""Columns that a terminal itself wraps well enough: a name and what it is."""
_READABLE = 16
"""Columns below which a text is not folded."""
_WORDS = 4
"""Fewer of them may be a name or an id, which is copied whole."""


def _narrowest(cells: Sequence[str]) -> int:
    """How narrow a column can be: its head and no word of it, such as an id or a path, is ever cut."""
    head, *texts = cells
    longest = max((_wide(text) for text in texts), default=0)
    words = [text.split() for text in texts]
    if max(map(len, words), default=0) < _WORDS:
        return max(_wide(head), longest)
    widest = max(_wide(word) for text in words for word in text)
    return max(_wide(head), min(longest, max(widest, _READABLE)))


def _fitting(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """The widths with the widest columns narrowed until all fit; as they are where nothing makes them fit."""
    if _total(widths) <= room or _total(least) > room:
        return list(widths)
    fitting = list(widths)
    while _total(fitting) > room:
        fitting[
            max(range(len(fitting)), key=lambda place: (fitting[place] > least[place], fitting[place]))
        ] -= 1
    return fitting


def _total(widths: Sequence[int]) -> int:
    """Columns of a terminal that a row takes, with its gaps."""
    return sum(widths) + 2 * len(widths)


def _block(columns: Sequence[str], row: Sequence[str], room: int) -> str:
    """A row that stands by itself, a line for each column; what goes on does so further to the right."""
    texts = (f"{name}: {cell}".rstrip() for name, cell in zip(columns, row, strict=True))
    return "\n".join("  " + "\n    ".join(_folded(text, max(room - 4, _READABLE))) for text in texts)


def _folded(cell: str, width: int) -> list[str]:
    """The lines of a cell."""
    if _wide(cell) <= width:
        return [cell]
    lines: list[str] = []
    for word in cell.split():
        if lines and _wide(lines[-1]) + 1 + _wide(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


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
