"""The review queue: one submission at a time with all that is known, and what a person decides about it."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response

from mitl.core.paging import number_in
from mitl.core.pictures import page_jpeg
from mitl.crowd.context import Context
from mitl.db.base import MOST_ROW
from mitl.db.store import desk as desk_store
from mitl.db.store.answers import StoredAssignment
from mitl.desk import words
from mitl.desk.desk import Desk, status_of
from mitl.errors import MitlError, StoreError, UsageError
from mitl.protocol.media import format_of, head_of
from mitl.records import UNDECIDED, Decision
from mitl.stages.harvesting.judging import reversible_until
from mitl.stages.reviewing.decisions import (
    MAX_REASON,
    MIN_REASON,
    Ruling,
    find_submission,
    keep,
    keep_reversal,
)
from mitl.stages.reviewing.desk_submission import submission, waiting

CHOICES = {
    decision.value: decision
    for decision in (Decision.APPROVE, Decision.APPROVE_EXCLUDE, Decision.DROP, Decision.REJECT)
}


def queue(desk: Desk, request: Request) -> Response:
    """``/queue``: the one that waits longest, or word that nothing waits."""
    after = request.query_params.get("after", "")
    with desk.reading() as context:
        frame = desk.frame(context)
        rows = waiting(context.session, desk.environment)
        decided = _row(context, after)
    if rows:
        return RedirectResponse(f"/queue/{rows[0].id}" + (f"?after={decided.id}" if decided else ""), 303)
    return desk.page("queue_empty.html.j2", frame, decided=decided)


def item(desk: Desk, request: Request) -> Response:
    """``/queue/{number}``: one submission, whether it waits or not."""
    return _page(desk, request.path_params["number"], after=request.query_params.get("after", ""))


def _page(
    desk: Desk, number: int, *, status: int = 200, problem: str = "", reason: str = "", after: str = ""
) -> Response:
    with desk.reading() as context:
        frame = desk.frame(context)
        people = desk.crowd(context, frame)
        found = submission(context, number, people.golds)
        rows = waiting(context.session, desk.environment)
        decided = _row(context, after)
    numbers = [row.id for row in rows]
    before, following = _neighbours(numbers, number)
    return desk.page(
        "submission.html.j2",
        frame,
        status=status,
        found=found,
        findings=words.findings(found.findings),
        one=people.find(found.row.worker_id),
        people=people,
        waits=found.row.decision in UNDECIDED,
        position=numbers.index(number) + 1 if number in numbers else None,
        queued=len(numbers),
        before=before,
        following=following,
        same_worker=[row.id for row in rows if row.worker_id == found.row.worker_id and row.id != number],
        until=reversible_until(found.row),
        problem=problem,
        reason=reason,
        decided=decided if decided is not None and decided.id != number else None,
        min_reason=MIN_REASON,
        max_reason=MAX_REASON,
    )


def _neighbours(numbers: list[int], number: int) -> tuple[int | None, int | None]:
    """Who stands before and after in the queue; after one that is not in it comes its first."""
    if number in numbers:
        place = numbers.index(number)
        before = numbers[place - 1] if place else None
        return before, numbers[place + 1] if place + 1 < len(numbers) else None
    return None, numbers[0] if numbers else None


def _row(context: Context, text: str) -> StoredAssignment | None:
    number = number_in(text)
    if number is None:
        return None
    try:
        return find_submission(context.session, context.environment, number)
    except StoreError:
        return None


def decide(desk: Desk, request: Request, fields: dict[str, str]) -> Response:
    """``POST /queue/{number}/decide``: keep the decision, have it carried to the server, show the next one."""
    number = request.path_params["number"]
    reason = fields.get("reason", "").strip()
    with desk.reading() as context:
        numbers = [row.id for row in waiting(context.session, desk.environment)]
    following = _neighbours(numbers, number)[1]
    try:
        name = fields.get("decision", "")
        decision = CHOICES.get(name)
        if decision is None:
            raise UsageError(f"a decision is one of {', '.join(CHOICES)}, not {name!r}")
        ruling = Ruling(number, decision, reason if decision is Decision.REJECT else "")
        keep(desk.settings, ruling, desk.environment)
    except MitlError as error:
        return _page(desk, number, status=status_of(error), problem=str(error), reason=reason)
    desk.sender.wake()
    target = "/queue" if following is None else f"/queue/{following}"
    return RedirectResponse(f"{target}?after={number}", 303)


def reverse(desk: Desk, request: Request, fields: dict[str, str]) -> Response:
    """``POST /queue/{number}/reverse``: pay a rejected submission after all."""
    number = request.path_params["number"]
    try:
        decision = CHOICES.get(fields.get("decision", ""), Decision.NONE)
        keep_reversal(desk.settings, number, decision, desk.environment, now=desk.clock())
    except MitlError as error:
        return _page(desk, number, status=status_of(error), problem=str(error))
    desk.sender.wake()
    return RedirectResponse(f"/queue/{number}", 303)


def image(desk: Desk, request: Request) -> Response:
    """``/image/{id}``: the picture, sound or video of this row; nothing where the file is missing or something else.

    Asked for by the number of the row, so that no address names a file.
    """
    image_id = request.path_params["image_id"]
    if image_id > MOST_ROW:
        return _none()  # which no database would even compare
    with desk.reading() as context:
        place = desk_store.image_addresses(context.session, [image_id]).get(image_id)
    return picture(None if place is None or place[0] is None else desk.settings.project / place[0])


def picture(path: Path | None) -> Response:
    """The file, where it is a picture, sound or video, none of which holds a script; players get byte ranges.

    A picture that no browser shows, such as a TIFF, comes as the JPEG that workers see.
    """
    headers = {"Cache-Control": "private, max-age=3600"}
    try:
        # A pipe would never end, and no file's name holds a NUL.
        if path is None or not path.is_file():
            return _none()
        media = format_of(head_of(path))
        if media is None:
            return Response(page_jpeg(path), media_type="image/jpeg", headers=headers)
    except OSError:
        return _none()
    return FileResponse(path, media_type=media.media_type, headers=headers)


def _none() -> Response:
    return Response("no such picture", 404, media_type="text/plain")


ROUTES = (("/queue", queue), ("/queue/{number:row}", item), ("/image/{image_id:row}", image))
FORMS = (("/queue/{number:row}/decide", decide), ("/queue/{number:row}/reverse", reverse))
