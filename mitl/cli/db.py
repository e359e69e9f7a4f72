"""``mitl db``."""

from __future__ import annotations

import click

from mitl.cli.app import App, common


@click.group("db")
def command() -> None:
    """Migrate the databases."""


@command.command("upgrade")
@common
def upgrade(app: App) -> None:
    """Bring both databases of the project to the newest revision."""
    from mitl.stages.setup.database import upgrade as stage

    app.finish(stage(app.settings))


@command.command("current")
@common
def current(app: App) -> None:
    """Show the revision of both databases and the newest that this mitl knows."""
    from mitl.stages.setup.database import current as stage

    app.finish(stage(app.settings))
