"""``kill -9`` at every call and commit of a campaign of ratings: run again, it ends as if nothing had happened.

The harness is that of `test_kill_points.py`; points that leave the same rows in both databases are resumed once.
"""

from __future__ import annotations

import pytest
from kill_points import AFTER, BEFORE
from kill_scenarios import OF_RATINGS, Bases, Scenario
from kill_stand import Stand
from kill_table import EVERYTHING, steps
from kill_trials import WHOLE, kill_at, kill_points

pytestmark = pytest.mark.slow
pytest_plugins = ("kill_fixtures",)


@pytest.mark.parametrize("scenario", OF_RATINGS, ids=lambda scenario: scenario.name)
def test_a_campaign_of_ratings_killed_at_any_point_is_completed_by_running_it_again(
    scenario: Scenario, stand: Stand, bases: Bases
):
    """No HIT, rating or payment is lost or doubled, whichever point it was."""
    points = kill_points(stand, bases, scenario)

    known: dict[str, str] | None = None if EVERYTHING else {}
    trials = [kill_at(stand, bases, scenario, point, known=known) for point in points]

    assert [str(trial) for trial in trials if trial.result != WHOLE] == []
    before = steps(point.removeprefix("before ") for point in points if point.startswith(BEFORE))
    after = steps(point.removeprefix("after ") for point in points if point.startswith(AFTER))
    assert before == after != {}
    assert any("similarity" in step for step in before)
