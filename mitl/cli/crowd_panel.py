"""``mitl crowd panel`` and ``mitl crowd study``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mitl.cli import Command, CommandGroup
from mitl.cli.app import FILE, App, F, common, environment_options, refuse_replace, together
from mitl.errors import UsageError
from mitl.records import Environment

if TYPE_CHECKING:
    from mitl.crowd_server.pages.panels import End
    from mitl.crowd_server.store.models import VisitState

PROFILE_NAMES = ("prolific", "connect", "sona", "generic")
BASE_URL = click.option(
    "--base-url", metavar="URL", help="Where people reach the server [default: http://127.0.0.1:8765]."
)
_ENDS = {
    "complete": "has done the HITs of a visit",
    "no-consent": "does not agree to the study",
    "nothing-left": "finds nothing to do",
}
_IN_LINK = {
    "worker": "id's name in the link [default: the panel's]",
    "study": "study's name in the link [default: the panel's]",
    "session": "session's name in the link [default: the panel's]; without one, a person has one visit",
}


def needed(environment: Environment | None) -> Environment:
    """The environment, which the command cannot guess."""
    if environment is None:
        raise UsageError("say for which environment: add --sandbox or --live")
    return environment


def _of_end(name: str, who: str) -> Callable[[F], F]:
    return together(
        click.option(
            f"--{name}-url",
            default="",
            show_default=False,
            metavar="URL",
            help=f"https link back for who {who}; {{worker}}, {{study}} and {{session}} are filled in.",
        ),
        click.option(f"--{name}-code", default="", show_default=False, help=f"Code for who {who}."),
    )


_end_options = together(*(_of_end(name, who) for name, who in _ENDS.items()))
_link_options = together(
    *(
        click.option(f"--{of}-parameter", default="", show_default=False, metavar="NAME", help=f"The {what}.")
        for of, what in _IN_LINK.items()
    )
)


def _given(ends: Mapping[str, str]) -> dict[VisitState, End]:
    from mitl.crowd_server.admin import OPTIONS
    from mitl.crowd_server.pages.panels import End

    names = {state: option.replace("-", "_") for state, option in OPTIONS.items()}
    return {state: End(ends[f"{prefix}_url"], ends[f"{prefix}_code"]) for state, prefix in names.items()}


@click.group("panel", cls=CommandGroup)
def panel() -> None:
    """Study links for panels: Prolific, Connect, SONA and others."""


@panel.command("add")
@environment_options
@click.option("--profile", type=click.Choice(PROFILE_NAMES), help="Which panel.")
@click.option(
    "--slug", default="", show_default=False, help="The last part of the study link [default: made up]."
)
@_end_options
@click.option(
    "--hits-per-visit",
    type=click.IntRange(1, 1000),
    default=1,
    help="HITs that one visit asks for.",
)
@_link_options
@BASE_URL
@common
def add(
    app: App,
    environment: Environment | None,
    profile: str | None,
    slug: str,
    hits_per_visit: int,
    base_url: str | None,
    **named: str,
) -> None:
    """Make a panel's study link and say what to paste where."""
    chosen = needed(environment)
    if profile is None:
        raise UsageError(f"say which panel: --profile with one of {', '.join(PROFILE_NAMES)}")
    from mitl.crowd_server.admin import PanelPlan
    from mitl.crowd_server.pages.panels import LinkParameters
    from mitl.stages.recruiting import add_panel

    names = LinkParameters(*(named[f"{of}_parameter"] for of in _IN_LINK))
    plan = PanelPlan(profile, slug, names, hits_per_visit, _given(named))
    app.finish(add_panel(app.settings, chosen, plan, base_url=base_url))


@panel.command("change")
@click.argument("slug")
@_end_options
@common
def change(app: App, slug: str, **ends: str) -> None:
    """Correct a code or a way back of panel SLUG; what is not given stays."""
    if not any(ends.values()):
        raise UsageError("say what to correct, as --complete-code CODE")
    from mitl.stages.recruiting import change_panel

    app.finish(change_panel(app.settings, slug, _given(ends)))


@panel.command("list")
@BASE_URL
@common
def list_all(app: App, base_url: str | None) -> None:
    """List the panels with their links, and how many visits ended how."""
    from mitl.stages.recruiting import list_panels

    app.finish(list_panels(app.settings, base_url))


@panel.command("visits")
@click.argument("slug")
@click.option("--out", type=FILE, help="Write them to this file as CSV instead.")
@click.option("--replace", is_flag=True, help="--out: overwrite another file that is there.")
@common
def visits(app: App, slug: str, out: Path | None, replace: bool) -> None:
    """List the visits from panel SLUG, with sessions and outcomes, to compare with the panel's own list."""
    from mitl.stages.recruiting import list_visits

    refuse_replace(replace, out, "--out")
    app.finish(list_visits(app.settings, slug, out, replace=replace))


@panel.command("close")
@click.argument("slug")
@common
def close(app: App, slug: str) -> None:
    """Close the study link of panel SLUG to new people."""
    from mitl.stages.recruiting import close_panel

    app.finish(close_panel(app.settings, slug))


@panel.command("forget")
@environment_options
@click.option(
    "--worker",
    metavar="ID",
    help="One person, by the panel's id or by the worker id; of both environments unless one is given.",
)
@click.option("--all", "everybody", is_flag=True, help="Everybody of one environment.")
@click.option("--paid", is_flag=True, help="They have got all that the server owes them.")
@common
def forget(
    app: App, environment: Environment | None, worker: str | None, everybody: bool, paid: bool
) -> None:
    """Delete which panel ids belong to which workers; answers and payments stay.

    Pay first: afterwards nobody can tell whom a worker id stands for, and who comes again is a new worker. Whoever is
    owed something is forgotten only with --paid, since the server does not know what you paid.
    """
    if (worker is None) == (not everybody):
        raise UsageError("say whom to forget: --worker ID, or --all with --sandbox or --live")
    from mitl.stages.recruiting import forget as stage

    chosen = needed(environment) if everybody else environment
    app.finish(stage(app.settings, chosen, worker, paid=paid))


@click.command("study", cls=Command)
@environment_options
@click.option("--title", help="Heading of the study's page.")
@click.option(
    "--information",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Text file with what people should know; empty lines part paragraphs.",
)
@click.option("--contact", help="Whom to ask: an e-mail or https address, or a name and a room.")
@click.option("--warning", help="What could upset people; shown on the list of HITs too.")
@click.option("--consent", help="The sentence that people agree to before their first HIT.")
@common
def study(app: App, environment: Environment | None, information: Path | None, **texts: str | None) -> None:
    """Set what people are told before their first HIT, or show it.

    Only the texts given here change; an empty one ("") is taken away. Every change but that of the contact asks
    everybody again.
    """
    chosen = needed(environment)
    from mitl.stages.recruiting import read_information
    from mitl.stages.recruiting import study as stage

    changes = {name: text for name, text in texts.items() if text is not None}
    if information is not None:
        changes["information"] = read_information(information)
    app.finish(stage(app.settings, chosen, changes))
