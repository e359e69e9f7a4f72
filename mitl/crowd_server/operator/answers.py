"""What workers see and what they sent: a group's HITs, each as its preview, and the answers of every submission."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from mitl.crowd_server.api import shapes
from mitl.crowd_server.operator.session import nothing_here, page
from mitl.crowd_server.pages import questions
from mitl.crowd_server.pages.site import Site
from mitl.crowd_server.store import assignments, hits, progress, reports
from mitl.crowd_server.store.assignments import AssignmentRow
from mitl.crowd_server.store.hits import HitRow
from mitl.crowd_server.work import hit_frame
from mitl.errors import AnswerError
from mitl.protocol.answer_xml import answer_fields
from mitl.records import Environment

A_PAGE = 25
MOST = 200
"""Submissions listed of one HIT; its requester reads them all by the API."""


@page
def group(site: Site, request: Request) -> Response:
    """``/operator/groups/{group}``: its HITs by portions (``?after=``), and what was sent in last."""
    now, after = site.clock(), _number(request.query_params.get("after", ""))
    with site.database.read() as connection:
        groups = {row.mturk_id: row for row in progress.groups(connection, now)}
        row = groups.get(request.path_params["group"])
        if row is None:
            return _unknown(site)
        rows = hits.list_of_type(connection, row.id, after=after, limit=A_PAGE + 1, now=now)
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
            return _unknown(site)
        question = questions.read(hits.question(connection, row.id))
        sent = assignments.list_of_hit(connection, row.id, states=tuple(shapes.STATUS), after=0, limit=MOST)
    return site.page(
        "operator_hit.html.j2",
        hit=row,
        state=row.status(now),
        submissions=sent,
        states=shapes.STATUS,
        elsewhere=question.url,
        height=question.frame_height,
        frame=hit_frame.preview_address(site, request, question, row.id, row.mturk_id),
    )


@page
def submission(site: Site, request: Request) -> Response:
    """``/operator/submissions/{number}``: the fields of one submission as its worker sent them."""
    with site.database.read() as connection:
        row = assignments.find_row(connection, request.path_params["number"])
        if row is None:
            return _unknown(site)
        return _answers(site, connection, row, row.answer, "submitted", shapes.STATUS[row.state])


@page
def late(site: Site, request: Request) -> Response:
    """``/operator/late/{number}``: the fields of answers that came after their assignment's time."""
    with site.database.read() as connection:
        late_answer = reports.late_answer(connection, request.path_params["number"])
        if late_answer is None:
            return _unknown(site)
        row, answer = late_answer
        return _answers(site, connection, row, answer, "received", "came too late")


def _answers(
    site: Site,
    connection: Connection,
    row: AssignmentRow | reports.LateRow,
    answer: str,
    verb: str,
    state: str,
) -> Response:
    fields, raw = _fields(connection, row.hit_id, answer)
    return site.page(
        "operator_answers.html.j2",
        row=row,
        hit=_hit(site, connection, row.hit),
        at=row.submitted_at if isinstance(row, AssignmentRow) else row.received_at,
        verb=verb,
        state=state,
        feedback=row.feedback if isinstance(row, AssignmentRow) else "",
        fields=fields,
        raw=raw,
    )


def _fields(connection: Connection, hit_id: int, answer: str) -> tuple[Sequence[tuple[str, str]], str]:
    """The (name, value) fields in the order in which they came; the document itself where it cannot be read."""
    form = questions.form_of(hits.form(connection, hit_id))
    try:
        return answer_fields(answer if form is None else questions.answer_xml(form, answer)), ""
    except AnswerError:
        return (), answer


def _hit(site: Site, connection: Connection, mturk_id: str) -> HitRow | None:
    """The HIT of this id, of either environment."""
    if not mturk_id.isalnum():
        return None
    either = (hits.find_hit(connection, of, mturk_id, site.clock()) for of in Environment)
    return next((row for row in either if row is not None), None)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _unknown(site: Site) -> Response:
    text = "Nothing has this number or id. Go back and follow the links of the lists."
    return nothing_here(site, text)


ROUTES = (
    ("/operator/groups/{group}", group),
    ("/operator/hits/{hit}", hit),
    ("/operator/submissions/{number:int}", submission),
    ("/operator/late/{number:int}", late),
)
