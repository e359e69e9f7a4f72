"""The table of workers with what speaks for and against each, and one worker's page."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mitl.desk.desk import Desk
from mitl.errors import MitlError, StoreError
from mitl.stages.reviewing.desk_message import MAX_SUBJECT, MAX_TEXT, messages_to, send_message
from mitl.stages.reviewing.desk_submission import strips
from mitl.stages.reviewing.evidence import Evidence


@dataclass(frozen=True, slots=True)
class Column:
    """A column that the table can be sorted by."""

    key: str
    title: str
    hint: str
    value: Callable[[Evidence], Any]
    """What is compared; None stands last."""
    falling: bool = False
    """Whether the first click puts the largest on top."""
    numeric: bool = True


_STANDINGS = ("poor", "unproven", "good", "excluded")
COLUMNS = (
    Column("worker", "Worker", "The id on the requester API", lambda one: one.worker, numeric=False),
    Column(
        "record",
        "Gold record",
        "Controls answered as expected: mean and 90 % interval of the rate",
        lambda one: (one.mean, -one.record.golds) if one.record.golds else None,
        numeric=False,
    ),
    Column(
        "standing",
        "Standing",
        "What the record allows to be said",
        lambda one: _STANDINGS.index(one.standing),
        numeric=False,
    ),
    Column("work", "Submissions", "Pages sent in", lambda one: one.submissions, True),
    Column("queued", "Waiting", "Pages in the review queue", lambda one: one.queued, True),
    Column(
        "speed",
        "Seconds a pair",
        "Median active time, and against the others' median",
        lambda one: one.median_s,
    ),
    Column(
        "run",
        "Longest run",
        "Longest row of one answer on one page",
        lambda one: one.run and one.run.length,
        True,
    ),
    Column("variety", "Variety", "Entropy of the answers: 0 to 2 bits", lambda one: one.entropy),
    Column(
        "agreement",
        "Agreement",
        "With others on the same pairs, controls apart",
        lambda one: one.agreement and one.agreement.share,
    ),
)
_BY_KEY = {column.key: column for column in COLUMNS}


def workers(desk: Desk, request: Request) -> Response:
    """``/workers``: everyone, sorted by ``?sort=`` and turned round by ``&turn=1``."""
    column = _BY_KEY.get(request.query_params.get("sort", "record"), _BY_KEY["record"])
    turned = request.query_params.get("turn") == "1"
    with desk.reading() as session:
        frame = desk.frame(session)
        people = desk.crowd(session, frame)
    return desk.page(
        "workers.html.j2",
        frame,
        people=people,
        rows=in_order(people.workers, column, turned=turned),
        columns=COLUMNS,
        sorted_by=column,
        falling=column.falling != turned,
    )


def in_order(workers: tuple[Evidence, ...], column: Column, *, turned: bool) -> list[Evidence]:
    """The workers by this column, equals by id; those of whom nothing is known stand last."""
    known = [one for one in workers if column.value(one) is not None]
    unknown = [one for one in workers if column.value(one) is None]
    known.sort(key=lambda one: one.worker)
    known.sort(key=column.value, reverse=column.falling != turned)
    return known + unknown


def worker(desk: Desk, request: Request) -> Response:
    """``/workers/{id}``: one worker, their submissions in short, the messages to them."""
    return _page(desk, request.path_params["worker_id"], back=_number(request.query_params.get("back", "")))


def _page(
    desk: Desk,
    worker_id: int,
    *,
    status: int = 200,
    problem: str = "",
    subject: str = "",
    text: str = "",
    back: int | None = None,
) -> Response:
    with desk.reading() as session:
        frame = desk.frame(session)
        people = desk.crowd(session, frame)
        found = people.find(worker_id)
        if found is None:
            raise StoreError(f"nobody of number {worker_id} has submitted work on {desk.environment}")
        work = strips(session, desk.environment, worker_id, desk.settings.gold_rule)
        messages = messages_to(session, found.worker)
    return desk.page(
        "worker.html.j2",
        frame,
        status=status,
        one=found,
        people=people,
        work=work,
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
    back = _number(fields.get("back", ""))
    try:
        send_message(
            desk.settings,
            worker_id,
            subject,
            text,
            desk.environment,
            token=fields.get("message_token", "")[:32],
        )
    except MitlError as error:
        return _page(desk, worker_id, status=422, problem=str(error), subject=subject, text=text, back=back)
    return RedirectResponse(f"/workers/{worker_id}{f'?back={back}' if back else ''}#messages", 303)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None


ROUTES = (("/workers", workers), ("/workers/{worker_id:int}", worker))
FORMS = (("/workers/{worker_id:int}/message", message),)
