"""``mitl serve``."""

from __future__ import annotations

from pathlib import Path

import click

from mitl.cli.app import EXIT_INTERRUPTED, App, common


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="Port; 0 takes a free one."
)
@click.option(
    "--public",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of pictures to serve under /i/; may be repeated [default: PROJECT/public].",
)
@common
def command(app: App, host: str, port: int, public: tuple[Path, ...]) -> None:
    """Run the crowd server for people: requester API under /, worker pages under /w, operator page.

    Needs only the crowd database, no pipeline database. Invite people with `mitl crowd invite`. Put it behind
    TLS before opening it to a network.
    """
    from mitl.stages.serve import serve

    try:
        serve(app.settings, host=host, port=port, public=public, announce=app.finish)
    except KeyboardInterrupt:
        # Not a failure: with --json, the object was printed when the server began.
        click.echo("stopped; start it again with `mitl serve`", err=True)
        click.get_current_context().exit(EXIT_INTERRUPTED)
