"""Locks between processes that work on one database; a process that dies gives its locks back."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from mitl.db.engine import file_of, make_engine, parse_url
from mitl.errors import StoreError

WRITING, PUBLISH, PAY, ROUND = "writing", "publish", "pay", "round"

_SPACE = 0x6D69746C
"""Keeps our advisory locks apart from those of other programs in the same database."""
_NUMBERS = {WRITING: 1, PUBLISH: 2, PAY: 3, ROUND: 4}


def advisory_key(name: str) -> str:
    """The two numbers of a PostgreSQL advisory lock, as SQL."""
    return f"{_SPACE}, {_NUMBERS[name]}"


@contextmanager
def only_one(url: str, name: str) -> Iterator[None]:
    """Hold the command's lock on this database for the block.

    SQLite: a lock on a file beside the database, where there is one. PostgreSQL: an advisory lock of a connection of
    its own.

    Raises:
        StoreError: another process holds it.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() == "postgresql":
        with _advisory(url, name):
            yield
    elif (file := file_of(parsed.database)) is not None and file.exists():
        with _file(Path(f"{file}.{name}.lock"), name):
            yield
    else:
        yield


@contextmanager
def _advisory(url: str, name: str) -> Iterator[None]:
    engine = make_engine(url)
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            if not connection.scalar(text(f"SELECT pg_try_advisory_lock({advisory_key(name)})")):
                raise _taken(name)
            try:
                yield
            finally:
                # To disconnect frees it too, but only when the server has noticed: the next command may be faster.
                with suppress(SQLAlchemyError):
                    connection.execute(text(f"SELECT pg_advisory_unlock({advisory_key(name)})"))
    finally:
        engine.dispose()


@contextmanager
def _file(path: Path, name: str) -> Iterator[None]:
    # The file stays: removing it would let a third process lock a new file while a second one holds the old.
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _taken(name) from error
        yield


def _taken(name: str) -> StoreError:
    return StoreError(
        f"another `mitl {name}` is at work on this project; wait until it is done, then run the command again"
    )
