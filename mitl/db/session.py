"""Sessions on the pipeline's database.

One transaction writes at a time, on both engines: SQLite gives that by BEGIN IMMEDIATE, on PostgreSQL every writing
transaction first takes an advisory lock of its database. So a transaction may look and then insert without another
process coming between; the next one waits for its turn. Readers wait for nobody and see one state throughout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, event
from sqlalchemy.exc import IntegrityError

from mitl.db import migrate
from mitl.db.engine import open_engine, parse_url
from mitl.db.explain import explained, name_of, reason
from mitl.db.locks import WRITING, advisory_key
from mitl.errors import StoreError

if TYPE_CHECKING:
    from sqlalchemy.orm import Session  # a third of what `mitl status` may take

_opened_to_write: Counter[str] = Counter()


def times_opened_to_write(url: str) -> int:
    """How often this process opened the database at ``url`` to write to it."""
    return _opened_to_write[url]


def describe(url: str) -> str:
    """The database's name for messages, without its password."""
    return name_of(parse_url(url))


@contextmanager
def open_database(url: str, *, create: bool = False, read_only: bool = False) -> Iterator[Session]:
    """A session on the pipeline's database at ``url``; uncommitted work is rolled back at the end.

    Args, Raises: as `connectable`.
    """
    from sqlalchemy.orm import Session

    with (
        connectable(url, create=create, read_only=read_only) as engine,
        Session(engine, expire_on_commit=False, close_resets_only=False) as session,
    ):
        yield session


@contextmanager
def connectable(url: str, *, create: bool = False, read_only: bool = False) -> Iterator[Engine]:
    """The pipeline's database at ``url``, at the newest revision.

    Args:
        read_only: never wait for writers; nothing may be written, and this user need not be able to.
        create: make the tables of an empty database instead of refusing it.

    Raises:
        StoreError: there is no database, it is of another version, it cannot be reached, or it stayed busy; also
            where that happens within the block.
    """
    parsed = parse_url(url)
    if not create and parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").exists():
        raise StoreError(
            f"there is no database at {parsed.database}; run `mitl init` first, or name --project"
        )
    with open_engine(url, read_only=read_only) as engine, explained(parsed):
        if engine.dialect.name == "postgresql":
            event.listen(engine, "begin", _take_turn)
        try:
            _check(engine, url, create=create)
            if not read_only:
                _opened_to_write[url] += 1
            yield engine.execution_options(**_reading(engine)) if read_only else engine
        except IntegrityError as error:
            raise _refusal(error, url) from error


@contextmanager
def reading(session: Session) -> Iterator[None]:
    """A block of a writing session in which it only reads: it sees one state, and writers need not wait for it."""
    session.rollback()
    session.connection(execution_options=_reading(session.get_bind()))
    try:
        yield
    finally:
        session.rollback()


def _reading(bind: Any) -> dict[str, Any]:
    if bind.dialect.name == "postgresql":
        return {"mitl_write": False, "isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    return {"mitl_write": False}


def _take_turn(connection: Any) -> None:
    if connection.get_execution_options().get("mitl_write", True):
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({advisory_key(WRITING)})")


def _check(engine: Engine, url: str, *, create: bool) -> None:
    if create and migrate.current(engine) is None:
        migrate.require_upgradable("pipeline", engine, describe(url))
        migrate.upgrade("pipeline", engine)
    migrate.require_current("pipeline", engine, describe(url))


def _refusal(error: IntegrityError, url: str) -> StoreError:
    said = reason(error, parse_url(url))
    if "unique" in said.lower():
        return StoreError(
            f"{describe(url)} was changed by another command meanwhile ({said}); run the command again"
        )
    return StoreError(f"{describe(url)} refused a row ({said}); this is a defect of mitl, please report it")
