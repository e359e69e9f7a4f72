"""Every point of a scenario: killed there, run again, and what is found then."""

from __future__ import annotations

import datetime as dt
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from kill_books import differences
from kill_child import KILLED
from kill_scenarios import Bases, Scenario
from kill_stand import Project, Stand

from mitl.cli.app import EXIT_INTERRUPTED

WHOLE = "whole"


@dataclass(frozen=True)
class Trial:
    """One disturbance and what came of it."""

    scenario: str
    disturbance: str
    """``before`` or ``after`` for a kill; else the fault."""
    step: str
    """Where, as ``CreateHIT 3``; empty where all of a run was disturbed."""
    result: str
    """``WHOLE``, or what is wrong."""
    went_on: bool = False
    """Whether the disturbed run itself came to its end."""

    def __str__(self) -> str:
        """For a test that fails."""
        return f"{self.scenario}, {self.disturbance} {self.step}: {self.result}"


def kill_at(
    stand: Stand,
    bases: Bases,
    scenario: Scenario,
    point: str,
    *,
    between: Callable[[Project], None] = lambda project: None,
    known: dict[str, str] | None = None,
) -> Trial:
    """Kill the commands at this point and run them again.

    Args:
        between: what happens until then.
        known: what was found before from the same rows in both databases; not looked for a second time.
    """
    when, _, step = point.partition(" ")
    with stand.project(bases.start(scenario)) as project:
        commands = scenario.commands(project.settings)
        killed = project.run(commands, kill_at=point)
        if killed.exit_status != KILLED:
            return Trial(scenario.name, when, step, f"the point was not reached: {killed.said}")
        left = repr(project.state())
        if known is None or left not in known:
            between(project)
            again = project.run(commands)
            wrong = differences(project.state(), bases.state(scenario))
            if again.failed:
                wrong.insert(0, f"the second run failed: {again.said}")
            found = "; ".join(wrong) or WHOLE
            if known is not None:
                known[left] = found
    return Trial(scenario.name, when, step, found if known is None else known[left])


def interrupt_at(stand: Stand, bases: Bases, scenario: Scenario, point: str) -> Trial:
    """Press Ctrl-C at this point: the command books what it has begun and says so; run it again.

    While it counts where the project stands it has done all, so it ends as if nobody had pressed.
    """
    with stand.project(bases.start(scenario)) as project:
        commands = scenario.commands(project.settings)
        before = _under_way(project)
        stopped = project.run(commands, kill_at=point, by=signal.SIGINT)
        left = _under_way(project) - before
        again = project.run(commands)
        wrong = differences(project.state(), bases.state(scenario))
    is_done = "commit of standing" in point
    if (
        stopped.statuses[-1:] != (0 if is_done else EXIT_INTERRUPTED,)
        or ("interrupted" in stopped.said) is is_done
    ):
        wrong.insert(0, f"it ended with {stopped.statuses}: {stopped.said}")
    if left:
        wrong.insert(0, f"calls under way were left: {sorted(left)}")
    if again.failed:
        wrong.insert(0, f"the second run failed: {again.said}")
    return Trial(scenario.name, "Ctrl-C", point, "; ".join(wrong) or WHOLE)


def _under_way(project: Project) -> set[tuple[object, ...]]:
    return {row[:2] for row in project.state()["journal"] if row[2] == "sending"}


def a_day_passes(project: Project) -> None:
    """The server has forgotten the request tokens, which it keeps for 24 hours."""
    day = dt.timedelta(hours=25) // dt.timedelta(microseconds=1)
    changes = {
        "crowd.db": ["UPDATE request_token SET used_at = used_at - ?"],
        "mitl.db": ["UPDATE journal SET at = at - ?", "UPDATE journal SET first_sent_at = first_sent_at - ?"],
    }
    for name, statements in changes.items():
        with closing(sqlite3.connect(project.folder / name, timeout=60)) as database, database:
            for statement in statements:
                database.execute(statement, (day,))
