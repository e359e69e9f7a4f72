"""``mitl status``: one screen, once or again and again; it loads as little as it can."""

from __future__ import annotations

import datetime as dt
import sys

import click

from mitl.cli import Command
from mitl.cli.app import SECONDS, App, common, environment_options
from mitl.cli.tables import printable
from mitl.errors import UsageError
from mitl.interrupts import how_to_stop
from mitl.records import Environment


@click.command("status", cls=Command)
@environment_options
@click.option(
    "--watch",
    is_flag=True,
    help="Refresh until Ctrl-C: redraw the screen on a terminal, else print a line per change; with --json "
    "one object per change.",
)
@click.option(
    "--every",
    type=SECONDS,
    metavar="SECONDS",
    help="--watch: time between refreshes [default: 5].",
)
@common
def status(app: App, environment: Environment | None, watch: bool, every: float | None) -> None:
    """Show pairs, HITs, answers, gold pass rate, money and the next step on one screen."""
    if every is not None and not watch:
        raise UsageError("--every says how often --watch looks; add --watch")
    if watch:
        _watch(app, environment, every)
        return
    from mitl.stages.reporting.status import status

    app.finish(status(app.settings, environment))


def _watch(app: App, environment: Environment | None, every: float | None) -> None:
    from mitl.stages.reporting.status import EVERY_S, line, watch

    every_s = EVERY_S if every is None else every
    app.tell_how_to_stop()
    told = ""
    with app.until_stopped():
        for seen in watch(app.settings, environment, every_s=every_s):
            if app.json:
                app.finish(seen)
            elif sys.stdout.isatty():
                click.clear()
                app.finish(seen)
                click.echo(f"seen at {dt.datetime.now(dt.UTC):%H:%M:%S} UTC; {how_to_stop()}")
            elif not app.quiet and line(seen) != told:
                told = line(seen)
                click.echo(printable(f"{dt.datetime.now(dt.UTC):%H:%M:%S} UTC  {told}"))
            sys.stdout.flush()
