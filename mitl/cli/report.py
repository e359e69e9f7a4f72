"""``mitl report``."""

from __future__ import annotations

from pathlib import Path

import click

from mitl.cli.app import App, common, environment_options
from mitl.records import Environment


@click.command("report")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The HTML file [default: PROJECT/report.html; PROJECT/report-live.html or report-sandbox.html for an "
    "environment that the project posted to later than to the other].",
)
@environment_options
@common
def command(app: App, out: Path | None, environment: Environment | None) -> None:
    """Write one self-contained HTML file: funnel, machines, people, scores, examples, disagreements, how to rebuild."""
    from mitl.stages.reporting.report import report

    app.finish(report(app.settings, out, environment))
