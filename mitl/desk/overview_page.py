"""The desk's first page, and the few numbers that open pages ask for to stay true."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from mitl.db.store import answers as answer_store
from mitl.desk import words
from mitl.desk.desk import Desk
from mitl.records import Decision
from mitl.stages.reviewing.desk_overview import overview

WAIT_S = 5.0
"""For the server's answer, before the page says that the decisions are still on their way."""


def first(desk: Desk, request: Request) -> Response:
    """``/``: gold pass rate, queue, answers an hour, money."""
    with desk.reading() as session:
        frame = desk.frame(session)
        people = desk.crowd(session, frame)
        view = overview(session, desk.environment, desk.clock(), people.habits)
    standings = [one.standing for one in people.workers]
    return desk.page(
        "overview.html.j2",
        frame,
        view=view,
        most=max((hour.answers for hour in view.hours), default=0),
        standings={name: standings.count(name) for name in words.STANDINGS},
        median_s=people.habits.median_s,
        hasty=sum(one.is_under(desk.settings.min_seconds_a_pair) for one in people.workers),
    )


def state(desk: Desk, request: Request) -> Response:
    """``/state``: what a page must know to tell whether it is still true; ``?item=`` asks after a submission."""
    item = request.query_params.get("item", "")
    decision: Decision | None = None
    with desk.reading() as session:
        frame = desk.frame(session)
        if item.isascii() and item.isdigit() and len(item) < 18:
            rows = answer_store.assignments(session, desk.environment, rows=[int(item)])
            decision = rows[0].decision if rows else None
    waits = decision in (Decision.QUEUED, Decision.NONE)
    return JSONResponse(
        {
            "mark": frame.mark,
            "queued": frame.queued,
            "item": None if decision is None else "waits" if waits else words.DECISIONS[decision],
        }
    )


def send(desk: Desk, request: Request, fields: dict[str, str]) -> Response:
    """``POST /send``: try again to tell the server what was decided."""
    desk.carrier.wake()
    desk.carrier.wait(WAIT_S)
    return RedirectResponse("/", 303)


ROUTES = (("/", first), ("/state", state))
FORMS = (("/send", send),)
