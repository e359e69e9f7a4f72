"""Looking again and again at where a project stands: `mitl status --watch`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from mitl.interrupts import interrupts_held
from mitl.records import Environment, StageResult
from mitl.settings import Settings
from mitl.stages.reporting.status import status

EVERY_S = 5.0
"""Seconds between two looks."""


def watch(
    settings: Settings,
    environment: Environment | None = None,
    *,
    every_s: float = EVERY_S,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[StageResult]:
    """Where the project stands now, then again at each change, until nobody asks any more.

    Args:
        every_s: seconds between two looks, above 0.
        pause: waits so many seconds.
    """
    before: StageResult | None = None
    while True:
        with interrupts_held():  # or a database that is being closed would complain of Ctrl-C at length
            now = status(settings, environment)
        if now != before:
            yield now
        before = now
        pause(every_s)


def line(result: StageResult) -> str:
    """The look in one line, for a log or a pipe; not every change shows in it."""
    counts = result.counts
    numbers = (
        ("pairs open", "pairs_open"),
        ("judged", "pairs_judged"),
        ("HITs out", "hits_out"),
        ("submissions", "submissions"),
        ("wait for a person", "queued"),
    )
    words = ", ".join(f"{int(str(counts[key])):,} {name}" for name, key in numbers)
    return f"{counts['environment']}: {words}"
