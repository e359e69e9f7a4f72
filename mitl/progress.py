"""Progress of long work: a bar with a rate and an ETA on a terminal, silence elsewhere.

A function that works long takes ``progress: Progress = no_progress`` and uses it so::

    with progress("rank pvse i2t", total=1261) as advance:
        for block in blocks:
            ...
            advance(len(block))
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

Advance = Callable[[int], None]
_WIDE = 72
"""Columns of a terminal that has room for a bar."""


class Progress(Protocol):
    """Opens a bar; the value of the context is called with the number of units just finished."""

    def __call__(self, label: str, total: int) -> AbstractContextManager[Advance]:
        """Open a bar called ``label`` that ends at ``total`` units."""
        ...


@contextmanager
def no_progress(label: str, total: int) -> Iterator[Advance]:
    """Say nothing."""
    yield lambda units: None


@contextmanager
def terminal_progress(label: str, total: int) -> Iterator[Advance]:
    """Draw a bar on standard error if that is a terminal and there is something to do; say nothing otherwise.

    A narrow terminal has no room for a bar beside its figures: there the figures stand alone, and a long label is cut.
    """
    if not sys.stderr.isatty() or total <= 0:
        yield lambda units: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        ProgressColumn,
        Task,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars
    from rich.table import Column
    from rich.text import Text

    class TaskLabel(ProgressColumn):
        def render(self, task: Task) -> Text:  # no markup: an annotator may be called anything
            return Text(task.description, no_wrap=True, overflow="ellipsis")

    class Pace(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            if speed and speed < 1:
                return Text(f"{60 * speed:,.0f}/min")
            return Text(f"{speed:,.0f}/s" if speed else "")

    console = Console(stderr=True)
    wide = console.width >= _WIDE
    whole = Column(no_wrap=True)
    columns = (
        TaskLabel(table_column=Column(no_wrap=wide)),  # rich takes room from the columns that may wrap
        *([BarColumn()] if wide else []),
        MofNCompleteColumn(table_column=whole),
        Pace(table_column=whole),
        *([TimeElapsedColumn(table_column=whole)] if wide else []),
        TimeRemainingColumn(table_column=whole),
    )
    with Bars(*columns, console=console) as bars:
        task = bars.add_task(label, total=total)
        yield lambda units: bars.update(task, advance=units)
