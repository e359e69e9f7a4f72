"""Running the two lines of migrations, ``pipeline`` and ``crowd``, with a programmatic Alembic Config.

However many revisions lie between, an upgrade is one transaction on both engines: it is done, or the database is as it
was. An SQLite file is copied before, within that same transaction, so that the copy is what the upgrade began with.
"""

from __future__ import annotations

import filecmp
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from sqlalchemy import Connection, Engine, MetaData, inspect
from sqlalchemy.exc import DBAPIError

from mitl import resources
from mitl.core.whole_files import NO_HARD_LINKS, part_name, remove_dead_parts, sync_folder
from mitl.db.engine import file_of, make_engine
from mitl.db.explain import busy, is_busy, name_of, reason, remedy
from mitl.db.locks import WRITING, advisory_key
from mitl.errors import StoreError

if TYPE_CHECKING:
    from alembic.config import Config  # Alembic takes time to load, and only what migrates needs it

Line = Literal["pipeline", "crowd"]
VERSION_TABLE = "alembic_version"


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What an upgrade did."""

    before: str | None
    """The revision that it found; None for an empty database."""
    after: str
    copy: Path | None = None
    """The SQLite file as it was before."""
    finished: int = 0
    """Rows that were written to complete it."""


def config(line: Line, connection: Connection | None = None) -> Config:
    """Alembic's configuration of one line of migrations, to be run in the transaction of ``connection``."""
    from alembic.config import Config

    cfg = Config()
    cfg.set_main_option("script_location", str(resources.folder("migrations") / line))
    cfg.attributes["connection"] = connection
    return cfg


def head(line: Line) -> str:
    """The newest revision that this version of mitl knows."""
    return revisions(line)[-1]


@cache
def revisions(line: Line) -> tuple[str, ...]:
    """All revisions that this version of mitl knows, oldest first: what the names of their files begin with."""
    files = (resources.folder("migrations") / line / "versions").glob("*.py")
    return tuple(sorted(file.name.partition("_")[0] for file in files))


def current(engine: Engine) -> str | None:
    """The revision of the database; None for an empty one."""
    with engine.execution_options(mitl_write=False).connect() as connection:
        return revision_of(connection)


def revision_of(connection: Connection) -> str | None:
    """The revision that this transaction sees; None where no migration has run."""
    if not connection.dialect.has_table(connection, VERSION_TABLE):
        return None
    revision = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalar_one_or_none()
    return cast("str | None", revision)


def upgrade(line: Line, engine: Engine, finish: Callable[[Connection], int] | None = None) -> Upgrade:
    """Bring the database to the newest revision; nothing is migrated where it is there already.

    Args:
        finish: completes what the newest revision needs, in the same transaction; returns how many rows it wrote.

    Raises:
        StoreError: it cannot be read, is of a newer mitl or not ours, or the upgrade failed and the database is as
            it was.
    """
    newest, what = head(line), name_of(engine.url)
    before: str | None = None
    is_known = False
    try:
        with changing(engine) as connection:
            before = revision_of(connection)
            is_known = True
            if before == newest:
                return Upgrade(before, newest, finished=finish(connection) if finish is not None else 0)
            require_known(line, connection, what)
            if before is not None:
                # Shows before anything is copied whether this user may write here.
                connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = version_num")
            file = file_of(engine.url.database) if engine.dialect.name == "sqlite" else None
            copy = keep_copy(file, before) if file is not None and before is not None else None
            run_to(line, connection, newest)
            finished = finish(connection) if finish is not None else 0
            require_whole(connection, what)
    except DBAPIError as error:
        if is_busy(error):
            raise StoreError(busy(what)) from error
        if not is_known:
            raise StoreError(f"cannot read {what}: {reason(error, engine.url)}; {remedy(error)}") from error
        raise StoreError(
            f"cannot bring {what} from {before or 'empty'} to {newest}: {reason(error, engine.url)}; it is as it was "
            f"before: {remedy(error)}"
        ) from error
    return Upgrade(before, newest, copy, finished)


def run_to(line: Line, connection: Connection, revision: str) -> None:
    """Take the migrations up to a revision within the transaction of ``connection``."""
    from alembic import command

    command.upgrade(config(line, connection), revision)


@cache
def made_by(line: Line, revision: str) -> dict[str, frozenset[str]]:
    """The tables that mitl makes up to a revision, with their columns; what else is there somebody put beside them."""
    engine = make_engine("sqlite://")
    try:
        with changing(engine) as connection:
            run_to(line, connection, revision)
            metadata = MetaData()
            metadata.reflect(connection)
            return {table.name: frozenset(table.columns.keys()) for table in metadata.sorted_tables}
    finally:
        engine.dispose()


@contextmanager
def changing(engine: Engine) -> Iterator[Connection]:
    """One transaction for changes of tables, which nobody else's comes between; rolled back on any error.

    SQLite cannot change most of a table in place: it is copied and the old one dropped, which with foreign keys on
    is refused where rows point there. So they are off here, and ``require_whole`` looks at the end.
    """
    with engine.connect() as connection:
        # A connection of its own, so that the pool never hands out one without foreign keys.
        connection.detach()
        if engine.dialect.name == "sqlite":
            _driver(connection).execute("PRAGMA foreign_keys=OFF")
        with connection.begin():
            if engine.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({advisory_key(WRITING)})")
            yield connection


def require_whole(connection: Connection, what: str) -> None:
    """StoreError where a row of an SQLite database points to one that is not there; PostgreSQL always looks itself."""
    if connection.dialect.name != "sqlite":
        return
    lost = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if lost is not None:
        raise StoreError(
            f"{what}: row {lost[1]} of {lost[0]} points to a row of {lost[2]} that is not there; nothing was changed"
        )


def run_environment(context: Any, metadata: MetaData) -> None:
    """What both lines' ``env.py`` do: run in the transaction handed in, or in one of their own.

    Raises:
        SystemExit: `alembic` was called by hand without a URL.
    """
    connection: Connection | None = context.config.attributes.get("connection")
    if connection is not None:
        _run(context, connection, metadata)
        return
    given = context.get_x_argument(as_dictionary=True)
    url = context.config.get_main_option("sqlalchemy.url") or given.get("url")
    if not url:
        raise SystemExit("name the database: alembic -x url=sqlite:///mitl.db ...")
    engine = make_engine(url)
    with changing(engine) as held:
        _run(context, held, metadata)
        require_whole(held, name_of(engine.url))


def _run(context: Any, connection: Connection, metadata: MetaData) -> None:
    context.configure(
        connection=connection, target_metadata=metadata, render_as_batch=connection.dialect.name == "sqlite"
    )
    with context.begin_transaction():
        context.run_migrations()


def require_upgradable(line: Line, engine: Engine, what: str) -> None:
    """StoreError where the database is none of ours or was written by a newer mitl."""
    with engine.execution_options(mitl_write=False).connect() as connection:
        require_known(line, connection, what)


def require_known(line: Line, connection: Connection, what: str) -> None:
    """The same, as the transaction of ``connection`` sees it."""
    # Tables first: another process may be making them now, and then their revision appears with them.
    tables, found = table_names(connection), revision_of(connection)
    if found is None:
        if tables:
            raise StoreError(f"{what} holds tables that mitl did not make; use an empty database")
        return
    known = revisions(line)
    if found in known:
        return
    other: Line = "crowd" if line == "pipeline" else "pipeline"
    if found in revisions(other):
        raise StoreError(
            f"{what} is at revision {found!r}, so it is a {other} database, but a {line} database is wanted; check "
            "--db and --crowd-db"
        )
    raise StoreError(
        f"{what} is at revision {found!r}, which this version of mitl does not know (its newest is "
        f"{known[-1]!r}); it was written by a newer mitl: upgrade mitl, or use another database"
    )


def table_names(connection: Connection) -> set[str]:
    """The database's tables, without the one that holds its revision; a killed upgrade may have left that alone."""
    return set(inspect(connection).get_table_names()) - {VERSION_TABLE}


def require_current(line: Line, engine: Engine, what: str) -> None:
    """StoreError unless the database is at the newest revision of its line."""
    revision = current(engine)
    newest = head(line)
    if revision == newest:
        return
    require_upgradable(line, engine, what)
    if revision is None:
        raise StoreError(f"{what} is empty; run `mitl init` first")
    raise StoreError(
        f"{what} is at revision {revision!r}, but this mitl needs {newest!r}; run `mitl db upgrade`"
    )


def _driver(connection: Connection) -> sqlite3.Connection:
    # By the name of the interface: a detached connection has no driver_connection.
    return cast(sqlite3.Connection, connection.connection.dbapi_connection)


def keep_copy(file: Path, revision: str) -> Path:
    """Copy a database at one moment, through SQLite, so that what its journal holds is in it; others may go on.

    Returns:
        The copy, beside the file and named by the revision, its owner's alone. An earlier copy is never written over.

    Raises:
        StoreError: there is no room for it, or the folder cannot be written.
    """
    remove_dead_parts(file.parent)
    part = part_name(file)
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(part)) as target:
            source.backup(target)
            # The copy is one file from here on, not one with a journal beside it.
            target.execute("PRAGMA journal_mode=DELETE")
        kept = _kept_as(part, file, revision)
        sync_folder(file.parent)
    except (sqlite3.Error, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise StoreError(
            f"cannot keep a copy of {file.name} in {file.parent}: {reason.lower()}; it is as it was: make room or "
            "give write access there, and run the command again"
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return kept


def _kept_as(part: Path, file: Path, revision: str) -> Path:
    number = 1
    while True:
        suffix = "" if number == 1 else f".{number}"
        kept = file.with_name(f"{file.name}.{revision}{suffix}.backup")
        try:
            kept.hardlink_to(part)
        except FileExistsError:
            if filecmp.cmp(kept, part, shallow=False):  # of an upgrade that was killed
                return kept
            number += 1
            continue
        except OSError as error:
            if error.errno not in NO_HARD_LINKS:
                raise
            part.rename(kept)  # nothing has the name, and nobody else upgrades meanwhile
        return kept
