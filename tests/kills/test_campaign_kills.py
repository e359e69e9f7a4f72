"""``kill -9`` at calls and commits of other campaigns and of rounds: run again, it ends as if nothing had happened.

The harness is that of `test_kill_points.py`; points that leave the same rows in both databases are resumed once.
"""

from __future__ import annotations

import pytest
from kill_scenarios import OF_RATINGS, OF_ROUNDS, OF_TEXTS, Bases, Scenario
from kill_stand import Stand
from kill_table import EVERYTHING, assert_whole, points_to_kill
from kill_trials import kill_at

pytestmark = pytest.mark.slow
pytest_plugins = ("kill_fixtures",)

CAMPAIGNS = {"similarity": OF_RATINGS, "round": OF_ROUNDS, "collection": OF_TEXTS}
"""By a part of the name of a table that each of their commands writes."""


@pytest.mark.parametrize(
    ("table", "scenario"),
    [
        pytest.param(table, scenario, id=scenario.name)
        for table, scenarios in CAMPAIGNS.items()
        for scenario in scenarios
    ],
)
@pytest.mark.thorough(but=("rate publish", "round close", "round rollback"))
def test_a_command_killed_at_any_point_is_completed_by_running_it_again(
    table: str, scenario: Scenario, stand: Stand, bases: Bases
):
    """No HIT, answer or payment is lost or doubled, and nothing is chosen or asked twice, whichever point it was."""
    points = bases.points(scenario)

    known: dict[str, str] | None = None if EVERYTHING else {}
    # After the last commit but that of counting a round is closed or taken back, and a second run says so.
    mended = points if EVERYTHING or scenario in OF_RATINGS else _before_the_end(points)
    trials = [kill_at(stand, bases, scenario, point, known=known) for point in points_to_kill(mended)]

    before = assert_whole(trials, points)
    assert any(table in step for step in before)


def _before_the_end(points: list[str]) -> list[str]:
    """The points before the last commit of a command's own is done; what counts the project follows it."""
    ends = (number for number, point in enumerate(points) if "commit of standing" not in point)
    return points[: max(ends)]
