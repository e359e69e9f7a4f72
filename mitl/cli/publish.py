"""``mitl publish``."""

from __future__ import annotations

import click

from mitl.cli.app import App, common, environment_options
from mitl.cli.posting import Posting, posting_options, require_environment
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
    "--assignments",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="Workers per HIT; from 10 on, an endpoint that charges takes twice the fee.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="Have at most this many pairs out at once by runs with a limit and the same --direction and --template; a "
    "run's pairs count until its last HIT is closed, so that a repeat completes it and posts no more.",
)
@click.option(
    "--overlap",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Share of the pairs that a second worker is asked as well; measures agreement.",
)
@click.option(
    "--pilot",
    type=click.IntRange(min=1),
    metavar="HITS",
    help="Post so many HITs of random open pairs, counted as --limit does; their median active time prices what "
    "follows.",
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
    "--reconcile",
    is_flag=True,
    help="Only compare the server's HITs with what is stored here, and adopt what was lost; post nothing.",
)
@posting_options
@common
def command(
    app: App,
    environment: Environment | None,
    posting: Posting,
    direction: str,
    template: str,
    assignments: int,
    limit: int | None,
    overlap: float,
    pilot: int | None,
    wait_for_pilot: bool,
    reconcile: bool,
) -> None:
    """Pack the open pairs into HITs of 18 candidates and 2 controls, print the bill, and post.

    Run again after an interruption, it completes that plan under the same bill and plans nothing beside it; what
    else is open comes with the run after that. Work that was rejected, dropped or excluded is asked again on new HITs.
    """
    from mitl.campaign.kinds.pairs.planning import Campaign
    from mitl.campaign.publish import publish

    chosen = require_environment(environment)
    if reconcile:
        from mitl.campaign.reconciling import reconcile_only

        _refuse_beside_reconcile()
        app.finish(reconcile_only(app.settings, chosen, app.progress))
        return
    campaign = Campaign(
        environment=chosen,
        direction=direction,
        template=template,
        reward_cents=posting.reward_cents,
        assignments=assignments,
        limit=limit,
        overlap=overlap,
        max_cost_cents=posting.max_cost_cents,
        pilot=pilot,
        wait_for_pilot=wait_for_pilot,
        probes=posting.probes,
    )
    publish(
        app.settings,
        campaign,
        confirm=lambda total: posting.confirmed(chosen, total),
        repeats=posting.repeats,
        announce=None if app.quiet else click.echo,
        dry_run=posting.dry_run,
        to=posting.to,
        tell=app.finish,
        progress=app.progress,
    )


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
