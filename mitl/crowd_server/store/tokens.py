"""UniqueRequestTokens: what a repeated request made the first time, for 24 hours."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import Connection, bindparam, delete, insert, select

from mitl.crowd_server.models import RequestToken
from mitl.records import Environment

MEMORY = dt.timedelta(hours=24)

_FIND = select(RequestToken.id, RequestToken.result, RequestToken.used_at).where(
    RequestToken.environment == bindparam("environment"),
    RequestToken.kind == bindparam("kind"),
    RequestToken.token == bindparam("token"),
)
_ADD = insert(RequestToken)


def recall(
    connection: Connection, environment: Environment, kind: str, token: str, now: dt.datetime
) -> str | None:
    """What the earlier request with this token made; None after 24 hours or for a new token."""
    row = connection.execute(_FIND, {"environment": environment, "kind": kind, "token": token}).one_or_none()
    if row is None:
        return None
    own_id, result, used_at = row
    if used_at + MEMORY > now:
        return result
    connection.execute(delete(RequestToken).where(RequestToken.id == own_id))
    return None


def remember(
    connection: Connection, environment: Environment, kind: str, token: str, result: str, now: dt.datetime
) -> None:
    """Keep what a request with this token made."""
    connection.execute(
        _ADD,
        {"environment": environment, "kind": kind, "token": token, "result": result, "used_at": now},
    )
