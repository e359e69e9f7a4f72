"""``mitl audit``: random samples of the pool with known probabilities, which bound how complete a release is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from mitl.cli import CommandGroup
from mitl.cli.app import DOLLARS, App, common, environment_options
from mitl.records import AuditPurpose, Environment

F = TypeVar("F", bound=Callable[..., Any])

_SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)


def sample_options(function: F) -> F:
    """Add what a sample is to prove, and may cost: fields of an `AuditRequest`."""
    options = (
        click.option("--recall", type=_SHARE, help="The lower bound you want [default: 0.9]."),
        click.option("--confidence", type=_SHARE, default=0.95, help="One-sided confidence of the bound."),
        click.option(
            "--max-cost",
            "max_cost_cents",
            type=DOLLARS,
            metavar="DOLLARS",
            help="Upper limit on the cost of all its answers.",
        ),
        click.option(
            "--simple", is_flag=True, help="Draw one simple random sample of the pool, without strata."
        ),
        click.option(
            "--compare",
            multiple=True,
            metavar="MODEL",
            help="Sample where these models rank differently; give two or more: an annotator's name, or "
            "NAME=FILE[,FILE] as in `mitl evaluate --model`.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


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
