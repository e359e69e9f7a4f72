"""Pages where workers ask for qualifications, take their tests, and read what came of it."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mitl.crowd_server.pages.site import Site, read_form
from mitl.crowd_server.protocol import answers as form_answers
from mitl.crowd_server.protocol import question_form
from mitl.crowd_server.protocol.answers import Answer
from mitl.crowd_server.protocol.ids import seal, unseal
from mitl.crowd_server.protocol.question_form import QuestionForm, Selection
from mitl.crowd_server.store import qualifications, workers
from mitl.crowd_server.store.database import Books, in_thread
from mitl.crowd_server.store.models import RequestState
from mitl.crowd_server.store.qualifications import QualificationRow, QualificationTypeRow, RequestRow
from mitl.crowd_server.work.entry import after_study
from mitl.crowd_server.work.visitor import BACK, Fields, Visitor, for_workers, form, gone

HOME = "/w/qualifications"
_BACK = (HOME, "To the qualifications")
MAX_FORM = 500_000
MAX_FIELDS = 2000
NOTICES = {
    "granted": "The qualification is yours.",
    "pending": "Your request was sent. The requester decides about it.",
    "closed": "This qualification cannot be asked for just now.",
    "blocked": "The requester does not give you more HITs, so nothing can be asked for here.",
}
TEST_NOTICES = {
    "changed": "The requester changed this test while you took it. Your time starts again with the new one.",
}
GRACE = dt.timedelta(seconds=5)
"""How long after a test's time its answers are still taken: the way to the server is not the worker's fault."""


_UNDECIDED = ("testing", "pending")


@dataclass(frozen=True, slots=True)
class QualificationStanding:
    """One worker's standing with one qualification type."""

    type: QualificationTypeRow
    held: QualificationRow | None
    last: RequestRow | None
    state: str
    """none, testing, overdue (the test's time ran out), pending, granted or rejected: of the last request."""
    may_request: bool
    retry_at: dt.datetime | None
    """When a finished request may be followed by another; None where it never may, or none was made."""

    @property
    def is_undecided(self) -> bool:
        """Whether a request is on its way."""
        return self.state in _UNDECIDED


def is_testing(request: RequestRow, now: dt.datetime) -> bool:
    """Whether a test is in hand and its answers would be taken."""
    return request.state is RequestState.TESTING and now <= request.deadline + GRACE


def standing(
    own: QualificationTypeRow, held: QualificationRow | None, last: RequestRow | None, now: dt.datetime
) -> QualificationStanding:
    """Where a worker stands who holds ``held`` and whose last request is ``last``.

    As on MTurk, a type without a retry delay can be asked for once, whatever came of it. The delay counts from
    when the request was sent, or from the start of a test that never was.
    """
    if last is None:
        return QualificationStanding(own, held, None, "none", own.active, None)
    is_overdue = last.state is RequestState.TESTING and not is_testing(last, now)
    state = "overdue" if is_overdue else last.state.value
    retry_at, delay = None, own.terms.retry_delay_s
    if delay is not None and state not in _UNDECIDED:
        retry_at = (last.submitted_at or last.started_at) + dt.timedelta(seconds=delay)
    may_request = own.active and retry_at is not None and now >= retry_at
    return QualificationStanding(own, held, last, state, may_request, retry_at)


def is_shown(own: QualificationStanding, asked_for: set[str]) -> bool:
    """Whether a worker's page offers or shows this type.

    A qualification that nobody grants by test or by itself, and that no open HIT asks for, is a requester's own
    mark on workers; asking for it would lead nowhere.
    """
    if own.held is not None or own.last is not None:
        return True
    terms = own.type.terms
    grants = terms.test is not None or terms.auto_granted_value is not None
    return own.type.active and (grants or own.type.mturk_id in asked_for)


@for_workers
@after_study
def overview(visitor: Visitor) -> Response:
    """``/w/qualifications``: what a worker holds, may ask for, and has asked for."""
    worker, now = visitor.worker, visitor.now
    with visitor.read() as books:
        held = qualifications.list_held(books.connection, worker.id)
        last = qualifications.latest_requests(books.connection, worker.id)
        asked_for = qualifications.asked_for(books)
        types = qualifications.list_types(books)
    standings = [standing(row, held.get(row.mturk_id), last.get(row.mturk_id), now) for row in types]
    shown = [item for item in standings if is_shown(item, asked_for)]
    return visitor.page(
        "qualifications.html.j2",
        held=[item for item in shown if item.held is not None],
        offered=[item for item in shown if item.held is None and item.last is None and item.may_request],
        requested=[
            item for item in shown if item.last is not None and (item.held is None or item.is_undecided)
        ],
        now=now,
        notice=visitor.notice(NOTICES),
    )


@for_workers
@after_study
def about(visitor: Visitor) -> Response:
    """``/w/qualifications/<type>``: what a qualification is and what asking for it takes, before any clock runs."""
    with visitor.read() as books:
        row = _type(visitor, books)
        stands = _standing(visitor, books, row)
    questions = 0
    if row.terms.test is not None:
        questions = len(question_form.parse(row.terms.test).questions)
    return visitor.page("qualification.html.j2", own=stands, questions=questions, now=visitor.now)


@form
@after_study
def ask(visitor: Visitor, fields: Fields) -> Response:
    """``POST /w/qualifications/<type>/request``: start the test, or send the request where there is none."""
    with visitor.write() as books:
        row = _type(visitor, books)
        stands = _standing(visitor, books, row)
        if stands.state == "testing" and stands.last is not None:
            return RedirectResponse(f"{HOME}/requests/{stands.last.mturk_id}", 303)
        if stands.state == "pending":
            return RedirectResponse(f"{HOME}?notice=pending", 303)
        if not stands.may_request:
            return RedirectResponse(f"{HOME}?notice=closed", 303)
        if workers.is_blocked(books.connection, visitor.worker.id):
            return RedirectResponse(f"{HOME}?notice=blocked", 303)
        return RedirectResponse(_open(visitor, books, row), 303)


def _open(visitor: Visitor, books: Books, own: QualificationTypeRow) -> str:
    """Make the request; gives the page that comes next."""
    worker = visitor.worker
    if own.terms.test is not None:
        request = qualifications.add_request(books, worker, own, RequestState.TESTING)
        return f"{HOME}/requests/{request.mturk_id}"
    if own.terms.auto_granted_value is not None:
        qualifications.add_request(books, worker, own, RequestState.GRANTED)
        qualifications.grant(books, own.id, worker.id, own.terms.auto_granted_value)
        return f"{HOME}?notice=granted"
    qualifications.add_request(books, worker, own, RequestState.PENDING)
    return f"{HOME}?notice=pending"


def _type(visitor: Visitor, books: Books) -> QualificationTypeRow:
    row = qualifications.find_type(books, visitor.request.path_params["type_id"])
    if row is None:
        raise gone(_BACK)
    return row


def _standing(visitor: Visitor, books: Books, own: QualificationTypeRow) -> QualificationStanding:
    last = qualifications.latest_requests(books.connection, visitor.worker.id, own.id)
    held = qualifications.find_held(books.connection, own.id, visitor.worker.id)
    return standing(own, held, last.get(own.mturk_id), visitor.now)


@dataclass(frozen=True, slots=True)
class _Test:
    """A worker's request for a qualification that has a test."""

    visitor: Visitor
    own: QualificationTypeRow
    row: RequestRow
    test: str
    """QuestionForm XML."""

    @property
    def form(self) -> QuestionForm:
        """The test as questions."""
        return question_form.parse(self.test)

    def page(self, answers: tuple[Answer, ...], *, sent: bool = False) -> Response:
        """The test with these answers; once ``sent``, with what keeps each from being taken."""
        told = [form_answers.problem(answer) if sent else "" for answer in answers]
        form = self.form
        response = self.visitor.page(
            "qualification_test.html.j2",
            status=422 if sent else 200,
            own=self.own,
            row=self.row,
            form=form,
            answers=list(zip(answers, told, strict=True)),
            problems=[place for place, problem in enumerate(told, 1) if problem],
            version=seal(self.visitor.site.secret, _clock(self.row), version(self.test)),
            seconds_left=max(0, int((self.row.deadline - self.visitor.now).total_seconds())),
            notice="" if sent else self.visitor.notice(TEST_NOTICES),
        )
        if form.image_origins:
            policy = response.headers["content-security-policy"]
            allowed = f"img-src {' '.join(form.image_origins)} "
            response.headers["content-security-policy"] = policy.replace("img-src ", allowed, 1)
        return response


@for_workers
@after_study
def show(visitor: Visitor) -> Response:
    """``/w/qualifications/requests/<request>``: the test while it may be taken, then what came of it."""
    with visitor.read() as books:
        own, row = _request(visitor, books)
        if not is_testing(row, visitor.now) or own.terms.test is None:
            held = qualifications.find_held(books.connection, own.id, visitor.worker.id)
            stands = standing(own, held, row, visitor.now)
            return visitor.page("qualification_result.html.j2", own=stands, now=visitor.now)
    if row.test != own.terms.test:
        with visitor.write() as books:
            return _start_again(visitor, books)
    test = _Test(visitor, own, row, own.terms.test)
    return test.page(form_answers.blank(test.form))


async def send(site: Site, request: Request) -> Response:
    """``POST /w/qualifications/requests/<request>``: take the answers, and grade them where there is a key."""
    fields = await read_form(request, MAX_FORM, MAX_FIELDS, BACK)
    if fields is None:
        return site.notice(
            413,
            "That was too much to send",
            "Your answers were not taken. Go back and shorten them; the time of the test runs on.",
        )
    return await in_thread(_send, site, request, fields)


@for_workers
def _send(visitor: Visitor, fields: list[tuple[str, str]]) -> Response:
    # Not asked about the study here: answers in hand are taken first, and the next page asks.
    now = visitor.now
    with visitor.write() as books:
        own, row = _request(visitor, books)
        here = f"{HOME}/requests/{row.mturk_id}"
        if not is_testing(row, now) or own.terms.test is None:
            return RedirectResponse(here, 303)
        shown = unseal(visitor.site.secret, _clock(row), dict(fields).get("version", ""))
        if shown is None:
            return RedirectResponse(here, 303)
        if shown != version(own.terms.test):
            return _start_again(visitor, books)
        test = _Test(visitor, own, row, own.terms.test)
        answers = form_answers.read(test.form, fields)
        if not any(form_answers.problem(answer) for answer in answers):
            qualifications.submit_test(books, row.id, form_answers.xml(answers))
            if own.terms.answer_key is not None:
                value = form_answers.read_key(own.terms.answer_key, test.form).value(_chosen(answers))
                # A low value is granted too, as on MTurk.
                qualifications.grant(books, own.id, row.worker_id, value)
                qualifications.decide_request(books, row.id, RequestState.GRANTED)
            return RedirectResponse(here, 303)
    return test.page(answers, sent=True)


def _start_again(visitor: Visitor, books: Books) -> Response:
    """Give the full time for the test that took the place of the one in hand."""
    own, row = _request(visitor, books)
    if is_testing(row, visitor.now):
        qualifications.restart_test(books, row.id, own.terms)
    return RedirectResponse(f"{HOME}/requests/{row.mturk_id}?notice=changed", 303)


def _chosen(answers: tuple[Answer, ...]) -> dict[str, frozenset[str]]:
    """The selections by question, as an answer key reads them."""
    return {
        answer.question.identifier: frozenset(answer.identifiers)
        for answer in answers
        if isinstance(answer.question.field, Selection)
    }


def _clock(row: RequestRow) -> str:
    """What seals the text that was shown since a test's clock started: nobody starts it again by another one."""
    return f"test {row.mturk_id} {row.started_at.isoformat()}"


def version(test: str) -> str:
    """What tells one text of a test from another, so that answers are never read against other questions."""
    return hashlib.sha256(test.encode()).hexdigest()[:16]


def _request(visitor: Visitor, books: Books) -> tuple[QualificationTypeRow, RequestRow]:
    """The request of this page with its type; a notice where it is not this worker's own."""
    row = qualifications.find_request(books, visitor.request.path_params["request_id"])
    if row is None or row.worker_id != visitor.worker.id:
        raise gone(_BACK)
    own = qualifications.find_type(books, row.type)
    if own is None:
        raise gone(_BACK)
    return own, row


ROUTES = (
    (HOME, overview),
    (HOME + "/{type_id}", about),
    (HOME + "/{type_id}/request", ask, "POST"),
    (HOME + "/requests/{request_id}", show),
    (HOME + "/requests/{request_id}", send, "POST"),
)
