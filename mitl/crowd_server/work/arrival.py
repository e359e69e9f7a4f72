"""How a panel's participants come: the study link makes them workers and starts their visit."""

from __future__ import annotations

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mitl.crowd_server.pages.site import Site
from mitl.crowd_server.panels.profiles import (
    PROFILES,
    SLUG,
    Arrival,
    ArrivalError,
    Parameters,
    Profile,
    read_arrival,
)
from mitl.crowd_server.store import panels, studies, workers
from mitl.crowd_server.store.models import VisitState
from mitl.crowd_server.store.panels import PanelRow
from mitl.crowd_server.store.workers import WorkerRow
from mitl.crowd_server.work.entry import gate, proceed
from mitl.crowd_server.work.visitor import VISIT_COOKIE, contact_href, seal_visit, start_session, visitor_of


def arrive(site: Site, request: Request) -> Response:
    """``/p/<slug>?…``: take a participant in; the same session again is the same visit."""
    slug = request.path_params["slug"]
    with site.database.read() as connection:
        panel = panels.find(connection, slug) if SLUG.fullmatch(slug) else None
    if panel is None:
        return site.notice(
            404, "No such study", "This study link is not known here. Check that it was copied whole."
        )
    profile = PROFILES[panel.profile]
    names = Parameters(panel.worker_parameter, panel.study_parameter, panel.session_parameter)
    try:
        arrival = read_arrival(profile, names, request.query_params.multi_items())
    except ArrivalError as error:
        # Panels look whether a new study's link answers, and some take 400 for no.
        status = 200 if error.is_bare else 400
        return _refuse(site, panel, status, f"{error} Open the study from {profile.title} again.")
    with site.database.write(panel.environment) as connection:
        worker = _worker(connection, site, panel, profile, arrival)
        if worker is None:
            return _refuse(site, panel, 410, "This study link was withdrawn.")
        visit_id = _visit(connection, site, panel, worker, arrival)
    if visit_id is None:
        return _refuse(
            site,
            panel,
            403,
            f"The session in this link belongs to another participant. Open the study from {profile.title} again.",
        )
    response = RedirectResponse("/w/start", 303)
    start_session(site, request, response, worker, {VISIT_COOKIE: seal_visit(site, visit_id)})
    return response


def _worker(
    connection: Connection, site: Site, panel: PanelRow, profile: Profile, arrival: Arrival
) -> WorkerRow | None:
    """The participant's worker, new or known; None where the invitation behind them was revoked."""
    scope = profile.name if profile.is_stable else f"{profile.name}/{panel.slug}"
    worker = panels.find_identity(connection, panel.environment, scope, arrival.worker)
    if worker is not None:
        return workers.find_worker(connection, worker.mturk_id)
    invitation = workers.invitation(connection, panel.invitation_id)
    if invitation.revoked_at is not None:
        return None
    worker = workers.add_worker(connection, invitation, site.clock())
    panels.add_identity(connection, worker, scope, arrival.worker)
    return worker


def _visit(
    connection: Connection, site: Site, panel: PanelRow, worker: WorkerRow, arrival: Arrival
) -> int | None:
    """The row of this session's visit, new or old; None where it is another participant's."""
    visit = panels.find_visit(connection, panel.id, arrival.session)
    if visit is not None:
        return visit.id if visit.worker_id == worker.id else None
    now = site.clock()
    own = panels.add_visit(connection, panel.id, worker.id, arrival.session, arrival.study, now)
    # Who comes after the panel was closed goes back to it by the way for whom nothing is left.
    if panels.is_closed(connection, panel.id):
        panels.set_state(connection, own, VisitState.NOTHING_LEFT, now)
    return own


def start(site: Site, request: Request) -> Response:
    """``/w/start``: from the study link straight to the HIT, once the study's page is answered."""
    visitor = visitor_of(site, request)
    visit = None
    if visitor is not None:
        with site.database.read() as connection:
            visit = visitor.visit(connection)
    if visitor is None or visit is None:
        return site.notice(
            403,
            "No entry",
            "Your browser did not keep this site's cookie. Allow cookies for it, then open the study link again.",
        )
    if visit.state in (VisitState.COMPLETED, VisitState.NOTHING_LEFT):
        return RedirectResponse("/w", 303)
    barrier = gate(visitor)
    if barrier is not None:
        return barrier
    with site.database.write(visitor.worker.environment) as connection:
        return RedirectResponse(proceed(visitor, connection, visit), 303)


def _refuse(site: Site, panel: PanelRow, status: int, text: str) -> Response:
    with site.database.read() as connection:
        study = studies.find(connection, panel.environment)
    contact = "" if study is None else study.contact
    return site.page(
        "notice.html.j2",
        status=status,
        title="This link does not work",
        text=text,
        link=None,
        contact=contact,
        contact_href=contact_href(contact),
    )


ROUTES = (("/p/{slug}", arrive), ("/w/start", start))
