"""Running the two lines of migrations, ``pipeline`` and ``crowd``, with a programmatic Alembic Config."""

from __future__ import annotations

from typing import Literal

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect

from mitl import resources
from mitl.errors import StoreError

Line = Literal["pipeline", "crowd"]


def config(line: Line, engine: Engine | None = None) -> Config:
    """Alembic's configuration of one line of migrations, bound to ``engine`` where one is given."""
    cfg = Config()
    cfg.set_main_option("script_location", str(resources.folder("migrations") / line))
    if engine is not None:
        cfg.attributes["engine"] = engine
    return cfg


def head(line: Line) -> str:
    """The newest revision that this version of mitl knows."""
    revision = ScriptDirectory.from_config(config(line)).get_current_head()
    assert revision is not None, f"no migrations in line {line}"
    return revision


def current(engine: Engine) -> str | None:
    """The revision of the database; None for an empty one."""
    with engine.execution_options(mitl_write=False).connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def upgrade(line: Line, engine: Engine) -> None:
    """Bring the database to the newest revision; nothing happens where it is there already."""
    command.upgrade(config(line, engine), "head")


def require_upgradable(line: Line, engine: Engine, what: str) -> None:
    """StoreError where the database is none of ours or was written by a newer mitl."""
    # Tables first: another process may be making them now, and then their revision appears with them.
    with engine.execution_options(mitl_write=False).connect() as connection:
        tables = set(inspect(connection).get_table_names())
    found = current(engine)
    if found is None:
        # The table of revisions may be there alone, left by an upgrade that was killed.
        if tables - {"alembic_version"}:
            raise StoreError(f"{what} holds tables that mitl did not make; use an empty database")
        return
    known = {script.revision for script in ScriptDirectory.from_config(config(line)).walk_revisions()}
    if found not in known:
        raise StoreError(
            f"{what} is at revision {found!r}, which this version of mitl does not know (its newest is "
            f"{head(line)!r}); it was written by a newer mitl: upgrade mitl, or use another database"
        )


def require_current(line: Line, engine: Engine, what: str) -> None:
    """StoreError unless the database is at the newest revision of its line."""
    found = current(engine)
    newest = head(line)
    if found == newest:
        return
    require_upgradable(line, engine, what)
    if found is None:
        raise StoreError(f"{what} is empty; run `mitl init` first")
    raise StoreError(
        f"{what} is at revision {found!r}, but this mitl needs {newest!r}; run `mitl db upgrade`"
    )
