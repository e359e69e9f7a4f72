"""The frame in which a HIT runs, and the submission it posts.

A HIT's page is the requester's own HTML, so it is served with the ``sandbox`` directive: whatever it holds, it
runs in an opaque origin, without the worker's cookie. The token in its address is all that it has, and it is
good for this assignment alone.
"""

from __future__ import annotations

import datetime as dt
import re
from urllib.parse import parse_qsl

from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from mitl.crowd.answer_xml import answers_xml
from mitl.crowd_server.api import questions
from mitl.crowd_server.forms import html_page
from mitl.crowd_server.ids import seal, unseal
from mitl.crowd_server.site import Site, origin
from mitl.crowd_server.store import hits, leases, panels, work_history
from mitl.crowd_server.store.leases import LeaseRow
from mitl.hits.rendering import bind_submission

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


def lease_of(site: Site, token: str, connection: Connection | None = None) -> LeaseRow | None:
    """The lease that a token opens; None for any other text, or after the HIT was taken anew."""
    value = unseal(site.secret, "assignment", token)
    if value is None:
        return None
    if connection is None:
        with site.database.read() as own:
            lease = leases.find(own, int(value.partition("-")[0]))
    else:
        lease = leases.find(connection, int(value.partition("-")[0]))
    return lease if lease is not None and token_of(site, lease) == token else None


def seal_preview(site: Site, hit_id: int) -> str:
    """The token of a HIT's preview."""
    return seal(site.secret, "preview", str(hit_id))


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
    target = f"{origin(request)}/s/{token}/mturk/externalSubmit"
    return _hit_page(site, request, question.html or "", (target, lease.mturk_id), forms=True)


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
    if fields is None:
        return _small("large", 413)
    return await run_in_threadpool(_submit, site, request.path_params["token"], fields)


def _submit(site: Site, token: str, fields: list[tuple[str, str]]) -> Response:
    sealed = _sealed(site, token)
    if sealed is None:
        return _small("not-found", 404)
    answer = answers_xml((name, value) for name, value in fields if name != "assignmentId")
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


def _sealed(site: Site, token: str) -> LeaseRow | None:
    """The assignment that a token was made for, whether or not it was renewed since."""
    value = unseal(site.secret, "assignment", token)
    if value is None:
        return None
    with site.database.read() as connection:
        return leases.find(connection, int(value.partition("-")[0]))


def _is_of_another(lease: LeaseRow, fields: list[tuple[str, str]]) -> bool:
    """Whether the form names another assignment than the one whose address it was sent to."""
    named = {value for name, value in fields if name == "assignmentId" and _ASSIGNMENT.fullmatch(value)}
    return bool(named - {lease.mturk_id})


async def _fields(request: Request) -> list[tuple[str, str]] | None:
    """The form's fields in their order, repeated names included; None where there is too much."""
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        length = request.headers.get("content-length", "")
        if not length.isascii() or not length.isdigit() or int(length) > MAX_SUBMISSION:
            return None
        try:
            async with request.form(max_files=20, max_fields=MAX_FIELDS) as form:
                return [
                    (name, value.filename or "" if isinstance(value, UploadFile) else value)
                    for name, value in form.multi_items()
                ]
        except HTTPException:
            return None
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_SUBMISSION:
            return None
    try:
        return parse_qsl(
            body.decode("utf-8", "replace"),
            keep_blank_values=True,
            max_num_fields=MAX_FIELDS,
            errors="replace",
        )
    except ValueError:
        return None


def _hit_page(
    site: Site, request: Request, html: str, submission: tuple[str, str], *, forms: bool
) -> Response:
    """The page bound to where its answers go and to its assignment, under a policy of what it may do."""
    home = origin(request)
    action = home if forms else "'none'"
    scripts, styles = site.sources.policy(home, html)
    fonts = f"font-src{styles}; " if styles else ""
    policy = (
        f"default-src 'none'; img-src {home} https: data:; style-src 'unsafe-inline'{styles}; {fonts}"
        f"script-src 'unsafe-inline'{scripts}; form-action {action}; base-uri 'none'; "
        f"frame-ancestors {home}; sandbox allow-scripts{' allow-forms' if forms else ''}"
    )
    bound = bind_submission(html_page.bind(html, *submission, site.sources), *submission)
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
    "not-found": ("This HIT is not known here.", "Go back to the list and open it again."),
}


def _small(note: str, status: int) -> Response:
    """A page within the frame; a script tells the page around it what happened."""
    title, text = _NOTES[note]
    told = {"thanks": "mitl-submitted", "again": "mitl-submitted"}.get(note, "mitl-refused")
    html = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>HIT</title>'
        "<style>:root{color-scheme:light dark}"
        "body{font:1rem/1.5 system-ui,sans-serif;margin:2rem;max-width:40rem}</style>"
        f"<main><h1>{title}</h1><p>{text}</p>"
        '<p>Go on at the top of the page<span id="on">, or at <a href="/w">the list of HITs</a></span>.</p></main>'
        # Told for a while: on a slow machine the page around may start to listen only after this one is here.
        '<script>if(parent!==window){document.getElementById("on").remove();'
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
