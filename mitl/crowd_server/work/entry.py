"""What every worker's page asks first: whether this worker has yet to be told about the study."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from mitl.crowd_server.models import VisitState
from mitl.crowd_server.panels import visits
from mitl.crowd_server.site import Site
from mitl.crowd_server.store import studies
from mitl.crowd_server.store.workers import WorkerRow
from mitl.crowd_server.work import study as study_pages
from mitl.crowd_server.work.shell import visit_of


def gate(site: Site, request: Request, worker: WorkerRow) -> Response | None:
    """The page to show in place of the one asked for; None where the worker may go on.

    That is the study's information while the worker has not agreed to its newest version, and a kind page for
    who declined (the panel's own end on a panel's visit).
    """
    with site.database.read() as connection:
        study = studies.find(connection, worker.environment)
        if study is None or not study.is_shown_first:
            return None
        given = studies.answer(connection, worker.id, study.version)
    if given:
        return None
    visit = visit_of(site, request, worker)
    # A new visit is a new chance to agree; what counts is how this one ended.
    refused = given is False and (visit is None or visit.state is VisitState.NO_CONSENT)
    if not refused:
        return study_pages.ask(site, request, worker, study)
    if visit is None:
        return study_pages.declined(site, request, worker)
    return visits.end_page(site, request, worker, visit)
