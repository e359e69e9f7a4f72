"""The frame in which a HIT runs, and the submission it posts.

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
from urllib.parse import parse_qsl, urlencode, urlsplit

from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from mitl.crowd.answer_xml import answers_xml
from mitl.crowd_server.api import questions
from mitl.crowd_server.api.questions import Question
from mitl.crowd_server.forms import html_page
from mitl.crowd_server.ids import seal, unseal
from mitl.crowd_server.site import Site, origin
from mitl.crowd_server.store import hits, leases, panels, work_history
from mitl.crowd_server.store.leases import LeaseRow
from mitl.hits.rendering import bind_submission, fold_instructions

PREVIEW_ASSIGNMENT = "ASSIGNMENT_ID_NOT_AVAILABLE"
MAX_SUBMISSION = 500_000
MAX_FIELDS = 2000
_ASSIGNMENT = re.compile(r"[A-Z0-9]{20,64}")
_MICROSECOND = dt.timedelta(microseconds=1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def seal_lease(site: Site, assignment_id: int, accepted_at: dt.datetime) -> str:
    """The token of one lease; taking the same HIT again after a return makes another."""
    return seal(site.secret, "assignment", f"{assignment_id}-{(accepted_at - _EPOCH) // _MICROSECOND}")


def token_of(site: Site, lease: LeaseRow) -> str:
    """The token of this lease."""
    return seal_lease(site, lease.id, lease.accepted_at)


def lease_behind(site: Site, token: str, connection: Connection | None = None) -> LeaseRow | None:
    """The assignment that a token was made for, whether or not its HIT was taken anew since."""
    value = unseal(site.secret, "assignment", token)
    if value is None:
        return None
    assignment_id = int(value.partition("-")[0])
    if connection is not None:
        return leases.find(connection, assignment_id)
    with site.database.read() as own:
        return leases.find(own, assignment_id)


def lease_of(site: Site, token: str, connection: Connection | None = None) -> LeaseRow | None:
    """The lease that a token opens; None for any other text, or after the HIT was taken anew."""
    lease = lease_behind(site, token, connection)
    return lease if lease is not None and token_of(site, lease) == token else None


def frame_address(request: Request, question: Question, lease: LeaseRow, token: str) -> str:
    """Where a worker's frame finds the HIT: here, or at the ExternalURL."""
    values = {
        "assignmentId": lease.mturk_id,
        "hitId": lease.hit,
        "workerId": lease.worker,
        "turkSubmitTo": f"{origin(request)}/s/{token}",
    }
    return _address(question, f"/w/a/{token}/frame", values)


def preview_address(site: Site, request: Request, question: Question, hit_id: int, mturk_id: str) -> str:
    """Where a frame finds a HIT that nobody holds."""
    values = {"assignmentId": PREVIEW_ASSIGNMENT, "hitId": mturk_id, "turkSubmitTo": origin(request)}
    return _address(question, f"/w/preview/{seal(site.secret, 'preview', str(hit_id))}/frame", values)


def _address(question: Question, own: str, values: dict[str, str]) -> str:
    if question.url is None:
        return f"{own}?{urlencode(values)}"
    joint = "&" if urlsplit(question.url).query else "?"
    return f"{question.url}{joint}{urlencode(values)}"


def frame(site: Site, request: Request) -> Response:
    """``/w/a/<token>/frame``: the HIT itself, bound to this assignment."""
    token = request.path_params["token"]
    lease = lease_of(site, token)
    if lease is None:
        return _small("not-found", 404)
    if lease.submitted_at is not None:
        return _small("again", 200)
    if not lease.is_live(site.clock()):
        return _small("over", 410)
    with site.database.read() as connection:
        question = questions.read(hits.question(connection, lease.hit_id))
        earlier = work_history.latest_question(connection, lease)
    target = f"{origin(request)}/s/{token}/mturk/externalSubmit"
    html = question.html or ""
    if earlier is not None:
        html = fold_instructions(html, questions.read(earlier).html or "")
    return _hit_page(site, request, html, (target, lease.mturk_id), forms=True)


def preview_frame(site: Site, request: Request) -> Response:
    """``/w/preview/<token>/frame``: a HIT to look at; its forms lead nowhere."""
    value = unseal(site.secret, "preview", request.path_params["token"])
    if value is None:
        return _small("not-found", 404)
    with site.database.read() as connection:
        question = questions.read(hits.question(connection, int(value)))
    return _hit_page(site, request, question.html or "", ("about:blank", PREVIEW_ASSIGNMENT), forms=False)


async def submit(site: Site, request: Request) -> Response:
    """``POST /s/<token>/mturk/externalSubmit``: keep the fields of a form; the token alone says whose."""
    fields = await _fields(request)
    return await run_in_threadpool(_submit, site, request, fields)


def _submit(site: Site, request: Request, fields: list[tuple[str, str]] | str) -> Response:
    token = request.path_params["token"]
    sealed = lease_behind(site, token)
    if sealed is None:
        return _small("not-found", 404)
    if isinstance(fields, str):
        return _not_taken(site, request, sealed, fields)
    answers = [(name, value) for name, value in fields if name != "assignmentId"]
    if not any(name for name, _ in answers):
        return _not_taken(site, request, sealed, "empty")
    answer = answers_xml(answers)
    with site.database.write(sealed.environment) as connection:
        now = site.clock()
        lease = leases.find(connection, sealed.id)
        assert lease is not None
        if lease.submitted_at is not None:
            return _small("again", 200)
        # Under an old token the same worker took the HIT anew; what they entered before is kept all the same.
        if token_of(site, lease) != token or not lease.is_live(now):
            work_history.keep_late(connection, lease.id, answer, now)
            return _small("late", 410)
        if _is_of_another(lease, fields):
            return _small("other", 409)
        leases.submit(connection, lease, answer, now)
        panels.count_hit(connection, lease.id, now)
    return _small("thanks", 200)


def _not_taken(site: Site, request: Request, lease: LeaseRow, note: str) -> Response:
    """Say why what was sent is no answer; whoever holds the HIT keeps it and has a way back to its page."""
    token = request.path_params["token"]
    if lease.submitted_at is not None:
        return _small("again", 200)
    if token_of(site, lease) != token or not lease.is_live(site.clock()):
        return _small("over", 410)
    with site.database.read() as connection:
        question = questions.read(hits.question(connection, lease.hit_id))
    return _small(note, _NOT_TAKEN[note], frame_address(request, question, lease, token))


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
    try:
        return parse_qsl(
            body.decode("utf-8", "replace"),
            keep_blank_values=True,
            max_num_fields=MAX_FIELDS,
            errors="replace",
        )
    except ValueError:
        return "large"


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

    parser = MultiPartParser(request.headers, stream(), max_files=MAX_FIELDS, max_fields=MAX_FIELDS)
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
        f"default-src 'none'; img-src {home} https: data:; style-src 'unsafe-inline'{styles}; {fonts}"
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
        "It is open to others again, so this is no submission. But what you entered has arrived and is kept, and "
        "the operator can see it and pay you for it by hand. “Your work” lists it.",
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
    "not-found": ("This HIT is not known here.", "Go back to the list and open it again."),
}


_NOT_TAKEN = {"large": 413, "empty": 422, "no-form": 415, "files": 415}
"""Notes after which the worker still has the HIT, with their status."""


def _small(note: str, status: int, back: str = "") -> Response:
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
        f'const tell=()=>parent.postMessage({{type:"{told}",note:"{note}"}},"*");tell();'
        "const telling=setInterval(tell,250);setTimeout(()=>clearInterval(telling),15000)}</script></html>"
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


ROUTES = (
    ("/w/preview/{token}/frame", preview_frame),
    ("/w/a/{token}/frame", frame),
    ("/s/{token}/mturk/externalSubmit", submit, "POST"),
)
