"""``mitl plan``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mitl.cli import Command
from mitl.cli.app import DOLLARS, App, common, environment_options
from mitl.records import Environment


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
@click.option(
    "--budget", "budget_cents", type=DOLLARS, metavar="DOLLARS", help="Show what this much money reaches."
)
@click.option("--template", metavar="NAME", help="Price this wording [default: that of the latest batch].")
@click.option(
    "--reward",
    "reward_cents",
    type=DOLLARS,
    metavar="DOLLARS",
    help="Per HIT [default: as `mitl publish` computes it].",
)
@click.option(
    "--assignments",
    type=click.IntRange(min=1, max=100),
    default=1,
    help="Workers for each HIT.",
)
@click.option(
    "--certify",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    help="Also estimate the cost of certifying this recall of the whole pool for a release made now.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a plot of the frontier to this SVG file.",
)
@environment_options
@common
def command(
    app: App, environment: Environment | None, plot: Path | None, certify: float | None, **wished: Any
) -> None:
    """Estimate what further answers would bring and cost, and what no number of them can reach.

    From the answers so far (best of `mitl publish --pilot N`, which asks at random) and the scores of the candidates:
    recall of the candidates' matches and wrong matches by human answers, with 95 % intervals over queries, for people
    alone by score, for machine labels, and for machine labels under a bound. Reads only.
    """
    from mitl.stages.planning.options import PlanWish
    from mitl.stages.planning.plan import plan

    app.finish(plan(app.settings, PlanWish(**wished), environment, plot=plot, certify=certify))
