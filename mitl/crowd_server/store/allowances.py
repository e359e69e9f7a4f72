"""What callers may still do, for all processes on one database: requests, tries of the operator's token, sessions."""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import Connection, Engine, case, delete, select, text
from sqlalchemy.dialects import postgresql, sqlite

from mitl.crowd_server.store.models import EndedSession, SignIn
from mitl.db.base import microseconds

FORGET_AFTER = dt.timedelta(hours=1)
MAX_CALLERS = 1000
MOST_SKEW = dt.timedelta(minutes=15)
"""By which the clocks of servers on one database may differ."""
_UPSERTS: dict[str, Any] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}
_FULL = (
    "least(CAST(:burst AS double precision), own.tokens"
    " + greatest(0, CAST(:now AS bigint) - own.at) * CAST(:per_us AS double precision))"
)
_DRAWN = f"floor(least(CAST(:wanted AS double precision), {_FULL}))"
_DRAW = text(
    "INSERT INTO allowance AS own (kind, caller, tokens, drawn, at)"
    " VALUES (:kind, :caller, CAST(:burst AS integer) - CAST(:wanted AS integer), :wanted, :now)"
    f" ON CONFLICT (kind, caller) DO UPDATE SET drawn = {_DRAWN}, tokens = {_FULL} - {_DRAWN},"
    " at = greatest(own.at, CAST(:now AS bigint)) RETURNING drawn, tokens"
)
_FORGET = text("DELETE FROM allowance WHERE kind = :kind AND at NOT BETWEEN :before AND :after")


class SharedAllowance:
    """Buckets of tokens of one kind in a PostgreSQL database, full at first."""

    def __init__(self, engine: Engine, kind: str, per_second: float, burst: int) -> None:
        # Each draw is one statement that commits by itself.
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._kind, self._per_second, self._burst = kind, per_second, burst
        self._forgot_at = dt.datetime.min.replace(tzinfo=dt.UTC)

    def draw(self, caller: str, wanted: int, now: dt.datetime) -> tuple[int, float]:
        """Take up to ``wanted`` tokens, at most the burst: how many there were, and what is left, as a fraction."""
        fills_in = dt.timedelta(seconds=self._burst / self._per_second)
        with self._engine.connect() as connection:
            # A full bucket is as good as none; one from a clock that ran ahead would not fill for as long.
            if abs(now - self._forgot_at) > fills_in:
                self._forgot_at = now
                span = {"before": microseconds(now - fills_in), "after": microseconds(now + MOST_SKEW)}
                connection.execute(_FORGET, {"kind": self._kind} | span)
            values = {"kind": self._kind, "caller": caller, "wanted": wanted, "now": microseconds(now)}
            rate = {"burst": self._burst, "per_us": self._per_second / 1e6}
            drawn, left = connection.execute(_DRAW, values | rate).one()
        return int(drawn), float(left)


def failed_sign_ins(connection: Connection, caller: str, now: dt.datetime) -> tuple[int, dt.datetime]:
    """How many wrong tokens a caller gave in a row, and when the last one."""
    query = select(SignIn.failed, SignIn.last_at).where(SignIn.caller == caller)
    row = connection.execute(query).one_or_none()
    return (0, now) if row is None else (row.failed, row.last_at)


def fail_sign_in(connection: Connection, caller: str, now: dt.datetime) -> None:
    """Count a wrong token; callers who failed longest ago are forgotten when there are too many."""
    again = case((SignIn.last_at > now - FORGET_AFTER, SignIn.failed + 1), else_=1)
    first = _UPSERTS[connection.dialect.name](SignIn).values(caller=caller, failed=1, last_at=now)
    connection.execute(
        first.on_conflict_do_update(index_elements=["caller"], set_={"failed": again, "last_at": now})
    )
    kept = select(SignIn.caller).order_by(SignIn.last_at.desc()).limit(MAX_CALLERS)
    connection.execute(delete(SignIn).where(SignIn.caller.not_in(kept)))


def forget_sign_ins(connection: Connection, caller: str) -> None:
    """Forget a caller's wrong tokens."""
    connection.execute(delete(SignIn).where(SignIn.caller == caller))


def end_session(connection: Connection, session: str, ends_at: dt.datetime, now: dt.datetime) -> None:
    """Let a session be good for nothing any more; sessions whose time is over are forgotten."""
    connection.execute(delete(EndedSession).where(EndedSession.ends_at <= now))
    ended = _UPSERTS[connection.dialect.name](EndedSession).values(session=session, ends_at=ends_at)
    connection.execute(ended.on_conflict_do_nothing())


def has_ended(connection: Connection, session: str) -> bool:
    """Whether a session was signed out."""
    query = select(EndedSession.session).where(EndedSession.session == session)
    return connection.scalar(query) is not None
