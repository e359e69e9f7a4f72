"""``mitl publish``."""

from __future__ import annotations

import sys

import click

from mitl.cli.app import DOLLARS, App, common, endpoint_option, environment_options
from mitl.errors import UsageError
from mitl.records import Environment


@click.command("publish")
@environment_options
@click.option(
    "--direction",
    type=click.Choice(["i2t", "t2i", "both"]),
    default="both",
    show_default=True,
    help="Which direction's proposals to ask.",
)
@click.option(
    "--template", default="pairs-plain", show_default=True, help="Wording, a folder of hit_templates."
)
@click.option(
    "--reward",
    type=DOLLARS,
    metavar="DOLLARS",
    help="Per HIT, as 1.00 [default: 12.00 an hour at the estimate].",
)
@click.option(
    "--assignments", type=click.IntRange(1, 9), default=1, show_default=True, help="Workers per HIT."
)
@click.option("--limit", type=click.IntRange(min=1), help="Ask at most this many pairs now.")
@click.option(
    "--overlap",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Share of the pairs that a second worker is asked as well; measures agreement.",
)
@click.option("--max-cost", type=DOLLARS, metavar="DOLLARS", help="Refuse a bill above this.")
@click.option(
    "--yes-total",
    type=DOLLARS,
    metavar="DOLLARS",
    help="With --live: the exact total, instead of typing it.",
)
@click.option("--dry-run", is_flag=True, help="Plan, render and price everything; post and store nothing.")
@endpoint_option
@common
def command(
    app: App,
    environment: Environment | None,
    direction: str,
    template: str,
    reward: int | None,
    assignments: int,
    limit: int | None,
    overlap: float,
    max_cost: int | None,
    yes_total: int | None,
    dry_run: bool,
) -> None:
    """Pack the open pairs into HITs of 18 candidates and 2 controls, print the bill, and post.

    Run again after an interruption, it posts what is missing and nothing twice. Work that was rejected,
    dropped or excluded is asked again on new HITs.
    """
    from mitl.stages.publish import Campaign, publish

    if environment is None:
        raise UsageError(
            "say where to post: --sandbox is practice (nothing is owed), --live owes real money to "
            "real people; add one of them"
        )
    campaign = Campaign(
        environment=environment,
        direction=direction,
        template=template,
        reward_cents=reward,
        assignments=assignments,
        limit=limit,
        overlap=overlap,
        max_cost_cents=max_cost,
    )
    result = publish(
        app.settings,
        campaign,
        confirm=lambda total: environment is Environment.SANDBOX or _confirmed(total, yes_total),
        announce=None if app.quiet else click.echo,
        dry_run=dry_run,
        progress=app.progress,
    )
    app.finish(result)


def _confirmed(total_cents: int, yes_total: int | None) -> bool:
    """Whether the exact total was given as an option or typed."""
    from mitl.hits.pricing import format_dollars

    total = format_dollars(total_cents)
    if yes_total is not None:
        if yes_total != total_cents:
            raise UsageError(
                f"--yes-total is {format_dollars(yes_total)}, but the bill is {total}; nothing was posted"
            )
        return True
    if not sys.stdin.isatty():
        raise UsageError(
            f"the bill is {total} of real money and nobody is here to type it; confirm it with "
            f"--yes-total {total.replace('$', '').replace(',', '')}; nothing was posted"
        )
    typed: int = click.prompt(
        f"this owes real money; type the total ({total}) to post", type=DOLLARS, err=True
    )
    return typed == total_cents
