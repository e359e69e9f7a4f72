"""Groups of HITs: their HITs and previews, the answers that were sent, and pausing or expiring a group."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from mitl.core.pricing import format_dollars
from mitl.crowd_server.api import shapes
from mitl.crowd_server.operator.session import Fields, action, back, nothing_here, page
from mitl.crowd_server.pages import questions
from mitl.crowd_server.pages.site import NoticeError, Site
from mitl.crowd_server.store import assignments, hits, progress, reports
from mitl.crowd_server.store.assignments import AssignmentRow
from mitl.crowd_server.store.database import Books, Portion
from mitl.crowd_server.store.hits import HitRow
from mitl.crowd_server.store.progress import GroupRow
from mitl.crowd_server.work import hit_frame
from mitl.errors import AnswerError
from mitl.protocol.answer_xml import answer_fields
from mitl.records import Environment, several

EXPIRED_AT_ONCE = 100
"""HITs in one transaction; a hundred take some milliseconds."""
A_PAGE = 25
MOST = 200
"""Submissions listed of one HIT; its requester reads them all by the API."""


@page
def group(site: Site, request: Request) -> Response:
    """``/operator/groups/{group}``: its HITs by portions (``?after=``), and what was sent in last."""
    now, after = site.clock(), _number(request.query_params.get("after", ""))
    row = _group(site, request)
    with site.database.read() as connection:
        books = Books(connection, row.environment, now)
        rows = hits.list_of_type(books, row.id, Portion(after, A_PAGE + 1))
        latest = assignments.latest_of_type(connection, row.id, limit=A_PAGE)
    shown = rows[:A_PAGE]
    return site.page(
        "operator_group.html.j2",
        group=row,
        hits=[(hit, hit.status(now)) for hit in shown],
        after=after,
        following=shown[-1].id if len(rows) > A_PAGE else None,
        submissions=latest,
        states=shapes.STATUS,
    )


@page
def hit(site: Site, request: Request) -> Response:
    """``/operator/hits/{hit}``: the HIT's page as a worker sees it before taking it, and what was sent in for it."""
    now = site.clock()
    with site.database.read() as connection:
        row = _hit(site, connection, request.path_params["hit"])
        if row is None:
            raise _unknown()
        question = site.questions.of(connection, row.id)
        sent = assignments.list_of_hit(connection, row.id, tuple(shapes.STATUS), Portion(0, MOST))
    return site.page(
        "operator_hit.html.j2",
        hit=row,
        state=row.status(now),
        submissions=sent,
        states=shapes.STATUS,
        elsewhere=question.url,
        height=question.frame_height,
        frame=hit_frame.preview_address(site, request, question, row),
    )


@page
def submission(site: Site, request: Request) -> Response:
    """``/operator/submissions/{number}``: the fields of one submission as its worker sent them."""
    with site.database.read() as connection:
        row = assignments.find_row(connection, request.path_params["number"])
        if row is None:
            raise _unknown()
        state = shapes.STATUS[row.state]
        said = {"at": row.submitted_at, "verb": "submitted", "state": state, "feedback": row.feedback}
        return _answers(site, connection, row, row.answer, **said)


@page
def late(site: Site, request: Request) -> Response:
    """``/operator/late/{number}``: the fields of answers that came after their assignment's time."""
    with site.database.read() as connection:
        late_answer = reports.late_answer(connection, request.path_params["number"])
        if late_answer is None:
            raise _unknown()
        row, answer = late_answer
        said = {"at": row.received_at, "verb": "received", "state": "came too late", "feedback": ""}
        return _answers(site, connection, row, answer, **said)


def _answers(
    site: Site, connection: Connection, row: AssignmentRow | reports.LateRow, answer: str, **said: Any
) -> Response:
    fields, raw = _fields(connection, row.hit_id, answer)
    hit = _hit(site, connection, row.hit)
    return site.page("operator_answers.html.j2", row=row, hit=hit, fields=fields, raw=raw, **said)


def _fields(connection: Connection, hit_id: int, answer: str) -> tuple[Sequence[tuple[str, str]], str]:
    """The (name, value) fields in the order in which they came; the document itself where it cannot be read."""
    form = questions.form_of(hits.form(connection, hit_id))
    try:
        return answer_fields(answer if form is None else questions.answer_xml(form, answer)), ""
    except AnswerError:
        return (), answer


def _hit(site: Site, connection: Connection, mturk_id: str) -> HitRow | None:
    """The HIT of this id, of either environment."""
    either = (hits.find_hit(Books(connection, of, site.clock()), mturk_id) for of in Environment)
    return next((row for row in either if row is not None), None)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _unknown() -> NoticeError:
    return nothing_here("Nothing has this number or id. Go back and follow the links of the lists.")


@action
def pause(site: Site, request: Request, fields: Fields) -> Response:
    """Give out no more HITs of a group."""
    return _set_paused(site, request, site.clock(), "paused")


@action
def resume(site: Site, request: Request, fields: Fields) -> Response:
    """Give out a group's HITs again."""
    return _set_paused(site, request, None, "resumed")


def _set_paused(site: Site, request: Request, since: dt.datetime | None, done: str) -> Response:
    group = _group(site, request)
    with site.database.write(group.environment) as connection:
        changed = progress.set_paused(connection, group, since)
    return back(done if changed else "unchanged")


@page
def ask_to_expire(site: Site, request: Request) -> Response:
    """What expiring a group would do, with the button that does it."""
    row = _group(site, request)
    if not row.open_hits:
        return back("unchanged")
    free = max(0, row.left - row.working)
    lines = [
        f"{several(row.open_hits, 'HIT is', 'HITs are')} open; {several(row.left, 'answer is', 'answers are')} still "
        "wanted. Nobody could accept one any more.",
        f"{several(row.working, 'worker holds a HIT', 'workers hold a HIT')} just now and may finish it.",
        f"Up to {format_dollars(free * row.reward_cents)} that is held for them would be free again.",
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
    now, total = site.clock(), 0
    while True:
        with site.database.write(group.environment) as connection:
            count = progress.expire_some(connection, group, now, limit=EXPIRED_AT_ONCE)
        total += count
        if count < EXPIRED_AT_ONCE:
            return back("expired" if total else "unchanged")


def _group(site: Site, request: Request) -> GroupRow:
    with site.database.read() as connection:
        groups = {row.mturk_id: row for row in progress.groups(connection, site.clock())}
    group = groups.get(request.path_params["group"])
    if group is None:
        raise nothing_here("There is no group of HITs with this id. Go back and use the buttons of the list.")
    return group


ROUTES = (
    ("/operator/groups/{group}/pause", pause, "POST"),
    ("/operator/groups/{group}/resume", resume, "POST"),
    ("/operator/groups/{group}/expire", ask_to_expire),
    ("/operator/groups/{group}/expire", expire, "POST"),
    ("/operator/groups/{group}", group),
    ("/operator/hits/{hit}", hit),
    ("/operator/submissions/{number:row}", submission),
    ("/operator/late/{number:row}", late),
)
