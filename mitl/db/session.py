"""Sessions on the pipeline's database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from mitl.db import migrate
from mitl.db.engine import make_engine
from mitl.errors import StoreError


def describe(url: str) -> str:
    """The database's name for messages, without its password."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return Path(parsed.database or ":memory:").name
    return parsed.render_as_string(hide_password=True)


@contextmanager
def open_database(url: str, *, create: bool = False, read_only: bool = False) -> Iterator[Session]:
    """A session on the pipeline's database at ``url``; uncommitted work is rolled back at the end.

    Args:
        read_only: never wait for writers; nothing may be written.
        create: bring an empty or older database to the newest revision instead of refusing it.

    Raises:
        StoreError: there is no database, it is of another version, or it cannot be reached.
    """
    parsed = make_url(url)
    if not create and parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").exists():
        raise StoreError(
            f"there is no database at {parsed.database}; run `mitl init` first, or name --project"
        )
    engine = make_engine(url)
    try:
        _check(engine, url, create=create)
        bound = engine.execution_options(mitl_write=not read_only)
        with Session(bound, expire_on_commit=False) as session:
            yield session
    finally:
        engine.dispose()


def _check(engine: Engine, url: str, *, create: bool) -> None:
    try:
        if create:
            found = migrate.current(engine)
            if found is None:
                migrate.upgrade("pipeline", engine)
        migrate.require_current("pipeline", engine, describe(url))
    except OperationalError as error:
        raise StoreError(f"cannot open {describe(url)}: {str(error.orig).splitlines()[0]}") from error
