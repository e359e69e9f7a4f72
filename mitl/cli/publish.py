"""``mitl publish``."""

from __future__ import annotations

import click

from mitl.cli.app import App, common, endpoint_option, environment_options
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
    "--reward", metavar="DOLLARS", help="Per HIT, as 1.00 [default: 12.00 an hour at the estimate]."
)
@click.option(
    "--assignments", type=click.IntRange(1, 9), default=1, show_default=True, help="Workers per HIT."
)
@click.option("--limit", type=click.IntRange(min=1), help="Ask at most this many pairs now.")
@click.option("--max-cost", metavar="DOLLARS", help="Refuse a bill above this.")
@click.option("--yes-total", metavar="DOLLARS", help="With --live: the exact total, instead of typing it.")
@click.option("--dry-run", is_flag=True, help="Plan, render and price everything; post and store nothing.")
@endpoint_option
@common
def command(
    app: App,
    environment: Environment | None,
    direction: str,
    template: str,
    reward: str | None,
    assignments: int,
    limit: int | None,
    max_cost: str | None,
    yes_total: str | None,
    dry_run: bool,
) -> None:
    """Pack the open pairs into HITs of 18 candidates and 2 controls, print the bill, and post.

    Run again after an interruption, it posts what is missing and nothing twice. Work that was rejected,
    dropped or excluded is asked again on new HITs.
    """
    from mitl.hits.pricing import format_dollars, parse_dollars
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
        reward_cents=None if reward is None else parse_dollars(reward),
        assignments=assignments,
        limit=limit,
        max_cost_cents=None if max_cost is None else parse_dollars(max_cost),
    )

    def confirm(total_cents: int) -> bool:
        if environment is Environment.SANDBOX:
            return True
        total = format_dollars(total_cents)
        if yes_total is not None:
            given = parse_dollars(yes_total)
            if given != total_cents:
                raise UsageError(f"--yes-total is {yes_total!r}, but the bill is {total}; nothing was posted")
            return True
        typed: str = click.prompt(f"this owes real money; type the total ({total}) to post", err=True)
        return parse_dollars(typed) == total_cents

    result = publish(
        app.settings,
        campaign,
        confirm=confirm,
        announce=None if app.quiet else click.echo,
        dry_run=dry_run,
        progress=app.progress,
    )
    app.finish(result)
