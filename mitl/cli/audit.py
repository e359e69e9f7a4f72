"""``mitl audit`` and ``mitl plan``.

Random samples of the pool with known probabilities, which bound how complete a release is; and what further answers
would bring and cost.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mitl.cli import Command, CommandGroup
from mitl.cli.app import DOLLARS, FILE, SHARE, App, common, environment_options, together
from mitl.records import AuditPurpose, Environment

sample_options = together(
    click.option("--recall", type=SHARE, help="The lower bound you want [default: 0.9]."),
    click.option("--confidence", type=SHARE, default=0.95, help="One-sided confidence of the bound."),
    click.option(
        "--max-cost",
        "max_cost_cents",
        type=DOLLARS,
        help="Upper limit on the cost of all its answers.",
    ),
    click.option("--simple", is_flag=True, help="Draw one simple random sample of the pool, without strata."),
    click.option(
        "--compare",
        multiple=True,
        metavar="MODEL",
        help="Sample where these models rank differently; give two or more: an annotator's name, or "
        "NAME=FILE[,FILE] as in `mitl evaluate --model`.",
    ),
)
"""What a sample is to prove, and may cost: fields of an `AuditRequest`."""


@click.group("audit", cls=CommandGroup)
def command() -> None:
    """Bound how complete and how right a release is, by a random sample that nothing else reads."""


@command.command("plan")
@environment_options
@sample_options
@common
def plan(app: App, environment: Environment | None, **wanted: Any) -> None:
    """Estimate what a bound on recall costs before spending a cent: strata, answers, HITs, dollars.

    Shows a simple random sample for comparison, and says so if no affordable sample reaches the bound. With
    --compare, it also shows how many audited pairs tell the models apart.
    """
    from mitl.stages.auditing.drawing import AuditRequest, plan

    app.finish(plan(app.settings, AuditRequest(**wanted), environment, app.progress))


@command.command("draw")
@environment_options
@click.option(
    "--for",
    "purpose",
    type=click.Choice([purpose.value for purpose in AuditPurpose]),
    default=AuditPurpose.RECALL.value,
    help="recall: certify a release, with answers that nothing else reads; labels: bound machine labels on "
    "the open candidates.",
)
@click.option(
    "--size", type=click.IntRange(min=1), help="Number of pairs to draw [default: what --recall needs]."
)
@sample_options
@common
def draw(app: App, environment: Environment | None, purpose: str, **wanted: Any) -> None:
    """Draw the sample once, before anybody sees answers; `mitl publish` then asks it blind, among other pairs.

    The sample is frozen. Once one of its answers is in, another sample of the same pool is refused.
    """
    from mitl.stages.auditing.drawing import AuditRequest, draw_audit

    request = AuditRequest(AuditPurpose(purpose), **wanted)
    app.finish(draw_audit(app.settings, request, environment, app.progress))


@command.command("show")
@environment_options
@common
def show(app: App, environment: Environment | None) -> None:
    """Show what is answered, what is open, and the bounds so far, which hold however often you look."""
    from mitl.stages.auditing.showing import show

    app.finish(show(app.settings, environment))


@click.command("plan", cls=Command)
@click.option(
    "--target-recall",
    type=float,
    default=0.95,
    help="Share of the candidates' matches to keep, in (0, 1].",
)
@click.option(
    "--max-error",
    type=float,
    default=0.01,
    help="Tolerated share of wrong matches and of wrong machine labels; 0 plans without machine labels.",
)
@click.option(
    "--siding",
    type=float,
    default=0.1,
    help="For labels under a bound: share of workers who side with the machine where it is wrong, 0 to 0.5.",
)
@click.option("--budget", "budget_cents", type=DOLLARS, help="Show what this much money reaches.")
@click.option("--template", metavar="NAME", help="Price this wording [default: that of the latest batch].")
@click.option(
    "--reward",
    "reward_cents",
    type=DOLLARS,
    help="Per HIT [default: as `mitl publish` computes it].",
)
@click.option("--assignments", type=click.IntRange(min=1, max=100), default=1, help="Workers for each HIT.")
@click.option(
    "--certify",
    type=SHARE,
    metavar="SHARE",
    help="Also estimate the cost of certifying this recall of the whole pool for a release made now.",
)
@click.option("--plot", type=FILE, metavar="FILE", help="Write a plot of the frontier to this SVG file.")
@environment_options
@common
def plan_answers(
    app: App, environment: Environment | None, plot: Path | None, certify: float | None, **wished: Any
) -> None:
    """Estimate what further answers would bring and cost, and what no number of them can reach.

    From the answers so far (best of `mitl publish --pilot N`, which asks at random) and the scores of the candidates:
    recall of the candidates' matches and wrong matches by human answers, with 95 % intervals, for people
    alone by score, for machine labels, and for machine labels under a bound. Reads only.
    """
    from mitl.stages.planning.options import PlanWish
    from mitl.stages.planning.plan import plan

    app.finish(plan(app.settings, PlanWish(**wished), environment, plot=plot, certify=certify))
