"""``/operator``: the rows that the operator sees at one moment, and every number that changes by itself, as text."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mitl.core.formats import count
from mitl.core.pricing import format_dollars
from mitl.crowd_server.operator import session as operator_session
from mitl.crowd_server.operator.session import KeptSpans, page, settle
from mitl.crowd_server.pages.panels import link_of
from mitl.crowd_server.pages.site import Site, origin
from mitl.crowd_server.store import accounts, panels, progress, reports, workers
from mitl.crowd_server.store.models import LedgerKind, VisitState
from mitl.crowd_server.store.panels import PanelRow
from mitl.crowd_server.store.progress import HOUR, GroupRow, Recent, Span
from mitl.crowd_server.store.workers import InvitationRow, StudyRow
from mitl.records import Environment

UNKNOWN = "-"
FEWEST_ANSWERS = 3
"""A pace from fewer says nothing about when the work will be done."""
_SHORTEST = dt.timedelta(minutes=1)


def rate(span: Span | None) -> str:
    """Answers an hour from the first acceptance to the last submission."""
    if span is None or span.last_submitted_at - span.first_accepted_at < _SHORTEST:
        return UNKNOWN
    value = span.count / ((span.last_submitted_at - span.first_accepted_at) / HOUR)
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def pace(done: int, recent: Recent | None, now: dt.datetime) -> float | None:
    """Answers an hour of late: over the last hour, or since the work began where that is less ago."""
    if recent is None or recent.count < FEWEST_ANSWERS:
        return None
    span = HOUR
    if recent.count == done:
        span = min(HOUR, now - recent.first_accepted_at)
    return recent.count / (span / HOUR) if span >= _SHORTEST else None


def finish(group: GroupRow, recent: Recent | None, now: dt.datetime) -> str:
    """When a HIT type will be done at its present pace, and whether its HITs expire before that."""
    speed = pace(group.done, recent, now)
    if group.state != "open" or speed is None:
        return UNKNOWN
    hours = group.left / speed
    if hours > 365 * 24:
        return "in more than a year"
    at = _round_up(now + hours * HOUR, dt.timedelta(minutes=5) if hours < 24 else HOUR)
    words = in_words(at, now)
    if group.expires_at is not None and group.expires_at < at:
        return f"{words}, but HITs expire before"
    return words


def in_words(at: dt.datetime, now: dt.datetime) -> str:
    """A time to come: ``today, 17:40 UTC``, ``tomorrow, 09:15 UTC``, ``Mon 23 Nov, 09:00 UTC``."""
    days = (at.date() - now.date()).days
    if days == 0:
        day = "today"
    elif days == 1:
        day = "tomorrow"
    else:
        day = f"{at:%a} {at.day} {at:%b}" + (f" {at.year}" if at.year != now.year else "")
    return f"{day}, {at:%H:%M} UTC"


def _round_up(at: dt.datetime, step: dt.timedelta) -> dt.datetime:
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + math.ceil((at - midnight) / step) * step


SHOWN_INVITATIONS = 50

Visits = Mapping[VisitState, int]


@dataclass(frozen=True, slots=True)
class Board:
    """The page's content.

    ``texts`` holds every number that changes without new rows, by the name that the page's markup gives its place;
    ``bars`` done and wanted of each progress bar.
    """

    groups: Sequence[GroupRow]
    invitations: Sequence[tuple[InvitationRow, str]]
    """Each with its state."""
    invited: int
    """How many invitations there are; the rows are the newest of them."""
    panels: Sequence[tuple[PanelRow, Visits]]
    studies: Sequence[StudyRow]
    texts: Mapping[str, str]
    bars: Mapping[str, tuple[int, int]]

    @property
    def shape(self) -> str:
        """Which rows there are and in which state: when it changes, new numbers alone do not do."""
        rows = [
            [(group.mturk_id, group.state, group.is_over) for group in self.groups],
            [(row.id, state) for row, state in self.invitations],
            [(row.slug, row.closed_at is None) for row, _ in self.panels],
            [(study.environment, study.version) for study in self.studies],
        ]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]


def read_board(connection: Connection, spans: KeptSpans, now: dt.datetime) -> Board:
    """Read everything in one view of the database."""
    groups = progress.groups(connection, now)
    recent = progress.recent(connection, now)
    span_of = spans.of(connection, tuple((group.id, group.done) for group in groups), now)
    invitations, invited = reports.invitations(connection, limit=SHOWN_INVITATIONS)
    known_panels = panels.list_panels(connection)
    texts = {"late": count(reports.count_late(connection))}
    for environment in Environment:
        texts |= _sums(environment, [group for group in groups if group.environment is environment], recent)
    for group in groups:
        texts |= _group(group, recent.get(group.id), span_of.get(group.id), now)
    for row in invitations:
        texts[f"invitation-{row.id}.uses"] = count(row.uses)
    for panel, visits in known_panels:
        texts |= {f"panel-{panel.slug}.{state}": count(visits.get(state, 0)) for state in VisitState}
    bonuses = reports.bonus_sums(connection)
    for environment in Environment:
        texts |= _money(environment, accounts.balance(connection, environment), bonuses.get(environment, 0))
    return Board(
        groups=groups,
        invitations=[(row, row.state(now)) for row in invitations],
        invited=invited,
        panels=known_panels,
        studies=[study for of in Environment if (study := workers.find_study(connection, of)) is not None],
        texts=texts,
        bars={group.mturk_id: (group.done, group.wanted) for group in groups},
    )


def _group(group: GroupRow, recent: Recent | None, span: Span | None, now: dt.datetime) -> dict[str, str]:
    counts = ("hits", "wanted", "done", "waiting", "rejected", "working")
    values = {name: count(getattr(group, name)) for name in counts} | {
        "hour": count(recent.count if recent else 0),
        "overall": rate(span),
        "finish": finish(group, recent, now),
    }
    return {f"{group.mturk_id}.{name}": value for name, value in values.items()}


def _sums(
    environment: Environment, groups: Sequence[GroupRow], recent: Mapping[int, Recent]
) -> dict[str, str]:
    hour = sum(recent[group.id].count for group in groups if group.id in recent)
    return {
        f"{environment}.working": count(sum(group.working for group in groups)),
        f"{environment}.waiting": count(sum(group.waiting for group in groups)),
        f"{environment}.hour": count(hour),
    }


def _money(environment: Environment, balance: accounts.Balance, bonuses: int) -> dict[str, str]:
    always = "always " if environment is Environment.SANDBOX else ""
    return {
        f"{environment}.budget": format_dollars(balance.budget),
        f"{environment}.held": format_dollars(balance.held),
        f"{environment}.approved": format_dollars(balance.spent - bonuses),
        f"{environment}.bonuses": format_dollars(bonuses),
        f"{environment}.owed": format_dollars(balance.spent),
        f"{environment}.available": always + format_dollars(balance.available),
    }


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
    now = site.clock()
    with site.database.read() as connection:
        board = read_board(connection, request.app.state.spans, now)
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
        links={row.slug: link_of(row, origin(request)) for row, _ in board.panels},
        now=now,
    )
    response.headers["Content-Security-Policy"] += "; connect-src 'self'"
    return response


def state(site: Site, request: Request) -> Response:
    """The numbers of the page as JSON; nothing where they are those that the browser has."""
    if not operator_session.is_signed_in(site, request):
        return JSONResponse({"signed_in": False}, 403, {"Cache-Control": "no-store"})
    settle(site)
    with site.database.read() as connection:
        board = read_board(connection, request.app.state.spans, site.clock())
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


def _balances(
    environment: Environment, balance: accounts.Balance, sums: dict[tuple[Environment, LedgerKind], int]
) -> bool:
    """Whether the ledger's rows add up to the account."""
    moved = {kind: sums.get((environment, kind), 0) for kind in LedgerKind}
    held = moved[LedgerKind.HOLD] - moved[LedgerKind.RELEASE]
    spent = moved[LedgerKind.REWARD] + moved[LedgerKind.BONUS]
    return (moved[LedgerKind.BUDGET], held, spent) == (balance.budget, balance.held, balance.spent)


ROUTES = (
    ("/operator", operator),
    ("/operator/state", state),
    ("/operator/active", active),
    ("/operator/late", late),
)
