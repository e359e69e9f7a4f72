"""``mitl audit``: random samples of the pool with known probabilities, which bound how complete a release is."""

from __future__ import annotations

import click

from mitl.cli.app import DOLLARS, App, common, environment_options
from mitl.cli.help import CommandGroup
from mitl.records import AuditPurpose, Environment

_COMPARE = click.option(
    "--compare",
    multiple=True,
    metavar="MODEL",
    help="Draw where these models rank differently, twice or more: an annotator's name, or NAME=FILE[,FILE] as in "
    "`mitl evaluate --model`.",
)
_SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)


@click.group("audit", cls=CommandGroup)
def command() -> None:
    """Bound how complete and how right a release is, by a random sample that nothing else reads."""


@command.command("plan")
@environment_options
@click.option("--recall", type=_SHARE, help="The lower bound that is wanted [default: 0.9].")
@click.option("--confidence", type=_SHARE, default=0.95, help="Of the bound, one-sided.")
@click.option("--max-cost", type=DOLLARS, metavar="DOLLARS", help="The most that all its answers may cost.")
@click.option("--simple", is_flag=True, help="One simple random sample of the pool, without strata.")
@_COMPARE
@common
def plan(
    app: App,
    environment: Environment | None,
    recall: float | None,
    confidence: float,
    max_cost: int | None,
    simple: bool,
    compare: tuple[str, ...],
) -> None:
    """What a bound of recall costs before a cent is spent: strata, answers, HITs, dollars.

    A simple random sample stands beside it. Where no sample reaches the bound for the money, it says so. With
    --compare, how many audited pairs tell models apart.
    """
    from mitl.stages.auditing.drawing import AuditRequest, plan

    wish = AuditRequest(
        recall=recall, confidence=confidence, max_cost_cents=max_cost, simple=simple, compare=compare
    )
    app.finish(plan(app.settings, wish, environment, app.progress))


@command.command("draw")
@environment_options
@click.option(
    "--for",
    "purpose",
    type=click.Choice([purpose.value for purpose in AuditPurpose]),
    default=AuditPurpose.RECALL.value,
    help="Bound a release, on places that nothing else reads; or bound machine labels, from the open candidates.",
)
@click.option("--size", type=click.IntRange(min=1), help="Pairs to draw [default: what --recall needs].")
@click.option("--recall", type=_SHARE, help="The lower bound that is wanted [default: 0.9].")
@click.option("--confidence", type=_SHARE, default=0.95, help="Of the bound, one-sided.")
@click.option("--max-cost", type=DOLLARS, metavar="DOLLARS", help="The most that all its answers may cost.")
@click.option("--simple", is_flag=True, help="One simple random sample of the pool, without strata.")
@_COMPARE
@common
def draw(
    app: App,
    environment: Environment | None,
    purpose: str,
    size: int | None,
    recall: float | None,
    confidence: float,
    max_cost: int | None,
    simple: bool,
    compare: tuple[str, ...],
) -> None:
    """Draw the sample, once, before anybody has looked; `mitl publish` asks it, blind and among other pairs.

    What was drawn is frozen. Once an answer of it is in, another sample of the same pool is refused.
    """
    from mitl.stages.auditing.drawing import AuditRequest, draw_audit

    wish = AuditRequest(AuditPurpose(purpose), size, recall, confidence, max_cost, simple, compare)
    app.finish(draw_audit(app.settings, wish, environment, app.progress))


@command.command("show")
@environment_options
@common
def show(app: App, environment: Environment | None) -> None:
    """What is answered, what is open, and the bounds so far, which hold however often one looks."""
    from mitl.stages.auditing.showing import show

    app.finish(show(app.settings, environment))
