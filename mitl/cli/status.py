"""``mitl status``."""

from __future__ import annotations

import click

from mitl.cli.app import App, common, environment_options
from mitl.records import Environment


@click.command("status")
@environment_options
@common
def command(app: App, environment: Environment | None) -> None:
    """One screen: pairs, HITs, answers, gold pass rate, money, and what to do next."""
    from mitl.stages.reporting.status import status

    app.finish(status(app.settings, environment))
