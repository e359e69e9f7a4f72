"""What the operator does to a group of HITs by the page: pause, resume, expire. Twice does what once did."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mitl.crowd_server.operator import answers as operator_answers
from mitl.crowd_server.operator import csv_files as operator_csv
from mitl.crowd_server.operator import invitations as operator_invitations
from mitl.crowd_server.operator import payments as operator_payments
from mitl.crowd_server.operator import session as operator_session
from mitl.crowd_server.operator.session import Fields, action, page
from mitl.crowd_server.operator.words import many, money
from mitl.crowd_server.site import Site
from mitl.crowd_server.store import groups, progress
from mitl.crowd_server.store.groups import Group

EXPIRED_AT_ONCE = 100
"""HITs in one transaction; a hundred take some milliseconds."""


@action
def pause(site: Site, request: Request, fields: Fields) -> Response:
    """Give out no more HITs of a group."""
    group = _group(site, request)
    if group is None:
        return _unknown(site)
    with site.database.write(group.environment) as connection:
        changed = groups.pause(connection, group, site.clock())
    return back("paused" if changed else "unchanged")


@action
def resume(site: Site, request: Request, fields: Fields) -> Response:
    """Give out a group's HITs again."""
    group = _group(site, request)
    if group is None:
        return _unknown(site)
    with site.database.write(group.environment) as connection:
        changed = groups.resume(connection, group)
    return back("resumed" if changed else "unchanged")


@page
def ask_to_expire(site: Site, request: Request) -> Response:
    """What expiring a group would do, with the button that does it."""
    now = site.clock()
    with site.database.read() as connection:
        rows = progress.groups(connection, now)
    row = next((one for one in rows if one.mturk_id == request.path_params["group"]), None)
    if row is None:
        return _unknown(site)
    if not row.open_hits:
        return back("unchanged")
    free = max(0, row.left - row.working)
    lines = [
        f"{many(row.open_hits, 'HIT is', 'HITs are')} open; {many(row.left, 'answer is', 'answers are')} still wanted. "
        "Nobody could accept one any more.",
        f"{many(row.working, 'worker holds a HIT', 'workers hold a HIT')} just now and may finish it.",
        f"Up to {money(free * row.reward_cents)} that is held for them would be free again.",
        "Pausing stops the work too, and can be undone; to undo this, the requester has to move each HIT's expiry.",
    ]
    return site.page(
        "operator_confirm.html.j2",
        title=f"Expire “{row.title}”?",
        lines=lines,
        target=f"/operator/groups/{row.mturk_id}/expire",
        button="Expire the group",
    )


@action
def expire(site: Site, request: Request, fields: Fields) -> Response:
    """Expire all open HITs of a group; who holds one may finish it."""
    group = _group(site, request)
    if group is None:
        return _unknown(site)
    now, total = site.clock(), 0
    while True:
        with site.database.write(group.environment) as connection:
            count = groups.expire_some(connection, group, now, limit=EXPIRED_AT_ONCE)
        total += count
        if count < EXPIRED_AT_ONCE:
            return back("expired" if total else "unchanged")


def back(done: str) -> Response:
    """Back to the overview, which says what was done."""
    return RedirectResponse(f"/operator?done={done}", 303)


def _group(site: Site, request: Request) -> Group | None:
    if not request.path_params["group"].isalnum():
        return None
    with site.database.read() as connection:
        return groups.find(connection, request.path_params["group"])


def _unknown(site: Site) -> Response:
    text = "There is no group of HITs with this id. Go back and use the buttons of the list."
    return site.notice(404, "Nothing here", text, ("/operator", "Back to the operator's page"))


ROUTES: tuple[Any, ...] = (
    ("/operator/groups/{group}/pause", pause, "POST"),
    ("/operator/groups/{group}/resume", resume, "POST"),
    ("/operator/groups/{group}/expire", ask_to_expire),
    ("/operator/groups/{group}/expire", expire, "POST"),
    *operator_answers.ROUTES,
    *operator_session.ROUTES,
    *operator_invitations.ROUTES,
    *operator_csv.ROUTES,
    *operator_payments.ROUTES,
)
