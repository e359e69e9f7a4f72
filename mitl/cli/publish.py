"""``mitl publish``."""

from __future__ import annotations

from pathlib import Path

import click

from mitl.cli.app import DOLLARS, App, common, endpoint_option, environment_options
from mitl.cli.confirming import confirmed
from mitl.errors import UsageError
from mitl.records import Environment

_ABOUT_POSTING = frozenset(
    (
        "direction",
        "template",
        "reward",
        "assignments",
        "limit",
        "overlap",
        "max_cost",
        "yes_total",
        "pilot",
        "wait_for_pilot",
        "probes",
        "dry_run",
        "to",
    )
)


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
    "--assignments",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="Workers per HIT; from 10 on, an endpoint that charges takes twice the fee.",
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
@click.option(
    "--pilot",
    type=click.IntRange(min=1),
    metavar="HITS",
    help="Post so many HITs of random open pairs; their median active time prices what follows.",
)
@click.option(
    "--no-wait-for-pilot",
    "wait_for_pilot",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Post the rest though a pilot of this wording is out.",
)
@click.option(
    "--probe-images",
    "probes",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="Pictures to fetch as a worker would before anything is posted.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Check and price everything and write every request; post and plan nothing.",
)
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="With --dry-run: where the requests and pages go [default: PROJECT/dry-run].",
)
@click.option(
    "--reconcile",
    is_flag=True,
    help="Only compare the server's HITs with what is stored here, and adopt what was lost; post nothing.",
)
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
    pilot: int | None,
    wait_for_pilot: bool,
    probes: int,
    dry_run: bool,
    to: Path | None,
    reconcile: bool,
) -> None:
    """Pack the open pairs into HITs of 18 candidates and 2 controls, print the bill, and post.

    Run again after an interruption, it posts what is missing and nothing twice. Work that was rejected,
    dropped or excluded is asked again on new HITs.
    """
    from mitl.stages.publishing.publish import Campaign, publish

    if environment is None:
        raise UsageError(
            "say where to post: --sandbox is practice (nothing is owed), --live owes real money to "
            "real people; add one of them"
        )
    if reconcile:
        from mitl.stages.hits.reconciling import reconcile_only

        _refuse_beside_reconcile()
        app.finish(reconcile_only(app.settings, environment, app.progress))
        return
    if to is not None and not dry_run:
        raise UsageError("--to says where a dry run is written; add --dry-run, or leave it out")
    campaign = Campaign(
        environment=environment,
        direction=direction,
        template=template,
        reward_cents=reward,
        assignments=assignments,
        limit=limit,
        overlap=overlap,
        max_cost_cents=max_cost,
        pilot=pilot,
        wait_for_pilot=wait_for_pilot,
        probes=probes,
    )
    result = publish(
        app.settings,
        campaign,
        confirm=lambda total: (
            environment is Environment.SANDBOX
            or confirmed(total, yes_total, subject="the bill", verb="post", undone="nothing was posted")
        ),
        announce=None if app.quiet else click.echo,
        dry_run=dry_run,
        to=to,
        progress=app.progress,
    )
    app.finish(result)


def _refuse_beside_reconcile() -> None:
    """Nothing is posted, so no option about posting could be followed."""
    context = click.get_current_context()
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in _ABOUT_POSTING
        and context.get_parameter_source(str(parameter.name)) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise UsageError(
            f"--reconcile posts nothing, so {', '.join(given)} could not be followed; leave it out"
        )
