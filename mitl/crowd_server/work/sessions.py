"""Invitation links become sessions: joining, and who the browser at hand belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mitl.crowd_server.ids import seal, token_hash, unseal
from mitl.crowd_server.site import Site
from mitl.crowd_server.store import workers
from mitl.crowd_server.store.workers import InvitationRow, WorkerRow

COOKIE = "mitl_worker"
COOKIE_AGE_S = 180 * 24 * 3600


def worker_of(site: Site, request: Request) -> WorkerRow | None:
    """The worker whose browser this is; None without a session, or where the invitation was revoked."""
    mturk_id = unseal(site.secret, "worker", request.cookies.get(COOKIE, ""))
    if mturk_id is None:
        return None
    with site.database.read() as connection:
        return workers.find_worker(connection, mturk_id)


def join(site: Site, request: Request) -> Response:
    """Open an invitation: start a session and go to the list of HITs.

    A personal link leads to the same worker each time, on any browser, so that a lost cookie (or a chat
    program that previews links) costs nothing. Other links make a new worker for each new browser.
    """
    hashed = token_hash(request.path_params["token"])
    with site.database.read() as connection:
        invitation = workers.find_invitation(connection, hashed)
    if invitation is None:
        return _refuse(site, 404, "This link is not known here. Check that it was copied whole.")
    now = site.clock()
    present = worker_of(site, request)
    with site.database.write(invitation.environment) as connection:
        invitation = workers.find_invitation(connection, hashed)
        assert invitation is not None
        state = invitation.state(now)
        worker = _returning(invitation, present) or (
            workers.worker_of_invitation(connection, invitation.id) if invitation.personal else None
        )
        if state in ("expired", "revoked") or (state == "used up" and worker is None):
            return _refuse(
                site, 410, f"This invitation is {state}. Ask the person who sent it for a new one."
            )
        if worker is None:
            worker = workers.add_worker(connection, invitation, now)
    response = RedirectResponse("/w", 303)
    start_session(site, request, response, worker)
    return response


def start_session(
    site: Site,
    request: Request,
    response: Response,
    worker: WorkerRow,
    others: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Make this browser the worker's, by a sealed cookie that lasts; ``others`` are cookies beside it."""
    for name, value in {COOKIE: seal(site.secret, "worker", worker.mturk_id), **others}.items():
        response.set_cookie(
            name,
            value,
            max_age=COOKIE_AGE_S,
            path="/w",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="lax",
        )


def unknown(site: Site) -> Response:
    """The page for a browser without a session."""
    return _refuse(
        site, 403, "This page needs an invitation link. Open yours again, or ask the person who sent it."
    )


def _returning(invitation: InvitationRow, present: WorkerRow | None) -> WorkerRow | None:
    """The worker who opens an open link again in the same browser."""
    if present is None or present.invitation_id != invitation.id:
        return None
    return present


def _refuse(site: Site, status: int, text: str) -> Response:
    return site.notice(status, "No entry", text)


ROUTES = (("/w/join/{token}", join),)
