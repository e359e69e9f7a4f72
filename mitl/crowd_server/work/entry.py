"""What comes before the HITs: the study's information and consent, and a panel participant's way through a visit.

The study link makes participants workers and starts their visit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mitl.crowd_server.pages.panels import (
    PROFILES,
    SLUG,
    Arrival,
    ArrivalError,
    parameters_of,
    read_arrival,
    read_ends,
)
from mitl.crowd_server.pages.site import Site
from mitl.crowd_server.protocol import qualifying
from mitl.crowd_server.protocol.ids import seal
from mitl.crowd_server.store import leases, panels, qualifications, workers
from mitl.crowd_server.store.database import Books
from mitl.crowd_server.store.models import VisitState
from mitl.crowd_server.store.panels import PanelRow, VisitRow
from mitl.crowd_server.store.workers import WorkerRow
from mitl.crowd_server.work.visitor import (
    NO_COOKIE,
    VISIT_COOKIE,
    WITHDRAWN,
    Fields,
    Visitor,
    contact_href,
    current_lease,
    for_workers,
    form,
    seal_lease,
    start_session,
    token_of,
    visitor_of,
    worker_id_of,
)

P = ParamSpec("P")


def gate(visitor: Visitor) -> Response | None:
    """The page to show in place of the one asked for; None where the worker may go on.

    That is the study's information while the worker has not agreed to its newest version, and a kind page for
    who declined (the panel's own end on a panel's visit).
    """
    with visitor.read() as books:
        standing = visitor.standing(books.connection)
        study, consent = standing.study, standing.consent
        if study is None or not study.is_shown_first or consent:
            return None
        visit = visitor.visit(books.connection)
    # A new visit is a new chance to agree; what counts is how this one ended.
    refused = consent is False and (visit is None or visit.state is VisitState.NO_CONSENT)
    if not refused:
        return visitor.page(
            "study.html.j2", study=study, given=False, declined=consent is False, current=None
        )
    if visit is None:
        return visitor.page("study_declined.html.j2")
    return end_page(visitor, visit)


def after_study(
    handler: Callable[Concatenate[Visitor, P], Response],
) -> Callable[Concatenate[Visitor, P], Response]:
    """A page that ``gate`` stands before."""

    @functools.wraps(handler)
    def answer(visitor: Visitor, /, *args: P.args, **kwargs: P.kwargs) -> Response:
        barrier = gate(visitor)
        return handler(visitor, *args, **kwargs) if barrier is None else barrier

    return answer


@for_workers
def study(visitor: Visitor) -> Response:
    """``/w/study``: the information, to read again or, until the worker has agreed, to answer."""
    with visitor.read() as books:
        standing = visitor.standing(books.connection)
    if standing.study is None or not standing.study.is_shown_first:
        return RedirectResponse("/w", 303)
    return visitor.page(
        "study.html.j2",
        study=standing.study,
        given=standing.consent is True,
        declined=standing.consent is False,
        current=current_lease(visitor),
    )


@form
def answer(visitor: Visitor, fields: Fields) -> Response:
    """``POST /w/study``: keep the worker's answer and go on."""
    worker, now = visitor.worker, visitor.now
    agreed = {"yes": True, "no": False}.get(fields.get("answer", ""))
    with visitor.write() as books:
        described = workers.find_study(books.connection, worker.environment)
        if described is None:
            return RedirectResponse("/w", 303)
        # The text may have changed while the page was open; nobody agrees to what they have not seen.
        if agreed is None or fields.get("version") != str(described.version):
            return RedirectResponse("/w/study", 303)
        workers.record_consent(books.connection, worker.id, described.version, agreed, now)
        visit = visitor.visit(books.connection)
        if not agreed:
            leases.withdraw(books, worker)
            if visit is not None and visit.is_open:
                panels.set_state(books.connection, visit.id, VisitState.NO_CONSENT, now)
        if not agreed or visit is None:
            return RedirectResponse("/w", 303)
        if visit.state is VisitState.NO_CONSENT:
            panels.set_state(books.connection, visit.id, VisitState.OPEN, now)
        return RedirectResponse(proceed(visitor, books, visit), 303)


def proceed(visitor: Visitor, books: Books, visit: VisitRow, wish: str = "") -> str:
    """Where this visit leads now: the HIT at hand, a newly accepted one, or its end; writes what it takes.

    Args:
        wish: the HIT type to stay with while it has HITs; else the oldest that is open comes first.
    """
    site, worker, now = visitor.site, visitor.worker, books.now
    current = leases.current(books, worker)
    if current is not None:
        return f"/w/a/{token_of(site, current)}"
    # Read again, because the transaction that counted the last HIT may have just ended.
    kept = panels.visit(books.connection, visit.id)
    if kept is None or not kept.is_open:
        return "/w"
    held = qualifications.held_by(books.connection, worker)
    groups = leases.groups(books, worker)
    for group in sorted(groups, key=lambda group: group.mturk_id != wish):
        if qualifying.may("accept", group.requirements, held):
            leased = leases.accept(books, worker, group.mturk_id)
            if leased is not None:
                return f"/w/a/{seal_lease(site, worker.mturk_id, *leased)}"
    state = VisitState.COMPLETED if kept.hits_done else VisitState.NOTHING_LEFT
    panels.set_state(books.connection, visit.id, state, now)
    return "/w"


def visit_page(visitor: Visitor, visit: VisitRow, notice: str) -> Response:
    """Where the visit stands: between two HITs, or at its end."""
    if not visit.is_open:
        return end_page(visitor, visit)
    with visitor.read() as books:
        standing = visitor.standing(books.connection)
    return visitor.page(
        "panel_visit.html.j2",
        consented=standing.study is not None and standing.study.consent and standing.consent,
        visit=visit,
        panel=PROFILES[visit.profile].title,
        current=current_lease(visitor),
        notice=notice,
    )


def end_page(visitor: Visitor, visit: VisitRow, *, sent: str = "") -> Response:
    """The visit's end: what became of it, the link back to the panel, and the code, always both that there are.

    Args:
        sent: the token of the HIT whose submission led here; its draft is deleted.
    """
    end = read_ends(visit.ends)[visit.state]
    with visitor.read() as books:
        known_as = panels.external_id(books.connection, visitor.worker.id)
    forgotten = visit.session.startswith(panels.FORGOTTEN)
    values = {
        "worker": known_as or "",
        "study": visit.study,
        "session": "" if forgotten else visit.session,
    }
    return visitor.page(
        "panel_end.html.j2",
        visit=visit,
        panel=PROFILES[visit.profile].title,
        state=visit.state.value,
        link=end.link(values),
        code=end.code,
        sent=sent,
    )


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
    try:
        arrival = read_arrival(profile, parameters_of(panel), request.query_params.multi_items())
    except ArrivalError as error:
        # Panels look whether a new study's link answers, and some take 400 for no.
        status = 200 if error.is_bare else 400
        return _refuse(site, panel, status, f"{error} Open the study from {profile.title} again.")
    scope = profile.name if profile.is_stable else f"{profile.name}/{panel.slug}"
    with site.database.write(panel.environment) as connection:
        books = Books(connection, panel.environment, site.clock())
        known = panels.find_identity(books, scope, arrival.worker)
        visit = panels.find_visit(connection, panel.id, arrival.session)
        # Before anybody is added: of who is turned away nothing is kept.
        is_anothers = visit is not None and (known is None or visit.worker_id != known.id)
        worker = None if is_anothers else _worker(books, panel, known, scope, arrival)
        if worker is not None:
            visit_id = visit.id if visit is not None else _new_visit(books, panel, worker, arrival)
    if is_anothers:
        return _refuse(
            site,
            panel,
            403,
            f"The session in this link belongs to another participant. Open the study from {profile.title} again.",
        )
    if worker is None:
        return _refuse(site, panel, 410, "This study link was withdrawn.")
    response = RedirectResponse("/w/start", 303)
    start_session(site, request, response, worker, {VISIT_COOKIE: seal(site.secret, "visit", str(visit_id))})
    return response


def _worker(
    books: Books, panel: PanelRow, known: WorkerRow | None, scope: str, arrival: Arrival
) -> WorkerRow | None:
    """The participant's worker, new or known; None where the invitation behind them was revoked."""
    if known is not None:
        return workers.find_worker(books.connection, known.mturk_id)
    invitation = workers.invitation(books.connection, panel.invitation_id)
    if invitation.revoked_at is not None:
        return None
    worker = workers.add_worker(books.connection, invitation, books.now)
    panels.add_identity(books.connection, worker, scope, arrival.worker)
    return worker


def _new_visit(books: Books, panel: PanelRow, worker: WorkerRow, arrival: Arrival) -> int:
    """The row of a visit that begins."""
    connection, now = books.connection, books.now
    visit_id = panels.add_visit(connection, panel.id, worker.id, arrival.session, arrival.study, now)
    # Who comes after the panel was closed goes back to it by the way for whom nothing is left.
    if panels.is_closed(connection, panel.id):
        panels.set_state(connection, visit_id, VisitState.NOTHING_LEFT, now)
    return visit_id


def start(site: Site, request: Request) -> Response:
    """``/w/start``: from the study link straight to the HIT, once the study's page is answered."""
    visitor = visitor_of(site, request)
    visit = None
    if visitor is None and worker_id_of(site, request) is not None:
        return site.notice(*WITHDRAWN)
    if visitor is not None:
        with visitor.read() as books:
            visit = visitor.visit(books.connection)
    if visitor is None or visit is None:
        return site.notice(*NO_COOKIE)
    if visit.state in (VisitState.COMPLETED, VisitState.NOTHING_LEFT):
        return RedirectResponse("/w", 303)
    if barrier := gate(visitor):
        return barrier
    with visitor.write() as books:
        return RedirectResponse(proceed(visitor, books, visit), 303)


def _refuse(site: Site, panel: PanelRow, status: int, text: str) -> Response:
    with site.database.read() as connection:
        study = workers.find_study(connection, panel.environment)
    contact = "" if study is None else study.contact
    href = contact_href(contact)
    return site.notice(status, "This link does not work", text, contact=contact, contact_href=href)


ROUTES = (
    ("/p/{slug}", arrive),
    ("/w/start", start),
    ("/w/study", study),
    ("/w/study", answer, "POST"),
)
