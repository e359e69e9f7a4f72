"""The journal of calls that cost or bind, and the ledger of what they cost."""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, bindparam, delete, exists, func, literal, select, text, update
from sqlalchemy.orm import Session

from mitl.db.base import columns
from mitl.db.models import Assignment, Batch, Journal, Ledger
from mitl.db.store.statements import Wide, add_rows, change_among, query_submissions, rows_among
from mitl.records import Environment, JournalState


@dataclass(frozen=True, slots=True)
class JournalRow:
    """One call's row."""

    kind: str
    key: str
    state: JournalState
    token: str | None
    request: str
    reply: str | None
    error: str | None
    at: dt.datetime
    first_sent_at: dt.datetime | None
    """The server remembers the token for 24 hours from then."""


_ROW = columns(JournalRow, Journal)


def find(session: Session, kind: str, key: str) -> JournalRow | None:
    """The row of one call."""
    row = session.execute(select(*_ROW).where(Journal.kind == kind, Journal.key == key)).first()
    return None if row is None else JournalRow(*row)


def starting_with(session: Session, kind: str, prefix: str) -> list[JournalRow]:
    """The rows of the calls whose key starts so, oldest first."""
    # Not by LIKE, for which SQLite takes W1 and w1 as one.
    query = select(*_ROW).where(Journal.kind == kind, func.substr(Journal.key, 1, len(prefix)) == prefix)
    return [JournalRow(*row) for row in session.execute(query.order_by(Journal.id))]


def open_calls(session: Session, kind: str) -> list[JournalRow]:
    """The calls of a kind that are not done, or of which nobody knows whether they are, as they were planned."""
    query = select(*_ROW).where(Journal.kind == kind, Journal.state != JournalState.DONE)
    return [JournalRow(*row) for row in session.execute(query.order_by(Journal.id))]


WORDING = "template_sha256"
"""Of a call that posts a HIT: the hash of its wording, null where a HIT was found on the server."""


def wordings(session: Session) -> dict[str, list[str]]:
    """Batch → the hashes of the wordings that its HITs were posted with; none of a version that did not note them."""
    posted = select(Journal.key, Journal.request).where(
        Journal.kind == "create", Journal.state == JournalState.DONE
    )
    found: dict[str, set[str]] = defaultdict(set)
    for key, request in session.execute(posted):
        found[key.rsplit(":", 2)[0]].add(json.loads(request).get(WORDING) or "")
    return {batch: sorted(hashes - {""}) for batch, hashes in found.items()}


def plan(session: Session, kind: str, calls: Sequence[tuple[str, str | None, str]], now: dt.datetime) -> int:
    """Write the intent of calls (key, token, request JSON) that are new to the journal; returns how many."""
    planned = _keys(session, kind, [key for key, _, _ in calls])
    new = [call for call in calls if call[0] not in planned]
    return _add(session, kind, new, state=JournalState.PLANNED, at=now, first_sent_at=None)


def amend(session: Session, kind: str, key: str, request: str, *, unclear: bool = False) -> None:
    """Ask otherwise for a call that the server refused or that was not made yet, before it is made.

    Args:
        unclear: also for one that is not done and may have had its effect, where the new one takes its place.
    """
    made = {JournalState.DONE} if unclear else {JournalState.DONE, JournalState.SENDING}
    session.execute(
        update(Journal)
        .where(Journal.kind == kind, Journal.key == key, Journal.state.not_in(made))
        .values(request=request)
    )


def announce(
    session: Session, kind: str, calls: Sequence[tuple[str, str | None, str]], now: dt.datetime
) -> set[str]:
    """Write that calls (key, token, request JSON) are about to be made; returns those that are done, and stay so."""
    query = select(Journal.key, Journal.state).where(Journal.kind == kind)
    stored = dict(rows_among(session, query, Journal.key, [key for key, _, _ in calls]))
    new = [call for call in calls if call[0] not in stored]
    _add(session, kind, new, state=JournalState.SENDING, at=now, first_sent_at=now)
    done = {key for key, state in stored.items() if state is JournalState.DONE}
    mark(session, kind, sorted(stored.keys() - done), JournalState.SENDING, now)
    return done


def _add(session: Session, kind: str, calls: Sequence[tuple[str, str | None, str]], **values: object) -> int:
    return add_rows(
        session,
        Journal,
        (
            {"kind": kind, "key": key, "token": token, "request": request, **values}
            for key, token, request in calls
        ),
    )


def states(session: Session, kind: str) -> dict[str, JournalState]:
    """All calls of a kind → where each is."""
    return dict(session.execute(select(Journal.key, Journal.state).where(Journal.kind == kind)).all())


def first_sent(session: Session, kind: str, keys: Sequence[str]) -> dict[str, dt.datetime]:
    """Those of these calls that were ever made → when that was first."""
    query = select(Journal.key, Journal.first_sent_at).where(
        Journal.kind == kind, Journal.first_sent_at.is_not(None)
    )
    return dict(rows_among(session, query, Journal.key, keys))


def done_keys(session: Session, kind: str, keys: Sequence[str]) -> set[str]:
    """Those of these calls that are done."""
    return _keys(session, kind, keys, Journal.state == JournalState.DONE)


def _keys(session: Session, kind: str, keys: Sequence[str], *conditions: ColumnElement[bool]) -> set[str]:
    """Those of these keys that the journal knows."""
    query = select(Journal.key).where(Journal.kind == kind, *conditions)
    return {key for (key,) in rows_among(session, query, Journal.key, keys)}


def mark(
    session: Session,
    kind: str,
    keys: Sequence[str],
    state: JournalState,
    now: dt.datetime,
    *,
    error: str | None = None,
) -> None:
    """Move rows of a kind to a state, with the error that led there, if one did.

    What is done stays done: another run may have made the call between our look and our own.
    """
    sent = {}
    if state is JournalState.SENDING:
        sent["first_sent_at"] = func.coalesce(Journal.first_sent_at, literal(now, Journal.first_sent_at.type))
    not_done = update(Journal).where(Journal.kind == kind, Journal.state != JournalState.DONE)
    values = {"state": state, "reply": None, "error": error, "at": now, **sent}
    change_among(session, not_done.values(**values), Journal.key, keys)


def mark_done(session: Session, kind: str, replies: Mapping[str, str], now: dt.datetime) -> int:
    """These calls succeeded, each with its reply as JSON; returns how many were not done before."""
    if not replies:
        return 0
    rows = [{"of": kind, "name": key, "said": reply, "now": now} for key, reply in replies.items()]
    return session.connection().execute(_DONE, rows).rowcount


_DONE = (
    update(Journal.__table__)  # type: ignore[arg-type]
    .where(Journal.kind == bindparam("of"), Journal.key == bindparam("name"))
    .where(Journal.state != JournalState.DONE)
    .values(state=JournalState.DONE, reply=bindparam("said"), error=None, at=bindparam("now"))
)


def take_back(session: Session, kind: str, keys: Sequence[str], since: dt.datetime) -> None:
    """These calls were marked as sending and not made; those first marked so since then are planned again."""
    sending = update(Journal).where(
        Journal.kind == kind, Journal.state == JournalState.SENDING, Journal.first_sent_at >= since
    )
    planned = sending.values(state=JournalState.PLANNED, first_sent_at=None)
    change_among(session, planned, Journal.key, keys)


def forget_refused(session: Session, kind: str, keys: Sequence[str]) -> None:
    """Forget calls that the server refused, as if they had never been planned: they had no effect."""
    refused = delete(Journal).where(Journal.kind == kind, Journal.state == JournalState.FAILED)
    change_among(session, refused, Journal.key, keys)


Booking = tuple[int, str, str, int]
"""Money of a submission: its row, the kind, the key under which it is booked once, and cents."""


def add_ledger(session: Session, bookings: Sequence[Booking]) -> None:
    """Book money once; a key that is booked already is left alone."""
    if bookings:
        names = ("assignment_id", "kind", "key", "cents")
        session.connection().execute(_BOOK, [dict(zip(names, booking, strict=True)) for booking in bookings])


_BOOK = text(
    "INSERT INTO ledger (assignment_id, kind, key, cents) VALUES (:assignment_id, :kind, :key, :cents) "
    "ON CONFLICT (key) DO NOTHING"
)


def spent(session: Session, environment: Environment, *of: ColumnElement[bool]) -> dict[str, int]:
    """Cents paid so far by kind (reward, fee, bonus).

    Args:
        of: for submissions of which this holds, joined with their HITs and batches.
    """
    sums = (Ledger.kind, func.sum(Ledger.cents))
    query: Wide = select(*sums)
    if of or session.scalar(
        select(exists().where(Batch.environment != environment))
    ):  # else all is of this one
        query = query_submissions(environment, *sums).join(Ledger, Ledger.assignment_id == Assignment.id)
    query = query.where(*of).group_by(Ledger.kind)
    return {kind: int(cents) for kind, cents in session.execute(query)}
