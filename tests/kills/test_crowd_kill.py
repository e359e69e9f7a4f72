"""``kill -9`` of the crowd server under load: what a worker saw confirmed is kept once, and the books balance.

``MITL_SERVER_KILLS=50`` kills more often; ``benchmarks/bench_crowd_load.py --kills 50`` does so by itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from crowd_kills import kill_trial

pytestmark = pytest.mark.slow

PROCESSES = 3
KILLS = int(os.environ.get("MITL_SERVER_KILLS", "3"))


@pytest.mark.thorough(but=("postgresql",))
def test_a_killed_server_loses_nothing_and_doubles_nothing(engine_url):
    """People work and a requester posts and pays while the server dies at random moments and comes back."""
    outcome = kill_trial(engine_url, kills=KILLS, seed=0, workers=12)

    assert outcome.faults == []
    assert 0 < outcome.confirmed <= outcome.kept
    assert outcome.reconnected > 0
    assert outcome.approved > 0 and outcome.posted >= 8


def test_killed_workers_lose_nothing_and_double_nothing(postgres_url):
    """One process of several dies at a time; the others go on, and it comes back without the server's end."""
    outcome = kill_trial(postgres_url, kills=max(KILLS, 5), seed=0, workers=12, processes=PROCESSES)

    assert outcome.faults == []
    assert 0 < outcome.confirmed <= outcome.kept
    assert outcome.approved > 0 and outcome.posted >= 8
