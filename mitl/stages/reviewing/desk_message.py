"""A message from the requester to one worker, journalled like every call that cannot be taken back."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.crowd.calls import Call, make_calls, plan_calls
from mitl.crowd.client import MTurkClient
from mitl.crowd.endpoint import open_endpoint
from mitl.crowd.environment import choose_environment, require_same_server
from mitl.db.session import open_database
from mitl.db.store import answers as answer_store
from mitl.db.store import desk as desk_store
from mitl.db.store import journal
from mitl.errors import CrowdError, StoreError, UsageError
from mitl.progress import no_progress
from mitl.records import Environment, JournalState
from mitl.settings import Settings

MESSAGE = "message"
MAX_SUBJECT = 200
MAX_TEXT = 4096
"""Characters; the API's limits."""


@dataclass(frozen=True, slots=True)
class SentMessage:
    """One message and what became of it."""

    subject: str
    text: str
    at: dt.datetime
    state: JournalState
    error: str | None

    @property
    def fate(self) -> str:
        """In words."""
        if self.state is JournalState.DONE:
            return "sent"
        if self.state is JournalState.SENDING:
            return "unknown: no reply came when it was sent, so it may have arrived"
        return f"not sent: {self.error}" if self.error else "not sent"


def send_message(
    settings: Settings,
    worker_id: int,
    subject: str,
    text: str,
    environment: Environment | None = None,
    *,
    token: str,
) -> None:
    """Send a worker a message once.

    Args:
        worker_id: the worker's row in the pipeline's database.
        token: names this message; one that was sent under it is not sent again.

    Raises:
        UsageError: subject or text is empty or too long.
        StoreError: there is no such worker, or this message was sent before.
        CrowdError: the server refuses it; it takes messages only for people whose work was approved or rejected.
    """
    subject, text = " ".join(subject.split()), text.strip().replace("\r\n", "\n")
    _check("subject", subject, MAX_SUBJECT)
    _check("message", text, MAX_TEXT)
    with open_database(settings.db_url) as session:
        chosen = choose_environment(session, environment)
        worker = _worker(session, chosen, worker_id)
        one = Call(f"{worker}:{token}", worker, {"worker": worker, "subject": subject, "text": text})
        _require_new(session, one.key)
        plan_calls(session, MESSAGE, [one])
        session.commit()
        try:
            with open_endpoint(settings, chosen) as endpoint:
                require_same_server(session, endpoint, chosen)
                session.rollback()
                _send(session, endpoint.client(), one, subject, text)
        except CrowdError as error:
            session.rollback()
            _note_unsent(session, one.key, str(error))
            raise


def _send(session: Session, client: MTurkClient, one: Call[str], subject: str, text: str) -> None:
    def call(worker: str) -> None:
        failure = client.notify(worker, subject, text)
        if failure is not None:
            raise CrowdError(f"the server could not deliver the message: {failure}")

    make_calls(session, MESSAGE, [one], call=call, book=lambda worker, _: None, progress=no_progress)


def messages_to(session: Session, worker: str) -> tuple[SentMessage, ...]:
    """The messages to a worker, oldest first."""
    found = []
    for call in desk_store.calls(session, MESSAGE, f"{worker}:"):
        request = json.loads(call.request)
        found.append(SentMessage(request["subject"], request["text"], call.at, call.state, call.error))
    return tuple(found)


def _require_new(session: Session, key: str) -> None:
    """StoreError where this message was sent, or may have been."""
    known = journal.find(session, MESSAGE, key)
    if known is not None and known.state in (JournalState.DONE, JournalState.SENDING):
        raise StoreError("this message was sent before; open the page anew to write another")


def _note_unsent(session: Session, key: str, error: str) -> None:
    """Say why a message was never sent, where it did not come to the call."""
    known = journal.find(session, MESSAGE, key)
    if known is not None and known.state is JournalState.PLANNED:
        journal.mark(session, MESSAGE, [key], JournalState.FAILED, dt.datetime.now(dt.UTC), error=error)
    session.commit()


def _worker(session: Session, environment: Environment, worker_id: int) -> str:
    for row in answer_store.assignments(session, environment):
        if row.worker_id == worker_id:
            return row.worker
    raise StoreError(f"nobody of number {worker_id} has submitted work on {environment}")


def _check(what: str, text: str, most: int) -> None:
    if not text:
        raise UsageError(f"the {what} is empty; write something")
    if len(text) > most:
        raise UsageError(f"the {what} has {len(text):,} characters; {most:,} are the most")
