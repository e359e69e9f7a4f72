"""The HIT at work: the page around it, the frame in which it runs, what it submits, and the preview before it is taken.

A HIT's page is the requester's own HTML, so it is served with the ``sandbox`` directive: whatever it holds, it
runs in an opaque origin, without the worker's cookie. The token in its address is all that it has, and it is
good for this assignment alone.
"""

from __future__ import annotations

import datetime as dt
import html as html_lib
import json
import re
from collections.abc import AsyncGenerator
from urllib.parse import urlencode

from sqlalchemy import Connection
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from mitl.crowd_server.pages.questions import ShownQuestion
from mitl.crowd_server.pages.site import NoticeError, Site, origin, parse_form
from mitl.crowd_server.protocol import html_page, qualifying
from mitl.crowd_server.protocol.ids import seal, unseal
from mitl.crowd_server.store import assignments, hits, leases, panels, qualifications, workers
from mitl.crowd_server.store.database import Books, in_thread
from mitl.crowd_server.store.hits import HitRow
from mitl.crowd_server.store.leases import LeaseRow
from mitl.crowd_server.work.entry import after_study, end_page, gate
from mitl.crowd_server.work.visitor import (
    BACK,
    Fields,
    Visitor,
    current_lease,
    for_workers,
    form,
    gone,
    is_newest,
    lease_behind,
    token_of,
)
from mitl.protocol.answer_xml import MAX_ANSWER_BYTES, answers_xml
from mitl.protocol.pages import bind_submission, fold_instructions

PREVIEW_ASSIGNMENT = "ASSIGNMENT_ID_NOT_AVAILABLE"
_ONE_AT_A_TIME = "You already have a HIT open; finish or return it before you take another."


@for_workers
def around(visitor: Visitor) -> Response:
    """``/w/a/<token>``: the page around a HIT: title, reward, time left, the frame, the way back."""
    site, now = visitor.site, visitor.now
    token = visitor.request.path_params["token"]
    with site.database.read() as connection:
        lease = _own_lease(visitor, connection, token)
    if lease.submitted_at is not None:
        return _submitted(visitor, lease)
    if barrier := gate(visitor):
        return barrier
    if not _is_shown(visitor.site, visitor.request, lease):
        return _over(visitor, lease)
    with site.database.read() as connection:
        question = site.questions.of(connection, lease.hit_id)
        time = site.times.of_hit(connection, lease.hit_type_id, lease.hit)
    return visitor.page(
        "around.html.j2",
        lease=lease,
        token=token,
        frame=frame_address(visitor.request, question, lease, token),
        height=question.frame_height,
        estimate=time,
        seconds_left=int((lease.deadline_at - now).total_seconds()),
        notice=visitor.notice({"first": _ONE_AT_A_TIME}),
    )


def _own_lease(visitor: Visitor, connection: Connection, token: str) -> LeaseRow:
    """The visitor's assignment behind a token; a browser that was opened by another link since is told so."""
    lease = lease_behind(visitor.site, connection, token)
    if lease is None:
        raise gone()
    if lease.worker != visitor.worker.mturk_id:
        text = (
            "Another worker took this HIT, and this browser has changed to you since. What was sent from the HIT is "
            "kept and counts for that worker; what was entered and not sent is still in this browser. To go on as that "
            "worker, open the link by which they came."
        )
        raise NoticeError(404, "Another worker's HIT", text, BACK)
    return lease


def _is_shown(site: Site, request: Request, lease: LeaseRow) -> bool:
    """Whether this address shows the HIT: while it is at work, and to send late what a browser still holds of it."""
    now = site.clock()
    is_late = "late" in request.query_params and lease.has_run_out(now)
    return is_newest(lease, request.path_params["token"]) and (lease.is_live(now) or is_late)


def _submitted(visitor: Visitor, lease: LeaseRow) -> Response:
    """Thanks, what was earned, and what is next; after a visit's last HIT its end says all that."""
    token = token_of(visitor.site, lease)
    with visitor.read() as books:
        visit = visitor.visit(books.connection)
        if visit is not None and not visit.is_open:
            return end_page(visitor, visit, sent=token)
        offered = leases.groups(books, visitor.worker)
        held = qualifications.held_for(books.connection, visitor.worker, offered)
        open_to_them = [group for group in offered if qualifying.may("accept", group.requirements, held)]
        earnings = workers.earnings(books.connection, visitor.worker)
    return visitor.page(
        "submitted.html.j2",
        lease=lease,
        token=token,
        earnings=earnings,
        same_kind=sum(group.available for group in open_to_them if group.mturk_id == lease.hit_type),
        other_kinds=sum(group.mturk_id != lease.hit_type for group in open_to_them),
    )


def _over(visitor: Visitor, lease: LeaseRow) -> Response:
    """The page of a HIT that is no longer at work under this address, with the way to the one that is.

    A browser that holds a draft of it gets the way to send that.
    """
    token = visitor.request.path_params["token"]
    with visitor.read() as books:
        kept = assignments.is_late_kept(books.connection, lease.id)
    return visitor.page(
        "time_over.html.j2",
        status=410,
        lease=lease,
        kept=kept,
        may_send=is_newest(lease, token) and not kept and lease.has_run_out(visitor.now),
        token=token,
        current=current_lease(visitor),
    )


@form
def give_back(visitor: Visitor, fields: Fields) -> Response:
    """``POST /w/a/<token>/return``: give a HIT back unanswered."""
    token = visitor.request.path_params["token"]
    with visitor.write() as books:
        lease = _own_lease(visitor, books.connection, token)
        if not is_newest(lease, token):
            raise gone()
        if lease.submitted_at is not None:
            return RedirectResponse(f"/w/a/{token}", 303)
        if lease.is_live(visitor.now):
            leases.give_back(books, lease.id)
    return RedirectResponse("/w?notice=returned", 303)


@for_workers
@after_study
def preview(visitor: Visitor) -> Response:
    """``/w/preview/<hit>``: a HIT to look at before taking one, with its inputs off."""
    site, worker = visitor.site, visitor.worker
    with visitor.read() as books:
        if workers.is_blocked(books.connection, worker.id):
            return RedirectResponse("/w", 303)
        hit = hits.find_hit(books, visitor.request.path_params["hit_id"])
        if hit is None or hit.status(books.now) == "Disposed":
            raise gone()
        requirements = hit.type.requirements
        held = qualifications.held_by(books.connection, worker)
        if not qualifying.may("preview", requirements, held):
            return RedirectResponse("/w?notice=barred", 303)
        question = site.questions.of(books.connection, hit.id)
        open_types = {group.mturk_id for group in leases.groups(books, worker)}
        time = site.times.of_hit(books.connection, hit.type.id, hit.mturk_id)
    return visitor.page(
        "preview.html.j2",
        hit=hit,
        estimate=time,
        can_accept=hit.type.mturk_id in open_types and qualifying.may("accept", requirements, held),
        frame=preview_address(site, visitor.request, question, hit),
        height=question.frame_height,
    )


def frame_address(request: Request, question: ShownQuestion, lease: LeaseRow, token: str) -> str:
    """Where a worker's frame finds the HIT: here, or at the ExternalURL."""
    values = {
        "assignmentId": lease.mturk_id,
        "hitId": lease.hit,
        "workerId": lease.worker,
        "turkSubmitTo": f"{origin(request)}/s/{token}",
    }
    if "late" in request.query_params:
        values["late"] = "1"
    return _address(question, f"/w/a/{token}/frame", values)


def preview_address(site: Site, request: Request, question: ShownQuestion, hit: HitRow) -> str:
    """Where a frame finds a HIT that nobody holds."""
    values = {"assignmentId": PREVIEW_ASSIGNMENT, "hitId": hit.mturk_id, "turkSubmitTo": origin(request)}
    return _address(question, f"/w/preview/{seal(site.secret, 'preview', str(hit.id))}/frame", values)


def _address(question: ShownQuestion, own: str, values: dict[str, str]) -> str:
    if question.url is None:
        return f"{own}?{urlencode(values)}"
    address, mark, place = question.url.partition("#")
    return f"{address}{'&' if '?' in address else '?'}{urlencode(values)}{mark}{place}"


def frame(site: Site, request: Request) -> Response:
    """``/w/a/<token>/frame``: the HIT itself, bound to this assignment."""
    token = request.path_params["token"]
    with site.database.read() as connection:
        lease = lease_behind(site, connection, token)
        if lease is None or not is_newest(lease, token):
            return note_page("not-found", 404)
        if lease.submitted_at is not None:
            return note_page("again", 200)
        if not _is_shown(site, request, lease):
            return note_page("over", 410)
        question = site.questions.of(connection, lease.hit_id)
        latest = assignments.latest_hit(connection, lease)
        earlier = None if latest is None else site.questions.of(connection, latest)
    target = f"{origin(request)}/s/{token}/mturk/externalSubmit"
    html = question.html or ""
    if earlier is not None:
        html = fold_instructions(html, earlier.html or "")
    return _hit_page(site, request, html, (target, lease.mturk_id), forms=True)


def preview_frame(site: Site, request: Request) -> Response:
    """``/w/preview/<token>/frame``: a HIT to look at; its forms lead nowhere."""
    value = unseal(site.secret, "preview", request.path_params["token"])
    if value is None:
        return note_page("not-found", 404)
    with site.database.read() as connection:
        question = site.questions.of(connection, int(value))
    return _hit_page(site, request, question.html or "", ("about:blank", PREVIEW_ASSIGNMENT), forms=False)


def _hit_page(
    site: Site, request: Request, html: str, submission: tuple[str, str], *, forms: bool
) -> Response:
    """The page bound to where its answers go and to its assignment, under a policy of what it may do."""
    home = origin(request)
    action = home if forms else "'none'"
    bound = bind_submission(html_page.bind(html, *submission, site.sources), *submission)
    scripts, styles = site.sources.policy(home, bound)
    fonts = f"font-src{styles}; " if styles else ""
    policy = (
        f"default-src 'none'; img-src {home} https: data:; media-src {home} https:; "
        f"style-src 'unsafe-inline'{styles}; {fonts}"
        f"script-src 'unsafe-inline'{scripts}; form-action {action}; base-uri 'none'; "
        f"frame-ancestors {home}; sandbox allow-scripts{' allow-forms' if forms else ''}"
    )
    return HTMLResponse(bound, headers=_headers(policy))


_NOTES = {
    "thanks": ("Thank you, your answers arrived.", "The list of HITs shows what becomes of them."),
    "again": ("This HIT was already submitted.", "Your first answers are kept; nothing is lost."),
    "over": (
        "This HIT was returned, or its time was over.",
        "It is open to others again.",
    ),
    "late": (
        "This HIT was returned, or its time was over.",
        "It is open to others again, so this is not a submission. But what you entered has arrived and is kept, and "
        "the operator can see it and pay you for it by hand. “Your work” lists it.",
    ),
    "withdrawn": (
        "You no longer take part in this study.",
        "So these answers were not kept. What you sent before is reviewed and paid as announced.",
    ),
    "other": (
        "These answers name another HIT.",
        "They were not taken. Open the HIT again from the list and send them from there.",
    ),
    "large": (
        "That was too much to send.",
        "Your answers were not taken. Go back, shorten what you wrote, and send them again.",
    ),
    "empty": (
        "No answer was sent.",
        "The form held no answer, so nothing was submitted. You still have this HIT: go back, answer, and send again.",
    ),
    "no-form": (
        "What was sent is not a form.",
        "Nothing was submitted, and you still have this HIT: go back and send again. If this comes up every time, "
        "tell the requester that the page must send the fields of a form, as on MTurk, and return the HIT.",
    ),
    "files": (
        "Files cannot be sent here.",
        "Nothing was submitted, and you still have this HIT: go back, take the file out, and send again. If the HIT "
        "cannot be done without it, tell the requester, and return the HIT.",
    ),
    "not-found": (
        "This HIT is not known here.",
        "Your answers were not taken, but this browser keeps them. Open the HIT again from the list; if the list lets "
        "you in no more, open the link by which you came first.",
    ),
}


def note_page(note: str, status: int, back: str = "") -> Response:
    """A page within the frame; a script tells the page around it what happened.

    Args:
        back: the HIT's address, where the worker still has it; the browser's own way back comes first, since it
            may still know what was entered.
    """
    title, text = _NOTES[note]
    way_on = (
        f'<p><a id="back" href="{html_lib.escape(back)}">Back to the HIT</a></p>'
        '<script>document.getElementById("back").onclick='
        "()=>{if(history.length>1){history.back();return false}}</script>"
        if back
        else '<p>Go on at the top of the page<span id="on">, or at <a href="/w">the list of HITs</a></span>.</p>'
    )
    told = {"thanks": "mitl-submitted", "again": "mitl-submitted"}.get(note, "mitl-refused")
    html = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>HIT</title>'
        "<style>:root{color-scheme:light dark}"
        "body{font:1rem/1.5 system-ui,sans-serif;margin:2rem;max-width:40rem}</style>"
        f"<main><h1>{title}</h1><p>{text}</p>{way_on}</main>"
        # Told for a while: on a slow machine the page around may start to listen only after this one is here.
        '<script>if(parent!==window){document.getElementById("on")?.remove();'
        f'const tell=()=>parent.postMessage({{type:"{told}",note:"{note}"}},"*");'
        # Not before all of it is here: the page around goes on at once, and would cut this reply off.
        'addEventListener("load",()=>{tell();'
        "const telling=setInterval(tell,250);setTimeout(()=>clearInterval(telling),15000)})}</script></html>"
    )
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; sandbox allow-scripts"
    )
    return HTMLResponse(html, status, _headers(policy))


def _headers(policy: str) -> dict[str, str]:
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }


MAX_SUBMISSION = 500_000
MAX_FIELDS = 2000
_ASSIGNMENT = re.compile(r"[A-Z0-9]{20,64}")
_CHARSET = re.compile(r";\s*charset[^;]*", re.IGNORECASE)
_NOT_TAKEN = {"large": 413, "empty": 422, "no-form": 415, "files": 415}
"""Notes after which the worker still has the HIT, with their status."""


async def submit(site: Site, request: Request) -> Response:
    """``POST /s/<token>/mturk/externalSubmit``: keep the fields of a form; the token alone says whose."""
    fields = await _fields(request)
    # Who sent it in time is not late because the server had others to serve first.
    return await in_thread(_submit, site, request, fields, site.clock())


def _submit(site: Site, request: Request, fields: list[tuple[str, str]] | str, now: dt.datetime) -> Response:
    token = request.path_params["token"]
    with site.database.read() as connection:
        sealed = lease_behind(site, connection, token)
    if sealed is None:
        return note_page("not-found", 404)
    if isinstance(fields, str):
        return _not_taken(site, request, sealed, fields)
    answers = [(name, value) for name, value in fields if name != "assignmentId"]
    if not any(name for name, _ in answers):
        return _not_taken(site, request, sealed, "empty")
    answer = answers_xml(answers)
    # A character of one byte can take eight, and nobody would read so much.
    if len(answer) > MAX_ANSWER_BYTES:
        return _not_taken(site, request, sealed, "large")
    with site.database.write(sealed.environment) as connection:
        is_own = is_newest(sealed, token) and not _is_of_another(sealed, fields)
        if is_own and leases.submit(Books(connection, sealed.environment, now), sealed, answer):
            panels.count_hit(connection, sealed.id, now)
            return note_page("thanks", 200)
        lease = leases.find(connection, sealed.id)
        assert lease is not None
        if lease.submitted_at is not None:
            return note_page("again", 200)
        # Under an old token the same worker took the HIT again; what they entered before is kept all the same.
        if not is_newest(lease, token) or not lease.is_live(now):
            if workers.has_withdrawn(connection, lease.worker):
                return note_page("withdrawn", 410)
            assignments.keep_late(connection, lease.id, answer, now)
            return note_page("late", 410)
        return note_page("other", 409)


def _not_taken(site: Site, request: Request, lease: LeaseRow, note: str) -> Response:
    """Say why what was sent is not an answer; whoever holds the HIT keeps it and has a way back to its page."""
    token = request.path_params["token"]
    if lease.submitted_at is not None:
        return note_page("again", 200)
    if not is_newest(lease, token) or not lease.is_live(site.clock()):
        return note_page("over", 410)
    with site.database.read() as connection:
        question = site.questions.of(connection, lease.hit_id)
    return note_page(note, _NOT_TAKEN[note], frame_address(request, question, lease, token))


def _is_of_another(lease: LeaseRow, fields: list[tuple[str, str]]) -> bool:
    """Whether the form names another assignment than the one whose address it was sent to."""
    named = {value for name, value in fields if name == "assignmentId" and _ASSIGNMENT.fullmatch(value)}
    return bool(named - {lease.mturk_id})


async def _fields(request: Request) -> list[tuple[str, str]] | str:
    """The form's fields in their order, repeated names included; or the note that says why there are none."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_SUBMISSION:
            return "large"
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return await _parts(request, bytes(body))
    if kind not in ("", "application/x-www-form-urlencoded") or not _is_form(bytes(body)):
        return "no-form"
    fields = parse_form(bytes(body), MAX_FIELDS)
    return "large" if fields is None else fields


def _is_form(body: bytes) -> bool:
    """Whether this could be a form's fields: clients that send JSON often name its type as a form's."""
    if any(b"=" not in field for field in body.split(b"&") if field):
        return False
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return True
    return False


async def _parts(request: Request, body: bytes) -> list[tuple[str, str]] | str:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    # Read as UTF-8, as other forms are: among the charsets that a sender may name are some that take seconds.
    headers = Headers({"content-type": _CHARSET.sub("", request.headers["content-type"])})
    parser = MultiPartParser(headers, stream(), max_files=MAX_FIELDS, max_fields=MAX_FIELDS)
    try:
        form = await parser.parse()
    except MultiPartException as error:
        return "large" if "Too many" in error.message else "no-form"
    except KeyError:
        return "no-form"  # a Content-Type without its boundary
    fields = form.multi_items()
    has_files = any(isinstance(value, UploadFile) and (value.filename or value.size) for _, value in fields)
    texts = [(name, "" if isinstance(value, UploadFile) else value) for name, value in fields]
    await form.close()
    return "files" if has_files else texts


ROUTES = (
    ("/w/preview/{token}/frame", preview_frame),
    ("/w/a/{token}/frame", frame),
    ("/w/preview/{hit_id}", preview),
    ("/w/a/{token}", around),
    ("/w/a/{token}/return", give_back, "POST"),
    ("/s/{token}/mturk/externalSubmit", submit, "POST"),
)
