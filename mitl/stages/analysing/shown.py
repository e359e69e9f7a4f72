"""Cells as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from mitl.analysis.machines.records import Cell, Matrix
from mitl.records import Table


def percent(value: Cell, digits: int = 1) -> str | None:
    """A share from 0 to 1 as a percentage without its sign; None stays None."""
    return None if value is None else f"{100 * value:.{digits}f}"


def number(value: Cell, digits: int = 3) -> str | None:
    """A number with so many digits after the point."""
    return None if value is None else f"{value:.{digits}f}"


def square(
    title: str, names: Sequence[str], matrix: Matrix, digits: int = 3, *, corner: str = "", blank: bool = True
) -> Table:
    """A table of every name against every name; its diagonal is left blank, for it says nothing."""
    return Table(
        title,
        (corner, *names),
        tuple(
            (
                name,
                *(None if blank and i == j else number(cell, digits) for j, cell in enumerate(matrix[i])),
            )
            for i, name in enumerate(names)
        ),
    )
