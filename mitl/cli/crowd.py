"""``mitl crowd``."""

from __future__ import annotations

import click

from mitl.cli.app import DOLLARS, App, common, environment_options
from mitl.errors import UsageError
from mitl.records import Environment


@click.group("crowd")
def command() -> None:
    """Administer the crowd server: invitations, keys, budget, payments. Works while it runs or not."""


def _needed(environment: Environment | None) -> Environment:
    if environment is None:
        raise UsageError("say for which environment: add --sandbox or --live")
    return environment


@command.command("invite")
@environment_options
@click.option("--people", type=click.IntRange(1, 1000), default=1, show_default=True, help="How many links.")
@click.option("--open", "open_uses", type=click.IntRange(min=1), help="Each link admits this many people.")
@click.option(
    "--days", type=click.IntRange(1, 3650), default=30, show_default=True, help="How long links last."
)
@click.option("--label", default="", help="Your own note, shown on the operator page.")
@click.option(
    "--base-url", metavar="URL", help="Where people reach the server [default: http://127.0.0.1:8765]."
)
@common
def invite(
    app: App,
    environment: Environment | None,
    people: int,
    open_uses: int | None,
    days: int,
    label: str,
    base_url: str | None,
) -> None:
    """Make links by which people join; a personal link is for one person, an --open one for several."""
    from mitl.stages.serve import invite as stage

    app.finish(
        stage(
            app.settings,
            _needed(environment),
            people=people,
            open_uses=open_uses,
            days=days,
            label=label,
            base_url=base_url,
        )
    )


@command.command("invitations")
@common
def invitations(app: App) -> None:
    """List the invitations."""
    from mitl.stages.serve import list_invitations

    app.finish(list_invitations(app.settings))


@command.command("revoke")
@click.argument("number", type=int)
@common
def revoke(app: App, number: int) -> None:
    """Close invitation NUMBER and shut out whoever came by it."""
    from mitl.stages.serve import revoke as stage

    app.finish(stage(app.settings, number))


@command.command("keys")
@common
def keys(app: App) -> None:
    """Show the requester access keys and where their secrets are."""
    from mitl.stages.serve import keys as stage

    app.finish(stage(app.settings))


@command.command("budget")
@click.option(
    "--set",
    "amount",
    type=DOLLARS,
    metavar="DOLLARS",
    help="The live budget; the sandbox always has 10,000.00.",
)
@common
def budget(app: App, amount: int | None) -> None:
    """Show the money of both environments, or set the live budget."""
    from mitl.stages.serve import budget as stage

    app.finish(stage(app.settings, amount))


@command.command("payments")
@environment_options
@common
def payments(app: App, environment: Environment | None) -> None:
    """What each worker is owed."""
    from mitl.stages.serve import payments as stage

    app.finish(stage(app.settings, _needed(environment)))
