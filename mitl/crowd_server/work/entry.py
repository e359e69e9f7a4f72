"""What comes before the HITs: the study's information and consent, and a panel participant's way through a visit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec

from sqlalchemy import Connection
from starlette.responses import RedirectResponse, Response

from mitl.crowd_server.panels.profiles import PROFILES, read_ends
from mitl.crowd_server.protocol import qualifying
from mitl.crowd_server.store import leases, panels, qualifications, studies
from mitl.crowd_server.store.models import VisitState
from mitl.crowd_server.store.panels import VisitRow
from mitl.crowd_server.work.visitor import (
    Fields,
    Visitor,
    current_lease,
    for_workers,
    form,
    seal_lease,
    token_of,
)

P = ParamSpec("P")


def gate(visitor: Visitor) -> Response | None:
    """The page to show in place of the one asked for; None where the worker may go on.

    That is the study's information while the worker has not agreed to its newest version, and a kind page for
    who declined (the panel's own end on a panel's visit).
    """
    with visitor.database.read() as connection:
        study = studies.find(connection, visitor.worker.environment)
        if study is None or not study.is_shown_first:
            return None
        given = studies.answer(connection, visitor.worker.id, study.version)
        if given:
            return None
        visit = visitor.visit(connection)
    # A new visit is a new chance to agree; what counts is how this one ended.
    refused = given is False and (visit is None or visit.state is VisitState.NO_CONSENT)
    if not refused:
        return visitor.page("study.html.j2", study=study, given=False)
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
    with visitor.database.read() as connection:
        described = studies.find(connection, visitor.worker.environment)
        if described is None or not described.is_shown_first:
            return RedirectResponse("/w", 303)
        given = studies.answer(connection, visitor.worker.id, described.version)
    return visitor.page("study.html.j2", study=described, given=given is True)


@form
def answer(visitor: Visitor, fields: Fields) -> Response:
    """``POST /w/study``: keep the worker's answer and go on."""
    worker, now = visitor.worker, visitor.now
    given = {"yes": True, "no": False}.get(fields.get("answer", ""))
    with visitor.database.write(worker.environment) as connection:
        described = studies.find(connection, worker.environment)
        if described is None:
            return RedirectResponse("/w", 303)
        # The text may have changed while the page was open; nobody agrees to what they have not seen.
        if given is None or fields.get("version") != str(described.version):
            return RedirectResponse("/w/study", 303)
        studies.record(connection, worker.id, described.version, given, now)
        visit = visitor.visit(connection)
        if visit is None:
            return RedirectResponse("/w", 303)
        if not given:
            if visit.is_open:
                panels.set_state(connection, visit.id, VisitState.NO_CONSENT, now)
            return RedirectResponse("/w", 303)
        if visit.state is VisitState.NO_CONSENT:
            panels.set_state(connection, visit.id, VisitState.OPEN, now)
        return RedirectResponse(proceed(visitor, connection, visit), 303)


def proceed(visitor: Visitor, connection: Connection, visit: VisitRow, wish: str = "") -> str:
    """Where this visit leads now: the HIT at hand, a newly accepted one, or its end; writes what it takes.

    Args:
        wish: the HIT type to stay with while it has HITs; else the oldest that is open comes first.
    """
    site, worker, now = visitor.site, visitor.worker, visitor.now
    current = leases.current(connection, worker, now)
    if current is not None:
        return f"/w/a/{token_of(site, current)}"
    # Read again, because the transaction that counted the last HIT may have just ended.
    known = panels.visit(connection, visit.id)
    if known is None or not known.is_open:
        return "/w"
    held = qualifications.held_by(connection, worker)
    groups = leases.groups(connection, worker, now)
    for group in sorted(groups, key=lambda group: group.mturk_id != wish):
        if qualifying.may("accept", group.requirements, held):
            leased = leases.accept(connection, worker, group.mturk_id, now)
            if leased is not None:
                return f"/w/a/{seal_lease(site, *leased)}"
    state = VisitState.COMPLETED if known.hits_done else VisitState.NOTHING_LEFT
    panels.set_state(connection, visit.id, state, now)
    return "/w"


def visit_page(visitor: Visitor, visit: VisitRow, notice: str) -> Response:
    """Where the visit stands: between two HITs, or at its end."""
    if not visit.is_open:
        return end_page(visitor, visit)
    return visitor.page(
        "panel_visit.html.j2",
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
    with visitor.database.read() as connection:
        known_as = panels.external_id(connection, visitor.worker.id)
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


ROUTES = (("/w/study", study), ("/w/study", answer, "POST"))
