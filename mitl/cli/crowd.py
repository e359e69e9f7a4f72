"""``mitl crowd``."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import click

from mitl.cli.app import DOLLARS, App, common, environment_options
from mitl.cli.crowd_panel import BASE_URL, needed, panel, study
from mitl.cli.lifetimes import LIFETIME
from mitl.errors import UsageError
from mitl.records import Environment


@click.group("crowd")
def command() -> None:
    """Administer the crowd server: invitations, panels, the study's text, keys, budget, payments.

    Works while it runs or not.
    """


@command.command("invite")
@environment_options
@click.option("--people", type=click.IntRange(1, 1000), default=1, show_default=True, help="How many links.")
@click.option(
    "--uses",
    "--open",
    "open_uses",
    type=click.IntRange(min=1),
    help="Each link admits this many people; without it, a link is one person's.",
)
@click.option(
    "--expires",
    "lasts",
    type=LIFETIME,
    metavar="WHEN",
    help="When links end: 12h, 30d or a date as 2027-01-31 [default: 30d].",
)
@click.option("--days", type=click.IntRange(1, 3650), help="How many days links last, as --expires.")
@click.option("--label", default="", help="Your own note, shown on the operator page.")
@BASE_URL
@click.option("--list", "listing", is_flag=True, help="List the invitations and make none.")
@click.option("--revoke", "revoked", type=int, metavar="NUMBER", help="Close this invitation and make none.")
@common
def invite(
    app: App,
    environment: Environment | None,
    people: int,
    open_uses: int | None,
    lasts: dt.timedelta | None,
    days: int | None,
    label: str,
    base_url: str | None,
    listing: bool,
    revoked: int | None,
) -> None:
    """Make links by which people join; a personal link is for one person, one with --uses for several."""
    from mitl.stages import serve

    if listing and revoked is not None:
        raise UsageError("give --list or --revoke, not both")
    if listing:
        app.finish(serve.list_invitations(app.settings))
        return
    if revoked is not None:
        app.finish(serve.revoke(app.settings, revoked))
        return
    if lasts is not None and days is not None:
        raise UsageError("give --expires or --days, not both")
    app.finish(
        serve.invite(
            app.settings,
            needed(environment),
            people=people,
            open_uses=open_uses,
            lasts=lasts or dt.timedelta(days=days or 30),
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
@environment_options
@click.option(
    "--export",
    "credentials",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write one environment's pair as a new AWS credentials file (mode 600), for programs on other machines.",
)
@common
def keys(app: App, environment: Environment | None, credentials: Path | None) -> None:
    """Show the requester access keys and where their secrets are."""
    from mitl.stages import serve

    if credentials is None:
        app.finish(serve.keys(app.settings))
    else:
        app.finish(serve.export_keys(app.settings, needed(environment), credentials))


@command.command("operator")
@BASE_URL
@common
def operator(app: App, base_url: str | None) -> None:
    """Show the link to the operator page; who has it may pause, expire and invite."""
    from mitl.stages.serve import operator_link

    app.finish(operator_link(app.settings, base_url))


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

    app.finish(stage(app.settings, needed(environment)))


command.add_command(study)
command.add_command(panel)
