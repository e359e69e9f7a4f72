"""``mitl workers``."""

from __future__ import annotations

from pathlib import Path

import click

from mitl.cli.app import App, common, environment_options
from mitl.records import Environment


@click.command("workers")
@click.option(
    "--by-hits",
    is_flag=True,
    help="Table B.1 of the paper: workers by how many HITs they did, and the share approved.",
)
@click.option(
    "--csv",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the rows there too.",
)
@environment_options
@common
def command(app: App, environment: Environment | None, by_hits: bool, csv: Path | None) -> None:
    """Show the workers: HITs, gold record, pay, and how they go about it.

    The pass rate is the mean of its posterior with a 90 % interval. Speed, runs of one answer, variety and agreement
    are evidence for a person; nothing is decided by them.
    """
    from mitl.stages.reviewing.workers import workers
    from mitl.stages.reviewing.workers_by_hits import workers_by_hits

    stage = workers_by_hits if by_hits else workers
    app.finish(stage(app.settings, environment, csv=csv))
