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
    """Draw a bar on standard error if that is a terminal; say nothing otherwise."""
    if not sys.stderr.isatty():
        yield lambda units: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars
    from rich.text import Text

    class Pace(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text(f"{speed:,.0f}/s" if speed else "")

    columns = (
        TextColumn("{task.description}", markup=False),  # an annotator may be called anything
        BarColumn(),
        MofNCompleteColumn(),
        Pace(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(label, total=total)
        yield lambda units: bars.update(task, advance=units)
