"""Study information and consent before the first HIT."""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mitl.crowd_server.models import VisitState
from mitl.crowd_server.panels import visits
from mitl.crowd_server.site import Site, is_foreign
from mitl.crowd_server.store import panels, studies
from mitl.crowd_server.store.studies import StudyRow
from mitl.crowd_server.store.workers import WorkerRow
from mitl.crowd_server.work.fields import foreign, read_fields
from mitl.crowd_server.work.sessions import unknown, worker_of
from mitl.crowd_server.work.shell import find_visit, shell


def study(site: Site, request: Request) -> Response:
    """``/w/study``: the information, to read again or to answer."""
    worker = worker_of(site, request)
    if worker is None:
        return unknown(site)
    with site.database.read() as connection:
        found = studies.find(connection, worker.environment)
        given = None if found is None else studies.answer(connection, worker.id, found.version)
    if found is None or not found.is_shown_first:
        return RedirectResponse("/w", 303)
    return ask(site, request, worker, found, given=given is True)


def ask(site: Site, request: Request, worker: WorkerRow, found: StudyRow, *, given: bool = False) -> Response:
    """The page with the information and, until the worker has agreed, its two answers."""
    return site.page("study.html.j2", shell=shell(site, request, worker), study=found, given=given)


def declined(site: Site, request: Request, worker: WorkerRow) -> Response:
    """The kind page for an invited worker who does not take part."""
    return site.page("study_declined.html.j2", shell=shell(site, request, worker))


async def answer(site: Site, request: Request) -> Response:
    """``POST /w/study``: keep the worker's answer and go on."""
    if is_foreign(request):
        return foreign(site)
    fields = await read_fields(request)
    return await run_in_threadpool(_answer, site, request, fields)


def _answer(site: Site, request: Request, fields: dict[str, str]) -> Response:
    worker = worker_of(site, request)
    if worker is None:
        return unknown(site)
    given = {"yes": True, "no": False}.get(fields.get("answer", ""))
    with site.database.write(worker.environment) as connection:
        found = studies.find(connection, worker.environment)
        if found is None:
            return RedirectResponse("/w", 303)
        # The text may have changed while the page was open; nobody agrees to what they have not seen.
        if given is None or fields.get("version") != str(found.version):
            return RedirectResponse("/w/study", 303)
        now = site.clock()
        studies.record(connection, worker.id, found.version, given, now)
        visit = find_visit(site, request, worker, connection)
        if visit is None:
            return RedirectResponse("/w", 303)
        if not given:
            if visit.is_open:
                panels.set_state(connection, visit.id, VisitState.NO_CONSENT, now)
            return RedirectResponse("/w", 303)
        if visit.state is VisitState.NO_CONSENT:
            panels.set_state(connection, visit.id, VisitState.OPEN, now)
        return RedirectResponse(visits.proceed(site, connection, worker, visit), 303)


ROUTES: tuple[tuple[Any, ...], ...] = (
    ("/w/study", study),
    ("/w/study", answer, "POST"),
)
