"""A panel participant's way: straight to a HIT, on to the next while the visit asks for more, then back."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from mitl.crowd_server.models import VisitState
from mitl.crowd_server.panels.ends import read_ends
from mitl.crowd_server.panels.profiles import PROFILES
from mitl.crowd_server.qualifications import qualifying
from mitl.crowd_server.site import Site
from mitl.crowd_server.store import identities, leases, panels, qualifications
from mitl.crowd_server.store.panels import VisitRow
from mitl.crowd_server.store.workers import WorkerRow
from mitl.crowd_server.work import frames
from mitl.crowd_server.work.shell import shell


def proceed(site: Site, connection: Connection, worker: WorkerRow, visit: VisitRow, wish: str = "") -> str:
    """Where this visit leads now: the HIT at hand, a newly accepted one, or its end; writes what it takes.

    Args:
        wish: the HIT type to stay with while it has HITs; else the oldest that is open comes first.
    """
    now = site.clock()
    current = leases.current(connection, worker, now)
    if current is not None:
        return f"/w/a/{frames.token_of(site, current)}"
    # Read again, because the transaction that counted the last HIT may have just ended.
    known = panels.visit(connection, visit.id)
    if known is None or not known.is_open:
        return "/w"
    leased = _lease(connection, worker, wish, now)
    if leased is not None:
        return f"/w/a/{frames.seal_lease(site, *leased)}"
    state = VisitState.COMPLETED if known.hits_done else VisitState.NOTHING_LEFT
    panels.set_state(connection, visit.id, state, now)
    return "/w"


def _lease(
    connection: Connection, worker: WorkerRow, wish: str, now: dt.datetime
) -> tuple[int, dt.datetime] | None:
    held = qualifications.held_by(connection, worker)
    groups = leases.groups(connection, worker, now)
    for group in sorted(groups, key=lambda group: group.mturk_id != wish):
        if qualifying.may("accept", group.requirements, held):
            leased = leases.accept(connection, worker, group.mturk_id, now)
            if leased is not None:
                return leased
    return None


def page(site: Site, request: Request, worker: WorkerRow, visit: VisitRow, notice: str = "") -> Response:
    """Where the visit stands: between two HITs, or at its end."""
    if not visit.is_open:
        return end_page(site, request, worker, visit)
    with site.database.read() as connection:
        current = leases.current(connection, worker, site.clock())
    return site.page(
        "panel_visit.html.j2",
        shell=shell(site, request, worker),
        visit=visit,
        panel=PROFILES[visit.profile].title,
        current=current and (current, frames.token_of(site, current)),
        notice=notice,
    )


def end_page(site: Site, request: Request, worker: WorkerRow, visit: VisitRow, *, sent: str = "") -> Response:
    """The visit's end: what became of it, the link back to the panel, and the code, always both that there are.

    Args:
        sent: the token of the HIT whose submission led here; its draft is deleted.
    """
    end = read_ends(visit.ends)[visit.state]
    with site.database.read() as connection:
        known_as = identities.external_id(connection, worker.id)
    forgotten = visit.session.startswith(identities.FORGOTTEN)
    values = {
        "worker": known_as or "",
        "study": visit.study,
        "session": "" if forgotten else visit.session,
    }
    return site.page(
        "panel_end.html.j2",
        shell=shell(site, request, worker),
        visit=visit,
        panel=PROFILES[visit.profile].title,
        state=visit.state.value,
        link=end.link(values),
        code=end.code,
        sent=sent,
    )
