"""``kill -9`` and Ctrl-C at calls and commits of every kind: the command run again ends as if nothing had happened.

The points are counted in a run that nobody disturbs; none is known beforehand. ``make kill-tests`` kills at each and
writes the table of ``docs/crash-safety.md``; usually the first and the last of each kind stand for the others.
"""

from __future__ import annotations

import pytest
from kill_points import AFTER
from kill_scenarios import SCENARIOS, Bases, Scenario, named
from kill_stand import Stand
from kill_table import (
    EVERYTHING,
    INTERRUPTS,
    KILLS,
    LATER,
    assert_told,
    assert_whole,
    keep,
    points_to_kill,
    steps,
)
from kill_trials import WHOLE, a_day_passes, interrupt_at, kill_at

pytestmark = pytest.mark.slow
pytest_plugins = ("kill_fixtures",)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@pytest.mark.thorough(
    but=(
        "publish",
        "harvest",
        "review reverse",
        "publish --reconcile",
        "hits extend --assignments",
        "pay compensate",
    )
)
def test_a_command_killed_at_any_point_is_completed_by_running_it_again(
    scenario: Scenario, stand: Stand, bases: Bases
):
    """No HIT, answer or payment is lost or doubled, and the ledger is the server's, whichever point it was."""
    points = bases.points(scenario)

    known: dict[str, str] | None = None if EVERYTHING else {}
    trials = [kill_at(stand, bases, scenario, point, known=known) for point in points_to_kill(points)]

    keep(KILLS, scenario.name, trials, steps(points))
    before = assert_whole(trials, points)
    assert_told(KILLS, scenario.name, before)


TOKENS = ("CreateHITWithHITType", "CreateAdditionalAssignmentsForHIT", "SendBonus")
"""Calls that a repeat makes harmless by a token, which the server forgets after 24 hours."""
USED_BY = ("publish", "hits extend --assignments", "pay top-up")


@pytest.mark.parametrize("scenario", [named(name) for name in USED_BY], ids=lambda scenario: scenario.name)
@pytest.mark.thorough(but=("pay top-up",))
def test_a_command_resumed_a_day_later_still_doubles_nothing(scenario: Scenario, stand: Stand, bases: Bases):
    """The calls were made, their replies are lost, and the server no longer knows the tokens."""
    made = tuple(f"{AFTER} {operation} " for operation in TOKENS)
    points = [point for point in bases.points(scenario) if point.startswith(made)]

    trials = [kill_at(stand, bases, scenario, point, between=a_day_passes) for point in points]

    keep(LATER, scenario.name, trials, steps(points))
    assert [str(trial) for trial in trials if trial.result != WHOLE] == []
    assert_told(LATER, scenario.name, steps(trial.step for trial in trials))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@pytest.mark.thorough(but=("publish --limit", "harvest", "hits expire", "pay top-up"))
def test_ctrl_c_at_any_point_leaves_a_clean_state(scenario: Scenario, stand: Stand, bases: Bases):
    """What was begun is booked, nothing is under way, one line says so, and the second run completes it."""
    points = bases.points(scenario)
    chosen = points if EVERYTHING else points[SCENARIOS.index(scenario) % 5 :: 15]

    trials = [interrupt_at(stand, bases, scenario, point) for point in chosen]

    keep(INTERRUPTS, scenario.name, trials, steps(points))
    assert [str(trial) for trial in trials if trial.result != WHOLE] == []
