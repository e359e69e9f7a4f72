"""``mitl hits``."""

from __future__ import annotations

import click

from mitl.cli.app import DOLLARS, App, common, endpoint_option, environment_options
from mitl.errors import UsageError
from mitl.records import Environment


@click.group("hits")
def command() -> None:
    """List HITs that were posted, end them, extend them, or delete them on the server. All can be run twice."""


@command.command("list")
@click.argument("batch", required=False)
@environment_options
@common
def list_command(app: App, batch: str | None, environment: Environment | None) -> None:
    """List the batches, or the HITs of BATCH."""
    from mitl.stages.hits.listing import list_hits

    app.finish(list_hits(app.settings, batch, environment))


@command.command("expire")
@click.argument("batches", metavar="[BATCH]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All batches.")
@click.option(
    "--orphans",
    is_flag=True,
    help="HITs of this project that are on the server and not in this database, as after restoring a backup.",
)
@environment_options
@endpoint_option
@common
def expire_command(
    app: App, batches: tuple[str, ...], everything: bool, orphans: bool, environment: Environment | None
) -> None:
    """End the HITs of BATCH now: nobody new may take them, and who is at work may finish and is paid."""
    from mitl.stages.hits.expire import expire

    if bool(batches) + everything + orphans != 1:
        raise UsageError(
            "say what to end: batches by name (`mitl hits list` shows them), --all, or --orphans"
        )
    app.finish(expire(app.settings, batches, environment, orphans=orphans, progress=app.progress))


@command.command("extend")
@click.argument("batch")
@click.option(
    "--assignments", type=click.IntRange(min=2), help="Ask so many workers of each HIT in all; at most 9."
)
@click.option("--days", type=click.IntRange(1, 364), help="Let the HITs be taken for so many days from now.")
@click.option("--max-cost", type=DOLLARS, metavar="DOLLARS", help="Refuse a bill above this.")
@click.option(
    "--yes-total",
    type=DOLLARS,
    metavar="DOLLARS",
    help="On live: the exact total, instead of typing it.",
)
@environment_options
@endpoint_option
@common
def extend_command(
    app: App,
    batch: str,
    assignments: int | None,
    days: int | None,
    max_cost: int | None,
    yes_total: int | None,
    environment: Environment | None,
) -> None:
    """Ask more workers of BATCH's HITs, or give the HITs more time; prints the bill first.

    HITs that were posted for fewer than 10 workers cannot be raised to 10 or more: MTurk refuses it.
    """
    from mitl.cli.confirming import confirmed
    from mitl.stages.hits.extend import Wish, extend

    def confirm(chosen: Environment, total: int) -> bool:
        return chosen is Environment.SANDBOX or confirmed(
            total, yes_total, subject="the extension", verb="extend", undone="nothing was extended"
        )

    app.finish(
        extend(
            app.settings,
            Wish(batch, assignments, days, max_cost),
            environment,
            confirm=confirm,
            announce=None if app.quiet else click.echo,
            progress=app.progress,
        )
    )


@command.command("delete")
@click.argument("batches", metavar="[BATCH]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All batches.")
@click.option("--orphans", is_flag=True, help="HITs that `mitl hits expire --orphans` has ended.")
@environment_options
@endpoint_option
@common
def delete_command(
    app: App, batches: tuple[str, ...], everything: bool, orphans: bool, environment: Environment | None
) -> None:
    """Delete BATCH's HITs on the server where all work is decided; answers and payments stay here."""
    from mitl.stages.hits.delete import delete

    if bool(batches) + everything + orphans != 1:
        raise UsageError(
            "say what to delete: batches by name (`mitl hits list` shows them), --all, or --orphans"
        )
    app.finish(delete(app.settings, batches, environment, orphans=orphans, progress=app.progress))
