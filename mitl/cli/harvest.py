"""``mitl harvest``."""

from __future__ import annotations

import click

from mitl.cli.app import App, common, endpoint_option, environment_options
from mitl.records import Environment


@click.command("harvest")
@environment_options
@click.option("--reparse", is_flag=True, help="Parse the stored raw answers again; fetch nothing.")
@endpoint_option
@common
def command(app: App, environment: Environment | None, reparse: bool) -> None:
    """Fetch answers, keep them raw, parse them, check the gold controls and approve what passes.

    What failed a control waits for a person: see `mitl review`. Nothing is ever rejected here.
    """
    from mitl.stages.harvest import harvest

    app.finish(harvest(app.settings, environment, reparse=reparse, progress=app.progress))
