"""What a database's driver says, as one line for people: no traceback, no value of a row, no password."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeGuard

from sqlalchemy.engine import URL, Dialect
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, NotSupportedError, ProgrammingError

from mitl.db import engine as engines
from mitl.errors import OutageError

_BUSY = ("database is locked", "database table is locked", "lock timeout", "deadlock detected")

_REMEDIES = (
    (("for language",), "let its administrator GRANT USAGE ON LANGUAGE plpgsql to this user"),
    (
        ("readonly database", "read-only", "permission denied", "must be owner"),
        "give this user write access to it",
    ),
    (("is full", "no space left", "too large", "disk i/o error"), "make room on its disk"),
    (
        ("unable to open", "cannot make the database"),
        "check that its folder exists and that this user may write there",
    ),
    (("malformed", "not a database"), "restore a backup with `mitl db restore`"),
    (
        ("too many clients", "connection slots", "too many connections"),
        "end what holds its connections, or raise its max_connections,",
    ),
    (
        (
            "administrator command",
            "server closed the connection",
            "connection is closed",
            "connection is lost",
            "shutting down",
            "starting up",
            "not yet accepting",
            "recovery mode",
        ),
        "its server was stopped or restarted: wait until it runs",
    ),
    (("password authentication", "role ", "no password"), "check the user and the password in the URL"),
    (("no schema has been",), "name an existing schema in the search_path of the URL, or create it"),
    (("sslmode", "configuration parameter", "command-line"), "check what stands after the ? in the URL"),
    (
        (
            "connection refused",
            "could not translate",
            "failed to resolve",
            "timeout expired",
            "no route",
            "is the server running",
        ),
        "check the host and the port in the URL, see that the server runs",
    ),
    (("does not exist",), "check the name in the URL, or create the database"),
)
_LEAST = "mend that"
_NO_RIGHT = ("permission denied", "must be owner")
"""What PostgreSQL files under errors of the program is for the operator to mend."""
_GUESSES = re.compile(r"\n(?:\t|DETAIL:).*")
"""What PostgreSQL's library adds to its words: what may have happened, and whether the server is running."""


def name_of(url: URL) -> str:
    """The database's name for messages, without passwords, of which the key of a certificate may have one too."""
    if url.get_backend_name() == "sqlite":
        return Path(url.database or ":memory:").name or str(url.database)
    plain = url.set(drivername="postgresql").difference_update_query(["password", "sslpassword"])
    return plain.render_as_string(hide_password=True)


def is_outage(error: Exception) -> TypeGuard[DBAPIError]:
    """Whether the database failed, and not what was asked of it: down, busy, full, damaged, or closed to this user."""
    if not isinstance(error, DBAPIError):
        return False
    ours = (DataError, IntegrityError, NotSupportedError, ProgrammingError)
    return not isinstance(error, ours) or any(words in str(error.orig) for words in _NO_RIGHT)


def as_of_sqlalchemy(error: Exception, dialect: Dialect, sql: str | None = None) -> BaseException:
    """What the driver raised where it was asked itself, as SQLAlchemy raises it."""
    return DBAPIError.instance(
        sql, None, error, dialect.loaded_dbapi.Error, hide_parameters=True, dialect=dialect
    )


@contextmanager
def explained(url: URL) -> Iterator[None]:
    """A block that uses this database and no other; OutageError in one line where that fails."""
    try:
        yield
    except DBAPIError as error:
        if not is_outage(error):
            raise
        raise OutageError(cannot_use(error, url)) from error


def is_busy(error: DBAPIError) -> bool:
    """Whether somebody else's work was waited for in vain."""
    return any(words in str(error.orig) for words in _BUSY)


def busy(name: str) -> str:
    """The line for that."""
    return (
        f"{name} stayed busy for {engines.BUSY_TIMEOUT_S:.0f} s, because another command is writing to it; "
        "run the command again when that one is done"
    )


def cannot_use(error: DBAPIError, url: URL) -> str:
    """The line for whatever else is wrong with a database."""
    if is_busy(error):
        return busy(name_of(url))
    return f"cannot use {name_of(url)}: {reason(error, url)}; {remedy(error)}"


def reason(error: DBAPIError, url: URL) -> str:
    """The driver's own words: PostgreSQL's message without its DETAIL, which quotes rows."""
    original: Any = error.orig
    diagnosis = getattr(original, "diag", None)
    primary = getattr(diagnosis, "message_primary", None)
    text = " ".join(_GUESSES.sub("", str(primary or original)).split())
    password = url.password or url.query.get("password")
    for secret in [password] if isinstance(password, str) else password or ():
        # One or two letters are within the driver's own words, which would be no words any more.
        edge = r"\b" if len(secret) < 3 else ""
        text = re.sub(f"{edge}{re.escape(secret)}{edge}", "***", text)
    return text


def remedy(error: DBAPIError) -> str:
    """What to do about it, with `run the command again` at its end."""
    text = str(error.orig).lower()
    found = next((what for words, what in _REMEDIES if any(word in text for word in words)), _LEAST)
    return f"{found} and run the command again"
