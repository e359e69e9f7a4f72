"""The HIT at work: the page around it, the frame in which it runs, giving it back, the preview before one takes it.

A HIT's page is the requester's own HTML, so it is served with the ``sandbox`` directive: whatever it holds, it
runs in an opaque origin, without the worker's cookie. The token in its address is all that it has, and it is
good for this assignment alone.
"""

from __future__ import annotations

import html as html_lib
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from mitl.crowd_server.pages import questions
from mitl.crowd_server.pages.questions import Question
from mitl.crowd_server.pages.site import Site, origin
from mitl.crowd_server.protocol import html_page, qualifying
from mitl.crowd_server.protocol.ids import seal, unseal
from mitl.crowd_server.store import hits, leases, qualifications, work_history, workers
from mitl.crowd_server.store.leases import LeaseRow
from mitl.crowd_server.work.entry import after_study, end_page, gate
from mitl.crowd_server.work.visitor import (
    Fields,
    Visitor,
    current_lease,
    for_workers,
    form,
    lease_behind,
    token_of,
)
from mitl.protocol.pages import bind_submission, fold_instructions

PREVIEW_ASSIGNMENT = "ASSIGNMENT_ID_NOT_AVAILABLE"
_ONE_AT_A_TIME = "You already have a HIT open; finish or return it before you take another."


@for_workers
def around(visitor: Visitor) -> Response:
    """``/w/a/<token>``: the page around a HIT: title, reward, time left, the frame, the way back."""
    site, now = visitor.site, visitor.now
    token = visitor.request.path_params["token"]
    with site.database.read() as connection:
        lease = lease_behind(site, connection, token)
    if lease is None or lease.worker != visitor.worker.mturk_id:
        return _gone(site)
    if lease.submitted_at is not None:
        return _submitted(visitor, lease)
    if token_of(site, lease) != token or not lease.is_live(now):
        return _over(visitor, lease)
    barrier = gate(visitor)
    if barrier is not None:
        return barrier
    with site.database.read() as connection:
        xml = hits.question(connection, lease.hit_id)
        time = work_history.estimate(connection, lease.hit_type_id, xml)
    question = questions.read(xml)
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


def _submitted(visitor: Visitor, lease: LeaseRow) -> Response:
    """Thanks, what was earned, and what is next; after a visit's last HIT its end says all that."""
    token = token_of(visitor.site, lease)
    with visitor.database.read() as connection:
        visit = visitor.visit(connection)
        if visit is not None and not visit.is_open:
            return end_page(visitor, visit, sent=token)
        held = qualifications.held_by(connection, visitor.worker)
        open_to_them = [
            group
            for group in leases.groups(connection, visitor.worker, visitor.now)
            if qualifying.may("accept", group.requirements, held)
        ]
        earnings = workers.earnings(connection, visitor.worker)
    return visitor.page(
        "submitted.html.j2",
        lease=lease,
        token=token,
        earnings=earnings,
        same_kind=sum(group.available for group in open_to_them if group.mturk_id == lease.hit_type),
        other_kinds=sum(group.mturk_id != lease.hit_type for group in open_to_them),
    )


def _over(visitor: Visitor, lease: LeaseRow) -> Response:
    """The page of a HIT that is no longer at work under this address, with the way to the one that is."""
    with visitor.database.read() as connection:
        kept = work_history.late_count(connection, lease.id) > 0
    return visitor.page(
        "time_over.html.j2",
        status=410,
        lease=lease,
        kept=kept,
        token=visitor.request.path_params["token"],
        current=current_lease(visitor),
    )


@form
def give_back(visitor: Visitor, fields: Fields) -> Response:
    """``POST /w/a/<token>/return``: give a HIT back unanswered."""
    token = visitor.request.path_params["token"]
    with visitor.database.write(visitor.worker.environment) as connection:
        lease = lease_behind(visitor.site, connection, token)
        if lease is None or token_of(visitor.site, lease) != token or lease.worker != visitor.worker.mturk_id:
            return _gone(visitor.site)
        if lease.submitted_at is not None:
            return RedirectResponse(f"/w/a/{token}", 303)
        if lease.is_live(visitor.now):
            leases.give_back(connection, lease.id)
    return RedirectResponse("/w?notice=returned", 303)


@for_workers
@after_study
def preview(visitor: Visitor) -> Response:
    """``/w/preview/<hit>``: a HIT to look at before taking one, with its inputs off."""
    site, worker, now = visitor.site, visitor.worker, visitor.now
    with site.database.read() as connection:
        if workers.is_blocked(connection, worker.id):
            return RedirectResponse("/w", 303)
        wanted = visitor.request.path_params["hit_id"].replace("\0", "")
        hit = hits.find_hit(connection, worker.environment, wanted, now)
        if hit is None or hit.status(now) == "Disposed":
            return _gone(site)
        requirements = hit.type.values.requirements
        held = qualifications.held_by(connection, worker)
        if not qualifying.may("preview", requirements, held):
            return RedirectResponse("/w?notice=barred", 303)
        xml = hits.question(connection, hit.id)
        open_types = {group.mturk_id for group in leases.groups(connection, worker, now)}
        time = work_history.estimate(connection, hit.type.id, xml)
    question = questions.read(xml)
    return visitor.page(
        "preview.html.j2",
        hit=hit,
        estimate=time,
        can_accept=hit.type.mturk_id in open_types and qualifying.may("accept", requirements, held),
        frame=preview_address(site, visitor.request, question, hit.id, hit.mturk_id),
        height=question.frame_height,
    )


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
    with site.database.read() as connection:
        lease = lease_behind(site, connection, token)
        if lease is None or token_of(site, lease) != token:
            return note_page("not-found", 404)
        if lease.submitted_at is not None:
            return note_page("again", 200)
        if not lease.is_live(site.clock()):
            return note_page("over", 410)
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
        return note_page("not-found", 404)
    with site.database.read() as connection:
        question = questions.read(hits.question(connection, int(value)))
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


def _gone(site: Site) -> Response:
    return site.notice(
        404, "Nothing here", "This page does not exist, or is not yours.", ("/w", "Back to the list")
    )


ROUTES = (
    ("/w/preview/{token}/frame", preview_frame),
    ("/w/a/{token}/frame", frame),
    ("/w/preview/{hit_id}", preview),
    ("/w/a/{token}", around),
    ("/w/a/{token}/return", give_back, "POST"),
)
