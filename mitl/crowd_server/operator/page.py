"""``/operator``: what the person who runs the server sees, and what can be done to groups of HITs, twice as once."""

from __future__ import annotations

import hashlib
import json
import secrets

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from mitl.crowd_server.operator import board as boards
from mitl.crowd_server.operator import session as operator_session
from mitl.crowd_server.operator.board import many, money
from mitl.crowd_server.operator.session import Fields, action, memory_of, nothing_here, page
from mitl.crowd_server.pages.site import Site, origin
from mitl.crowd_server.panels.profiles import PROFILES, Parameters, study_link
from mitl.crowd_server.store import accounts, progress, reports
from mitl.crowd_server.store.models import LedgerKind, VisitState
from mitl.crowd_server.store.panels import PanelRow
from mitl.crowd_server.store.progress import Group
from mitl.records import Environment

EXPIRED_AT_ONCE = 100
"""HITs in one transaction; a hundred take some milliseconds."""
NOTICES = {
    "paused": "Paused. Nobody gets another of its HITs; who holds one may finish it.",
    "resumed": "Resumed. Its HITs are given out again.",
    "expired": "Expired. Nobody gets another of its HITs, and what was held for them is free again.",
    "revoked": "Revoked. Whoever came by that invitation is shut out; what they are owed stays owed.",
    "unchanged": "That was so already; nothing was changed.",
}
VISITS = {
    VisitState.OPEN: "under way",
    VisitState.COMPLETED: "completed",
    VisitState.NO_CONSENT: "no consent",
    VisitState.NOTHING_LEFT: "nothing left",
}


def operator(site: Site, request: Request) -> Response:
    """Progress, money, invitations, panels; ``?token=`` opens a session of half a day."""
    token = request.query_params.get("token")
    if token is not None:
        return operator_session.enter(site, request, token)
    return _overview(site, request)


@page
def _overview(site: Site, request: Request) -> Response:
    boards.settle(site)
    now = site.clock()
    with site.database.read() as connection:
        board = boards.board(connection, memory_of(request).spans, now)
        sums = reports.ledger_sums(connection)
        balances = {of: accounts.balance(connection, of) for of in Environment}
    response = site.page(
        "operator.html.j2",
        board=board,
        environments=tuple(reversed(Environment)),
        practice=Environment.SANDBOX,
        visits=VISITS,
        broken=[of for of in Environment if not _balances(of, balances[of], sums)],
        notice=NOTICES.get(request.query_params.get("done", ""), ""),
        form_key=secrets.token_urlsafe(24),
        server_id=site.server_id,
        links={row.slug: _study_link(request, row) for row, _ in board.panels},
        now=now,
    )
    response.headers["Content-Security-Policy"] += "; connect-src 'self'"
    return response


def state(site: Site, request: Request) -> Response:
    """The numbers of the page as JSON; nothing where they are those that the browser has."""
    if not operator_session.is_signed_in(site, request):
        return JSONResponse({"signed_in": False}, 403, {"Cache-Control": "no-store"})
    boards.settle(site)
    with site.database.read() as connection:
        board = boards.board(connection, memory_of(request).spans, site.clock())
    body = json.dumps({"texts": board.texts, "bars": board.bars, "shape": board.shape}).encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
    headers = {"ETag": tag, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    # Proxies that compress mark the tag as weak.
    if tag == request.headers.get("if-none-match", "").removeprefix("W/"):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


@page
def active(site: Site, request: Request) -> Response:
    """Who holds a HIT just now."""
    now = site.clock()
    with site.database.read() as connection:
        rows = progress.active(connection, now)
    return site.page("operator_active.html.j2", rows=rows, now=now)


@page
def late(site: Site, request: Request) -> Response:
    """Answers that came after their assignment's time."""
    with site.database.read() as connection:
        rows = list(reports.late_answers(connection))
    return site.page("operator_late.html.j2", rows=rows)


def _study_link(request: Request, row: PanelRow) -> str:
    """What to paste into the panel."""
    names = Parameters(row.worker_parameter, row.study_parameter, row.session_parameter)
    return study_link(origin(request), row.slug, PROFILES[row.profile], names)


def _balances(
    environment: Environment, balance: accounts.Balance, sums: dict[tuple[Environment, LedgerKind], int]
) -> bool:
    """Whether the ledger's rows add up to the account."""
    moved = {kind: sums.get((environment, kind), 0) for kind in LedgerKind}
    held = moved[LedgerKind.HOLD] - moved[LedgerKind.RELEASE]
    spent = moved[LedgerKind.REWARD] + moved[LedgerKind.BONUS]
    return (moved[LedgerKind.BUDGET], held, spent) == (balance.budget, balance.held, balance.spent)


@action
def pause(site: Site, request: Request, fields: Fields) -> Response:
    """Give out no more HITs of a group."""
    group = _group(site, request)
    if group is None:
        return _unknown(site)
    with site.database.write(group.environment) as connection:
        changed = progress.pause(connection, group, site.clock())
    return back("paused" if changed else "unchanged")


@action
def resume(site: Site, request: Request, fields: Fields) -> Response:
    """Give out a group's HITs again."""
    group = _group(site, request)
    if group is None:
        return _unknown(site)
    with site.database.write(group.environment) as connection:
        changed = progress.resume(connection, group)
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
            count = progress.expire_some(connection, group, now, limit=EXPIRED_AT_ONCE)
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
        return progress.find_group(connection, request.path_params["group"])


def _unknown(site: Site) -> Response:
    text = "There is no group of HITs with this id. Go back and use the buttons of the list."
    return nothing_here(site, text)


ROUTES = (
    ("/operator", operator),
    ("/operator/state", state),
    ("/operator/active", active),
    ("/operator/late", late),
    ("/operator/groups/{group}/pause", pause, "POST"),
    ("/operator/groups/{group}/resume", resume, "POST"),
    ("/operator/groups/{group}/expire", ask_to_expire),
    ("/operator/groups/{group}/expire", expire, "POST"),
)
