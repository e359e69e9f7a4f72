"""``kill -9`` at calls and commits of a preference study: the command run again ends as if nothing had happened.

The harness is that of `test_kill_points.py`; points that leave the same rows in both databases are resumed once.
"""

from __future__ import annotations

import pytest
from kill_points import AFTER
from kill_scenarios import OF_RANKINGS, Bases, Scenario, named
from kill_stand import Stand
from kill_table import EVERYTHING, assert_whole, points_to_kill
from kill_trials import WHOLE, a_day_passes, interrupt_at, kill_at

pytestmark = pytest.mark.slow
pytest_plugins = ("kill_fixtures",)


@pytest.mark.parametrize("scenario", OF_RANKINGS, ids=lambda scenario: scenario.name)
@pytest.mark.thorough(but=("harvest of preferences",))
def test_a_study_killed_at_any_point_is_completed_by_running_it_again(
    scenario: Scenario, stand: Stand, bases: Bases
):
    """No HIT, preference or payment is lost or doubled, whichever point it was."""
    points = bases.points(scenario)

    known: dict[str, str] | None = None if EVERYTHING else {}
    trials = [kill_at(stand, bases, scenario, point, known=known) for point in points_to_kill(points)]

    before = assert_whole(trials, points)
    assert any("comparison" in step or "preference" in step for step in before)


def test_a_study_resumed_a_day_later_doubles_nothing(stand: Stand, bases: Bases):
    """The HITs were made, their replies are lost, and the server no longer knows the tokens."""
    scenario = named("prefer publish")
    made = [p for p in bases.points(scenario) if p.startswith(f"{AFTER} CreateHITWithHITType ")]

    trials = [kill_at(stand, bases, scenario, point, between=a_day_passes) for point in made[-1:]]

    assert [trial.result for trial in trials] == [WHOLE]


def test_ctrl_c_leaves_a_clean_state(stand: Stand, bases: Bases):
    """What was begun is booked, and the second run completes it."""
    scenario = named("harvest of preferences")
    points = bases.points(scenario)
    chosen = points if EVERYTHING else points[3::9]

    trials = [interrupt_at(stand, bases, scenario, point) for point in chosen]

    assert [str(trial) for trial in trials if trial.result != WHOLE] == []
