"""``kill -9`` at every request of `mitl simulate`: run again, every HIT is answered, as often as it asks for.

The harness is that of `test_kill_points.py`. Which worker meets which HIT is not the same as without the kill.
"""

from __future__ import annotations

import pytest
from books import server_rows
from kill_child import KILLED
from kill_points import AFTER
from kill_scenarios import Bases, named
from kill_stand import Stand
from kill_table import EVERYTHING, first_and_last, steps

pytestmark = pytest.mark.slow
pytest_plugins = ("kill_fixtures",)

SIMULATE = [["simulate", "--hits-per-worker", "2"]]
ANSWERED = """SELECT h.annotation, h.max_assignments, sum(a.state = 'submitted'), sum(a.state = 'accepted')
    FROM hit h LEFT JOIN assignment a ON a.hit_id = h.id GROUP BY h.id ORDER BY h.annotation"""


@pytest.mark.thorough
def test_a_simulation_killed_at_any_request_is_completed_by_running_it_again(stand: Stand, bases: Bases):
    """Whoever was interrupted returns the HIT that they had accepted, and somebody else answers it."""
    start = bases.start(named("hits expire"))
    with stand.project(start) as project:
        done = project.must(SIMULATE)
        whole = server_rows(project.settings, ANSWERED)
    points = (
        list(done.points) if EVERYTHING else first_and_last([p for p in done.points if p.startswith(AFTER)])
    )
    wrong = []
    for point in points:
        with stand.project(start) as project:
            killed = project.run(SIMULATE, kill_at=point)
            again = project.run(SIMULATE)
            rows = server_rows(project.settings, ANSWERED)
            left = list((project.folder / "runs" / "scripted-workers").iterdir())
        if killed.exit_status != KILLED or again.failed or rows != whole or left:
            wrong.append((point, killed.exit_status, again.said, rows, left))

    assert wrong == []
    assert {row[1:] for row in whole} == {(1, 1, 0)}
    assert {"POST /w/accept", "GET /w"} <= set(steps(point.partition(" ")[2] for point in points))
