"""Pages where workers ask for qualifications, see what they hold, and read what came of it."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response

from mitl.crowd_server.forms import question_form
from mitl.crowd_server.models import RequestState
from mitl.crowd_server.qualifications import tests as qualification_tests
from mitl.crowd_server.qualifications.standing import Standing, is_shown, standing
from mitl.crowd_server.qualifications.tests import HOME, gone
from mitl.crowd_server.site import PAGES, Site, is_foreign
from mitl.crowd_server.store import blocks, qualifications, requests
from mitl.crowd_server.store.qualifications import QualificationTypeRow
from mitl.crowd_server.store.workers import WorkerRow
from mitl.crowd_server.work.entry import gate
from mitl.crowd_server.work.fields import foreign
from mitl.crowd_server.work.sessions import unknown, worker_of
from mitl.crowd_server.work.shell import shell

STATIC = ("qualification.css", "qualification.js")
NOTICES = {
    "granted": "The qualification is yours.",
    "pending": "Your request was sent. The requester decides about it.",
    "closed": "This qualification cannot be asked for just now.",
    "blocked": "The requester does not give you more HITs, so nothing can be asked for here.",
}


def overview(site: Site, request: Request) -> Response:
    """``/w/qualifications``: what a worker holds, may ask for, and has asked for."""
    worker = worker_of(site, request)
    if worker is None:
        return unknown(site)
    if (stop := gate(site, request, worker)) is not None:
        return stop
    now = site.clock()
    with site.database.read() as connection:
        found = _standings(connection, worker, now)
    return site.page(
        "qualifications.html.j2",
        shell=shell(site, request, worker),
        held=[own for own in found if own.held is not None],
        offered=[own for own in found if own.held is None and own.last is None and own.may_request],
        requested=[own for own in found if own.last is not None and (own.held is None or own.is_undecided)],
        now=now,
        notice=NOTICES.get(request.query_params.get("notice", ""), ""),
    )


def about(site: Site, request: Request) -> Response:
    """``/w/qualifications/<type>``: what a qualification is and what asking for it takes, before any clock runs."""
    worker = worker_of(site, request)
    if worker is None:
        return unknown(site)
    if (stop := gate(site, request, worker)) is not None:
        return stop
    now = site.clock()
    with site.database.read() as connection:
        own = qualifications.find_type(connection, worker.environment, request.path_params["type_id"])
        if own is None:
            return gone(site)
        found = _standing(connection, worker, own, now)
    questions = 0
    if own.terms.test is not None:
        questions = len(question_form.parse(own.terms.test).questions)
    return site.page(
        "qualification.html.j2",
        shell=shell(site, request, worker),
        own=found,
        questions=questions,
        now=now,
    )


async def ask(site: Site, request: Request) -> Response:
    """``POST /w/qualifications/<type>/request``: start the test, or send the request where there is none."""
    if is_foreign(request):
        return foreign(site)
    return await run_in_threadpool(_ask, site, request)


def _ask(site: Site, request: Request) -> Response:
    worker = worker_of(site, request)
    if worker is None:
        return unknown(site)
    if (stop := gate(site, request, worker)) is not None:
        return stop
    now = site.clock()
    with site.database.write(worker.environment) as connection:
        own = qualifications.find_type(connection, worker.environment, request.path_params["type_id"])
        if own is None:
            return gone(site)
        found = _standing(connection, worker, own, now)
        if found.state == "testing" and found.last is not None:
            return RedirectResponse(f"{HOME}/requests/{found.last.mturk_id}", 303)
        if found.state == "pending":
            return RedirectResponse(f"{HOME}?notice=pending", 303)
        if not found.may_request:
            return RedirectResponse(f"{HOME}?notice=closed", 303)
        if blocks.is_blocked(connection, worker.id):
            return RedirectResponse(f"{HOME}?notice=blocked", 303)
        return RedirectResponse(_open(connection, worker, own, now), 303)


def _open(connection: Connection, worker: WorkerRow, own: QualificationTypeRow, now: dt.datetime) -> str:
    """Make the request; gives the page that comes next."""
    if own.terms.test is not None:
        made = requests.add(connection, worker, own.id, RequestState.TESTING, now)
        return f"{HOME}/requests/{made.mturk_id}"
    if own.terms.auto_granted_value is not None:
        requests.add(connection, worker, own.id, RequestState.GRANTED, now)
        qualifications.grant(connection, own.id, worker.id, own.terms.auto_granted_value, now)
        return f"{HOME}?notice=granted"
    requests.add(connection, worker, own.id, RequestState.PENDING, now)
    return f"{HOME}?notice=pending"


def static(site: Site, request: Request) -> Response:
    """The style and the script of these pages."""
    name = request.path_params["name"]
    if name not in STATIC:
        return Response("no such file", 404, media_type="text/plain")
    headers = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    return FileResponse(PAGES / name, headers=headers)


def _standings(connection: Connection, worker: WorkerRow, now: dt.datetime) -> list[Standing]:
    held = qualifications.list_held(connection, worker.id)
    last = requests.latest(connection, worker.id)
    asked_for = requests.asked_for(connection, worker.environment, now)
    found = [
        standing(own, held.get(own.mturk_id), last.get(own.mturk_id), now)
        for own in qualifications.list_types(connection, worker.environment)
    ]
    return [own for own in found if is_shown(own, asked_for)]


def _standing(
    connection: Connection, worker: WorkerRow, own: QualificationTypeRow, now: dt.datetime
) -> Standing:
    held = qualifications.find(connection, own.id, worker.id)
    if held is not None and held.revoked_at is not None:
        held = None
    last = requests.latest(connection, worker.id, own.id)
    return standing(own, held, last.get(own.mturk_id), now)


ROUTES = (
    (HOME, overview),
    (HOME + "/static/{name}", static),
    (HOME + "/{type_id}", about),
    (HOME + "/{type_id}/request", ask, "POST"),
    *qualification_tests.ROUTES,
)
