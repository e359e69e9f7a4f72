"""Pages on which a worker takes a qualification's test, and reads what came of it."""

from __future__ import annotations

import datetime as dt
import hashlib
from urllib.parse import parse_qsl

from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mitl.crowd_server.forms import answer_key, question_form
from mitl.crowd_server.forms import answers as form_answers
from mitl.crowd_server.forms.answers import Answer
from mitl.crowd_server.forms.fields import Selection
from mitl.crowd_server.forms.question_form import QuestionForm
from mitl.crowd_server.models import RequestState
from mitl.crowd_server.qualifications.standing import is_testing, standing
from mitl.crowd_server.site import Site, is_foreign
from mitl.crowd_server.store import qualifications, requests
from mitl.crowd_server.store.qualifications import QualificationTypeRow
from mitl.crowd_server.store.requests import RequestRow
from mitl.crowd_server.store.workers import WorkerRow
from mitl.crowd_server.work.entry import gate
from mitl.crowd_server.work.fields import foreign
from mitl.crowd_server.work.sessions import unknown, worker_of
from mitl.crowd_server.work.shell import shell

HOME = "/w/qualifications"
MAX_FORM = 500_000
MAX_FIELDS = 2000
NOTICES = {
    "changed": "The requester changed this test while you took it. Your time starts again with the new one.",
}


def show(site: Site, request: Request) -> Response:
    """``/w/qualifications/requests/<request>``: the test while it may be taken, then what came of it."""
    worker = worker_of(site, request)
    if worker is None:
        return unknown(site)
    if (stop := gate(site, request, worker)) is not None:
        return stop
    now = site.clock()
    with site.database.read() as connection:
        found = _find(connection, worker, request)
        if found is None:
            return gone(site)
        own, row = found
        if not is_testing(row, now) or own.terms.test is None:
            return _result(site, request, worker, own, row, connection)
    form = question_form.parse(own.terms.test)
    notice = NOTICES.get(request.query_params.get("notice", ""), "")
    return _test(site, request, worker, own, row, form, form_answers.blank(form), notice)


async def send(site: Site, request: Request) -> Response:
    """``POST /w/qualifications/requests/<request>``: take the answers, and grade them where there is a key."""
    if is_foreign(request):
        return foreign(site)
    fields = await _fields(request)
    if fields is None:
        return site.notice(
            413,
            "That was too much to send",
            "Your answers were not taken. Go back and shorten them; the time of the test runs on.",
        )
    return await run_in_threadpool(_send, site, request, fields)


def _send(site: Site, request: Request, fields: list[tuple[str, str]]) -> Response:
    worker = worker_of(site, request)
    if worker is None:
        return unknown(site)
    # Not asked about the study here: answers in hand are taken first, and the next page asks.
    now = site.clock()
    with site.database.write(worker.environment) as connection:
        found = _find(connection, worker, request)
        if found is None:
            return gone(site)
        own, row = found
        here = f"{HOME}/requests/{row.mturk_id}"
        if not is_testing(row, now) or own.terms.test is None:
            return RedirectResponse(here, 303)
        if dict(fields).get("version") != version(own.terms.test):
            requests.restart(connection, row.id, now)
            return RedirectResponse(f"{here}?notice=changed", 303)
        form = question_form.parse(own.terms.test)
        answers = form_answers.read(form, fields)
        if not any(form_answers.problem(answer) for answer in answers):
            requests.submit(connection, row.id, form_answers.xml(answers), now)
            if own.terms.answer_key is not None:
                _grade(connection, own, row, form, answers, now)
            return RedirectResponse(here, 303)
    return _test(site, request, worker, own, row, form, answers, sent=True)


def _grade(
    connection: Connection,
    own: QualificationTypeRow,
    row: RequestRow,
    form: QuestionForm,
    answers: tuple[Answer, ...],
    now: dt.datetime,
) -> None:
    """Grant the qualification with the value that the key gives; a low one is granted too, as on MTurk."""
    assert own.terms.answer_key is not None
    key = answer_key.parse(own.terms.answer_key, form)
    chosen = {
        answer.question.identifier: frozenset(answer.identifiers)
        for answer in answers
        if isinstance(answer.question.field, Selection)
    }
    qualifications.grant(connection, own.id, row.worker_id, key.value(chosen), now)
    requests.decide(connection, row.id, RequestState.GRANTED, now)


def version(test: str) -> str:
    """What tells one text of a test from another, so that answers are never read against other questions."""
    return hashlib.sha256(test.encode()).hexdigest()[:16]


def gone(site: Site) -> Response:
    """The page for what does not exist or belongs to somebody else."""
    return site.notice(
        404, "Nothing here", "This page does not exist, or is not yours.", (HOME, "To the qualifications")
    )


def _find(
    connection: Connection, worker: WorkerRow, request: Request
) -> tuple[QualificationTypeRow, RequestRow] | None:
    """The request of this page, where it is this worker's own."""
    row = requests.find(connection, worker.environment, request.path_params["request_id"])
    if row is None or row.worker_id != worker.id:
        return None
    own = qualifications.find_type(connection, worker.environment, row.type)
    return None if own is None else (own, row)


def _test(
    site: Site,
    request: Request,
    worker: WorkerRow,
    own: QualificationTypeRow,
    row: RequestRow,
    form: QuestionForm,
    answers: tuple[Answer, ...],
    notice: str = "",
    *,
    sent: bool = False,
) -> Response:
    assert own.terms.test is not None
    told = [form_answers.problem(answer) if sent else "" for answer in answers]
    response = site.page(
        "qualification_test.html.j2",
        status=422 if sent else 200,
        shell=shell(site, request, worker),
        own=own,
        row=row,
        form=form,
        answers=list(zip(answers, told, strict=True)),
        problems=[place for place, problem in enumerate(told, 1) if problem],
        version=version(own.terms.test),
        seconds_left=max(0, int((row.deadline - site.clock()).total_seconds())),
        notice=notice,
    )
    if form.image_origins:
        policy = response.headers["content-security-policy"]
        allowed = f"img-src {' '.join(form.image_origins)} "
        response.headers["content-security-policy"] = policy.replace("img-src ", allowed, 1)
    return response


def _result(
    site: Site,
    request: Request,
    worker: WorkerRow,
    own: QualificationTypeRow,
    row: RequestRow,
    connection: Connection,
) -> Response:
    held = qualifications.find(connection, own.id, worker.id)
    if held is not None and held.revoked_at is not None:
        held = None
    return site.page(
        "qualification_result.html.j2",
        shell=shell(site, request, worker),
        own=standing(own, held, row, site.clock()),
        now=site.clock(),
    )


async def _fields(request: Request) -> list[tuple[str, str]] | None:
    """The form's fields, repeated names included; None where there is too much."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM:
            return None
    try:
        return parse_qsl(
            body.decode("utf-8", "replace"),
            keep_blank_values=True,
            max_num_fields=MAX_FIELDS,
            errors="replace",
        )
    except ValueError:
        return None


ROUTES = (
    (HOME + "/requests/{request_id}", show),
    (HOME + "/requests/{request_id}", send, "POST"),
)
