"""The table of workers with what speaks for and against each, and one worker's page."""

from __future__ import annotations

import datetime as dt
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from sqlalchemy.orm import Session
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mitl.campaign.standing import keep_standing
from mitl.core.paging import ListPage, number_in
from mitl.crowd.calls import Call, Operation, make_calls, plan_calls
from mitl.crowd.client import MTurkClient
from mitl.crowd.context import Context, open_context
from mitl.crowd.endpoint import open_same_endpoint
from mitl.db.store import desk as desk_store
from mitl.db.store import journal
from mitl.desk.desk import Desk
from mitl.errors import CrowdError, MitlError, StoreError, UsageError
from mitl.records import Environment, JournalState
from mitl.settings import Settings
from mitl.stages.reviewing.desk_submission import strips
from mitl.stages.reviewing.evidence import WorkerEvidence

MESSAGE = "message"
MAX_SUBJECT = 200
MAX_TEXT = 4096
"""Characters; the API's limits."""
A_PAGE = 50
"""Workers on a page, and submissions on a worker's."""


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
    with open_context(settings, environment) as context:
        session, chosen = context.session, context.environment
        worker = desk_store.worker_names(session, chosen).get(worker_id)
        if worker is None:
            raise StoreError(f"nobody of number {worker_id} has submitted work on {chosen}")
        call = Call(f"{worker}:{token}", worker, {"worker": worker, "subject": subject, "text": text})
        _require_new(session, call.key)
        plan_calls(context, MESSAGE, [call])
        session.commit()
        try:
            with open_same_endpoint(context) as endpoint:
                _send(context, endpoint.client(), call, subject, text)
        except CrowdError as error:
            session.rollback()
            _note_unsent(session, call.key, str(error))
            raise
        keep_standing(session, chosen, settings.gold_rule)


def _send(context: Context, client: MTurkClient, one: Call[str], subject: str, text: str) -> None:
    def call(worker: str) -> None:
        failure = client.notify(worker, subject, text)
        if failure is not None:
            raise CrowdError(f"the server could not deliver the message: {failure}")

    make_calls(context, Operation(MESSAGE, call), [one])


def messages_to(session: Session, worker: str) -> tuple[SentMessage, ...]:
    """The messages to a worker, oldest first."""
    sent = []
    for call in journal.starting_with(session, MESSAGE, f"{worker}:"):
        request = json.loads(call.request)
        sent.append(SentMessage(request["subject"], request["text"], call.at, call.state, call.error))
    return tuple(sent)


def _require_new(session: Session, key: str) -> None:
    """StoreError where this message was sent, or may have been."""
    call = journal.find(session, MESSAGE, key)
    if call is not None and call.state in (JournalState.DONE, JournalState.SENDING):
        raise StoreError("this message was sent before; open the page again to write another")


def _note_unsent(session: Session, key: str, error: str) -> None:
    """Say why a message was never sent, where it did not come to the call."""
    call = journal.find(session, MESSAGE, key)
    if call is not None and call.state is JournalState.PLANNED:
        journal.mark(session, MESSAGE, [key], JournalState.FAILED, dt.datetime.now(dt.UTC), error=error)
    session.commit()


def _check(what: str, text: str, most: int) -> None:
    if not text:
        raise UsageError(f"the {what} is empty; write something")
    if len(text) > most:
        raise UsageError(f"the {what} has {len(text):,} characters; {most:,} are the most")


@dataclass(frozen=True, slots=True)
class WorkerColumn:
    """A column that the table can be sorted by."""

    key: str
    title: str
    hint: str
    value: Callable[[WorkerEvidence], Any]
    """What is compared; None stands last."""
    falling: bool = False
    """Whether the first click puts the largest on top."""
    numeric: bool = True


_STANDINGS = ("poor", "unproven", "good", "excluded")
COLUMNS = (
    WorkerColumn("worker", "Worker", "The id on the requester API", lambda one: one.worker, numeric=False),
    WorkerColumn(
        "record",
        "Gold record",
        "Controls answered as expected: mean and 90 % interval of the rate",
        lambda one: (one.mean, -one.record.golds) if one.record.golds else None,
        numeric=False,
    ),
    WorkerColumn(
        "standing",
        "Standing",
        "What the record allows to be said",
        lambda one: _STANDINGS.index(one.standing),
        numeric=False,
    ),
    WorkerColumn("work", "Submissions", "Pages sent in", lambda one: one.submissions, True),
    WorkerColumn("queued", "Waiting", "Pages in the review queue", lambda one: one.queued, True),
    WorkerColumn(
        "speed",
        "Seconds a pair",
        "Median active time, and against the others' median",
        lambda one: one.median_s,
    ),
    WorkerColumn(
        "run",
        "Longest run",
        "Longest row of one answer on one page",
        lambda one: one.run and one.run.length,
        True,
    ),
    WorkerColumn("variety", "Variety", "Entropy of the answers: 0 to 2 bits", lambda one: one.entropy),
    WorkerColumn(
        "agreement",
        "Agreement",
        "With others on the same pairs, controls apart",
        lambda one: one.agreement and one.agreement.share,
    ),
)
_BY_KEY = {column.key: column for column in COLUMNS}


def workers(desk: Desk, request: Request) -> Response:
    """``/workers``: everyone, sorted by ``?sort=`` and turned round by ``&turn=1``, at ``&page=`` and ``&raters=``."""
    query = request.query_params
    column = _BY_KEY.get(query.get("sort", "record"), _BY_KEY["record"])
    turned = query.get("turn") == "1"
    with desk.reading() as context:
        frame = desk.frame(context)
        people = desk.crowd(context, frame)
    # Of who only rates, the raters' table says all that is known; what is known of nobody has no column.
    rows = in_order([one for one in people.workers if not one.rates_alone], column, turned=turned)
    raters = people.raters
    turn = ListPage.to(number_in(query.get("page", "")) or 1, len(rows), a_page=A_PAGE)
    raters_turn = ListPage.to(number_in(query.get("raters", "")) or 1, len(raters), a_page=A_PAGE)

    def address(page: int = turn.page, raters_page: int = raters_turn.page) -> str:
        return f"/workers?sort={column.key}&turn={turned:d}&page={page}&raters={raters_page}"

    return desk.page(
        "workers.html.j2",
        frame,
        people=people,
        rows=rows[turn.part],
        raters=raters[raters_turn.part],
        turn=turn,
        raters_turn=raters_turn,
        address=address,
        raters_address=lambda page: f"{address(raters_page=page)}#raters-title",
        columns=[column for column in COLUMNS if any(column.value(one) is not None for one in rows)],
        sorted_by=column,
        falling=column.falling != turned,
    )


def in_order(
    workers: Sequence[WorkerEvidence], column: WorkerColumn, *, turned: bool
) -> list[WorkerEvidence]:
    """The workers by this column, equals by id; those of whom nothing is known stand last."""
    with_value = [person for person in workers if column.value(person) is not None]
    without = [person for person in workers if column.value(person) is None]
    with_value.sort(key=lambda person: person.worker)
    with_value.sort(key=column.value, reverse=column.falling != turned)
    return with_value + without


def worker(desk: Desk, request: Request) -> Response:
    """``/workers/{id}``: one worker, their submissions in short at ``?page=``, the messages to them."""
    return _page(desk, request.path_params["worker_id"], request.query_params)


def _page(
    desk: Desk,
    worker_id: int,
    given: Mapping[str, str],
    *,
    problem: str = "",
    subject: str = "",
    text: str = "",
) -> Response:
    """The page; an address or a form may have given ``page``, and ``back``, the submission to go back to."""
    back = number_in(given.get("back", ""))
    with desk.reading() as context:
        frame = desk.frame(context)
        people = desk.crowd(context, frame)
        person = people.find(worker_id)
        if person is None:
            raise StoreError(f"nobody of number {worker_id} has submitted work on {desk.environment}")
        work = strips(context.session, desk.environment, worker_id, desk.settings.gold_rule)
        messages = messages_to(context.session, person.worker)
    turn = ListPage.to(number_in(given.get("page", "")) or 1, len(work), a_page=A_PAGE)

    def address(page: int = turn.page) -> str:
        query = {"page": page} | ({"back": back} if back else {})
        return f"/workers/{worker_id}?{urlencode(query)}"

    return desk.page(
        "worker.html.j2",
        frame,
        status=422 if problem else 200,
        one=person,
        people=people,
        work=work[turn.part],
        turn=turn,
        address=address,
        messages=messages,
        problem=problem,
        subject=subject,
        text=text,
        back=back,
        message_token=secrets.token_hex(8),
        max_subject=MAX_SUBJECT,
        max_text=MAX_TEXT,
    )


def message(desk: Desk, request: Request, fields: dict[str, str]) -> Response:
    """``POST /workers/{id}/message``: tell the worker something; a refusal keeps what was written."""
    worker_id = request.path_params["worker_id"]
    subject, text = fields.get("subject", ""), fields.get("text", "")
    back, token = number_in(fields.get("back", "")), fields.get("message_token", "")[:32]
    try:
        send_message(desk.settings, worker_id, subject, text, desk.environment, token=token)
    except MitlError as error:
        return _page(desk, worker_id, fields, problem=str(error), subject=subject, text=text)
    query = urlencode({"after": token} | ({"back": back} if back else {}))
    return RedirectResponse(f"/workers/{worker_id}?{query}#messages", 303)


ROUTES = (("/workers", workers), ("/workers/{worker_id:row}", worker))
FORMS = (("/workers/{worker_id:row}/message", message),)
