"""Every fault at every call of a scenario, and what is found then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import fault_kinds
from fault_kinds import Fault, Rows
from fault_proxy import FaultProxy
from kill_books import differences
from kill_scenarios import Bases, Scenario
from kill_stand import Project, Stand
from kill_trials import WHOLE, Trial

PAGE = 2
"""Rows of a listing that are asked for at once, so that five HITs fill several pages."""
PATIENCE_S = 1.0


@dataclass(frozen=True)
class Spoiling:
    """A fault, once or from a call on."""

    name: str
    fault: Fault
    lasting: bool = False


SPOILINGS = (
    Spoiling("the request is lost", fault_kinds.request_lost),
    Spoiling("the reply is lost", fault_kinds.reply_lost),
    Spoiling("all replies are lost from then on", fault_kinds.reply_lost, lasting=True),
    Spoiling("the reply is cut in the middle", fault_kinds.reply_cut),
    Spoiling("the reply is cut within its headers", fault_kinds.headers_cut),
    Spoiling("the reply is an empty object", fault_kinds.reply_empty),
    Spoiling("all replies are empty objects from then on", fault_kinds.reply_empty, lasting=True),
    Spoiling("all members of the reply are null", fault_kinds.reply_null),
    Spoiling("the reply's members are of other types", fault_kinds.reply_mistyped),
    Spoiling("a sign-in page answers", fault_kinds.signed_out),
    Spoiling("the reply comes too late", fault_kinds.reply_late),
    Spoiling("the request arrives after the command is over", fault_kinds.request_late),
    Spoiling("the call is throttled", fault_kinds.throttled),
    Spoiling("500, nothing was done", fault_kinds.failed),
    Spoiling("500, and yet it was done", fault_kinds.failed_after),
    Spoiling("500 from then on", fault_kinds.failed, lasting=True),
)
DISORDERS: dict[str, Callable[[Rows, int], list[Rows]]] = {
    "each page of each listing comes twice": fault_kinds.repeated,
    "each listing comes in the opposite order": fault_kinds.reordered,
}


def calls(stand: Stand, proxy: FaultProxy, bases: Bases, scenario: Scenario) -> list[str]:
    """All calls of a scenario, counted in a run that nobody disturbs."""
    with stand.project(bases.start(scenario)) as project:
        proxy.clear()
        project.must(scenario.commands(project.settings), port=proxy.port, page=PAGE)
        return list(proxy.seen)


def spoil(
    stand: Stand, proxy: FaultProxy, bases: Bases, scenario: Scenario, spoiling: Spoiling, call: str
) -> Trial:
    """Spoil one call, and run the commands again if they gave up."""
    with stand.project(bases.start(scenario)) as project:
        proxy.spoil(spoiling.fault, call, lasting=spoiling.lasting)
        return _trial(bases, scenario, project, proxy, spoiling.name, call)


def disorder(stand: Stand, proxy: FaultProxy, bases: Bases, scenario: Scenario, name: str) -> Trial:
    """Disorder all listings."""
    with stand.project(bases.start(scenario)) as project:
        proxy.disorder(DISORDERS[name], project.keys)
        return _trial(bases, scenario, project, proxy, name)


def _trial(
    bases: Bases, scenario: Scenario, project: Project, proxy: FaultProxy, name: str, call: str = ""
) -> Trial:
    commands = scenario.commands(project.settings)
    first = project.run(commands, port=proxy.port, page=PAGE, patience_s=PATIENCE_S)
    seen = list(proxy.seen)
    proxy.clear()
    result = WHOLE
    if first.crashed:
        result = f"the run ended with a traceback: {first.said}"
    elif call and call not in seen:
        result = f"the call was not made: {first.said}"
    elif first.failed:
        again = project.run(commands, port=proxy.port, page=PAGE)
        if again.failed:
            result = f"the second run failed: {again.said}; after: {first.said}"
    proxy.release()
    wrong = differences(project.state(), bases.state(scenario))
    if wrong and result == WHOLE:
        result = f"{'; '.join(wrong)}; the disturbed run said: {first.said}"
    return Trial(scenario.name, name, call, result, went_on=not first.failed)
