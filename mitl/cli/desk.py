"""``mitl desk``."""

from __future__ import annotations

import click

from mitl.cli.app import EXIT_INTERRUPTED, App, common, endpoint_option, environment_options
from mitl.records import Environment


@click.command("desk")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of this machine's loopback.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8766, show_default=True, help="Port; 0 takes a free one."
)
@click.option(
    "--browser/--no-browser",
    default=True,
    show_default=True,
    help="Open the desk in this machine's browser, where it has one.",
)
@environment_options
@endpoint_option
@common
def command(app: App, host: str, port: int, browser: bool, environment: Environment | None) -> None:
    """Review workers and their work in the browser, on this machine only.

    Prints a link that opens the desk. What is decided there goes the way of `mitl review`: it is kept first, then
    the crowd server is told.
    """
    from mitl.desk.app import desk

    if app.json:
        app.tell_how_to_stop()
    try:
        desk(
            app.settings,
            environment,
            host=host,
            port=port,
            browser=browser and not app.quiet,
            announce=app.finish,
        )
    except KeyboardInterrupt:
        # Not a failure: with --json, the object was printed when the desk began.
        click.echo("stopped; start it again with `mitl desk`", err=True)
        click.get_current_context().exit(EXIT_INTERRUPTED)
