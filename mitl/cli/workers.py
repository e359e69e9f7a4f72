"""``mitl workers``."""

from __future__ import annotations

import click

from mitl.cli.app import App, common, environment_options
from mitl.records import Environment


@click.command("workers")
@environment_options
@common
def command(app: App, environment: Environment | None) -> None:
    """Show the workers: HITs, gold record, median time, hourly wage."""
    from mitl.stages.workers import workers

    app.finish(workers(app.settings, environment))
