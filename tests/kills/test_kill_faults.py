"""A network and a server that fail in every way: lost replies, delays, throttling, errors, disordered listings.

Every kind of call of every command is spoilt, and every fault is met. Usually the first and the last call of a kind
meet one of them, in turn; ``make kill-tests`` lets every fault meet every call and writes the table of
``docs/crash-safety.md``.
"""

from __future__ import annotations

import pytest
from fault_proxy import FaultProxy
from fault_trials import DISORDERS, SPOILINGS, calls, disorder, spoil
from kill_scenarios import SCENARIOS, Bases, Scenario
from kill_stand import Stand
from kill_table import EVERYTHING, FAULTS, assert_told, first_and_last, keep, steps
from kill_trials import WHOLE

pytestmark = pytest.mark.slow
pytest_plugins = ("kill_fixtures",)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@pytest.mark.thorough(
    but=(
        "harvest",
        "review settle",
        "review approve",
        "publish --reconcile",
        "hits extend --days",
        "pay top-up",
    )
)
def test_a_command_whose_calls_are_spoilt_loses_and_doubles_nothing(
    scenario: Scenario, stand: Stand, bases: Bases, proxy: FaultProxy
):
    """It goes on by itself, or stops with one line and is completed by running it again."""
    made = calls(stand, proxy, bases, scenario)
    first = SCENARIOS.index(scenario)

    disorders = DISORDERS if any(call.startswith("List") for call in made) else ()
    trials = [disorder(stand, proxy, bases, scenario, name) for name in disorders]
    for number, call in enumerate(made if EVERYTHING else first_and_last(made), first):
        chosen = SPOILINGS if EVERYTHING else [SPOILINGS[number % len(SPOILINGS)]]
        trials += [spoil(stand, proxy, bases, scenario, spoiling, call) for spoiling in chosen]

    keep(FAULTS, scenario.name, trials, steps(made))
    assert [str(trial) for trial in trials if trial.result != WHOLE] == []
    assert_told(FAULTS, scenario.name, steps(made))
