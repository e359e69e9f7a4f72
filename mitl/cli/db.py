"""``mitl db``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from mitl.cli import CommandGroup
from mitl.cli.app import PLACE, App, common

Line = Literal["pipeline", "crowd"]


_only = click.option(
    "--only",
    type=click.Choice(("pipeline", "crowd")),
    help="One of the two databases: the pipeline's (--db) or the crowd server's (--crowd-db) [default: both].",
)


@click.group("db", cls=CommandGroup)
def command() -> None:
    """Migrate the databases, back them up, check them."""


@command.command("upgrade")
@common
def upgrade(app: App) -> None:
    """Upgrade both databases of the project to the newest revision.

    An upgrade either completes or leaves the database as it was. An SQLite file is copied before, to
    mitl.db.REVISION.backup beside it; PostgreSQL is for `mitl db backup`.
    """
    from mitl.stages.operating.databases import upgrade as stage

    app.finish(stage(app.settings))


@command.command("current")
@common
def current(app: App) -> None:
    """Show the revision of both databases and the newest that this mitl knows."""
    from mitl.stages.operating.databases import current as stage

    app.finish(stage(app.settings))


@command.command("backup")
@click.argument("target", type=PLACE)
@_only
@common
def backup(app: App, target: Path, only: Line | None) -> None:
    """Write all tables of both databases to TARGET: a new folder, or one file if the name ends in .tar.

    Others may keep working: each database is written as of one moment. The dump holds a Parquet file for each table
    and is the same from SQLite and from PostgreSQL. Beside the pipeline's tables lie the weights of trained/.
    mitl.toml, project.key, credentials.toml, runs/, public/, hit_templates/ and the images are not in it.
    """
    from mitl.stages.operating.backup import backup as stage

    app.finish(stage(app.settings, target, only=only, progress=app.progress))


@command.command("restore")
@click.argument("source", type=PLACE)
@_only
@click.option(
    "--replace",
    is_flag=True,
    help="Put the dump in place of what the databases hold; an SQLite file is copied before.",
)
@common
def restore(app: App, source: Path, only: Line | None, replace: bool) -> None:
    """Fill empty databases from the dump SOURCE, on whichever engine they are; or replace what is there.

    A dump of an older revision is brought to the newest. Whatever fails, the databases are as they were.
    """
    from mitl.stages.operating.restore import restore as stage

    app.finish(stage(app.settings, source, only=only, replace=replace, progress=app.progress))


@command.command("verify")
@click.argument("source", type=PLACE, required=False)
@common
def verify(app: App, source: Path | None) -> int:
    """Check both databases, or the dump SOURCE: files, references between rows, money, states. Changes nothing.

    A dump's files are compared with their hashes, and it is restored into a temporary SQLite file to be looked at.
    """
    from mitl.stages.operating.backup import verify, verify_dump

    if source is None:
        return app.conclude(verify(app.settings))
    return app.conclude(verify_dump(source, progress=app.progress))
