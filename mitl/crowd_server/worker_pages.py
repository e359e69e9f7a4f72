"""Pages for workers: the list of HITs, accepting, the page around a HIT, returning, preview."""

from __future__ import annotations

from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mitl.crowd_server import frames, qualifying
from mitl.crowd_server.api import questions
from mitl.crowd_server.sessions import unknown, worker_of
from mitl.crowd_server.site import Site, is_foreign, origin
from mitl.crowd_server.store import hits, leases, qualifications, settling, workers
from mitl.crowd_server.store.workers import WorkerRow
from mitl.records import Environment

NOTICES = {
    "none": "No HIT of that kind is left for you just now.",
    "barred": "That kind of HIT is not open to you.",
    "returned": "You returned the HIT. Nothing you entered was sent.",
    "first": "You already have a HIT open; finish or return it before you take another.",
}
MAX_FORM = 4096


def listing(site: Site, request: Request) -> Response:
    """``/w``: the groups of HITs that this worker may take, and what became of their work."""
    worker = worker_of(site, request)
    if worker is None:
        return unknown(site)
    now = site.clock()
    _settle(site, worker.environment)
    with site.database.read() as connection:
        held = qualifications.held_by(connection, worker)
        groups = [
            (group, qualifying.may("accept", group.requirements, held))
            for group in leases.groups(connection, worker, now)
            if qualifying.may("discover", group.requirements, held)
        ]
        current = leases.current(connection, worker, now)
        earnings = workers.earnings(connection, worker)
    return site.page(
        "listing.html.j2",
        worker=worker,
        practice=worker.environment is Environment.SANDBOX,
        groups=groups,
        current=current and (current, frames.token_of(site, current)),
        earnings=earnings,
        notice=NOTICES.get(request.query_params.get("notice", ""), ""),
    )


async def accept(site: Site, request: Request) -> Response:
    """``POST /w/accept``: lease one HIT of a type and go to its page; an open one comes first."""
    if is_foreign(request):
        return _foreign(site)
    hit_type = await _field(request, "hit_type_id")
    return await run_in_threadpool(_accept, site, request, hit_type)


def _accept(site: Site, request: Request, hit_type: str) -> Response:
    worker = worker_of(site, request)
    if worker is None:
        return unknown(site)
    now = site.clock()
    with site.database.write(worker.environment) as connection:
        current = leases.current(connection, worker, now)
        if current is not None:
            return RedirectResponse(f"/w/a/{frames.token_of(site, current)}?notice=first", 303)
        requirements = leases.requirements(connection, worker.environment, hit_type)
        if requirements is None:
            return RedirectResponse("/w?notice=none", 303)
        if requirements != "[]":
            held = qualifications.held_by(connection, worker)
            if not qualifying.may("accept", requirements, held):
                return RedirectResponse("/w?notice=barred", 303)
        leased = leases.accept(connection, worker, hit_type, now)
    if leased is None:
        return RedirectResponse("/w?notice=none", 303)
    return RedirectResponse(f"/w/a/{frames.seal_lease(site, *leased)}", 303)


def around(site: Site, request: Request) -> Response:
    """``/w/a/<token>``: the page around a HIT: title, reward, time left, the frame, the way back."""
    worker = worker_of(site, request)
    if worker is None:
        return unknown(site)
    lease = frames.lease_of(site, request.path_params["token"])
    if lease is None or lease.worker != worker.mturk_id:
        return _gone(site)
    now = site.clock()
    if lease.submitted_at is not None:
        return site.page("submitted.html.j2", lease=lease, practice=_practice(worker), late=False)
    if not lease.is_live(now):
        return site.notice(
            410,
            "The time for this HIT is over",
            "It was returned, or its time ran out before it was submitted, and it is open to others again.",
            ("/w", "Back to the list"),
        )
    token = request.path_params["token"]
    with site.database.read() as connection:
        question = questions.read(hits.question(connection, lease.hit_id))
    values = {
        "assignmentId": lease.mturk_id,
        "hitId": lease.hit,
        "workerId": lease.worker,
        "turkSubmitTo": f"{origin(request)}/s/{token}",
    }
    return site.page(
        "around.html.j2",
        lease=lease,
        token=token,
        practice=_practice(worker),
        frame=_frame_address(question, f"/w/a/{token}/frame", values),
        height=question.frame_height,
        seconds_left=int((lease.deadline_at - now).total_seconds()),
        notice=NOTICES["first"] if request.query_params.get("notice") == "first" else "",
    )


async def give_back(site: Site, request: Request) -> Response:
    """``POST /w/a/<token>/return``: give a HIT back unanswered."""
    if is_foreign(request):
        return _foreign(site)
    return await run_in_threadpool(_give_back, site, request)


def _give_back(site: Site, request: Request) -> Response:
    worker = worker_of(site, request)
    if worker is None:
        return unknown(site)
    with site.database.write(worker.environment) as connection:
        lease = frames.lease_of(site, request.path_params["token"], connection)
        if lease is None or lease.worker != worker.mturk_id:
            return _gone(site)
        if lease.submitted_at is not None:
            return RedirectResponse(f"/w/a/{request.path_params['token']}", 303)
        if lease.is_live(site.clock()):
            leases.give_back(connection, lease.id)
    return RedirectResponse("/w?notice=returned", 303)


def preview(site: Site, request: Request) -> Response:
    """``/w/preview/<hit>``: a HIT to look at before taking one, with its inputs off."""
    worker = worker_of(site, request)
    if worker is None:
        return unknown(site)
    now = site.clock()
    with site.database.read() as connection:
        hit = hits.find_hit(connection, worker.environment, request.path_params["hit_id"], now)
        if hit is None or hit.status(now) == "Disposed":
            return _gone(site)
        held = qualifications.held_by(connection, worker)
        if not qualifying.may("preview", hit.type.values.requirements, held):
            return RedirectResponse("/w?notice=barred", 303)
        question = questions.read(hits.question(connection, hit.id))
    values = {
        "assignmentId": frames.PREVIEW_ASSIGNMENT,
        "hitId": hit.mturk_id,
        "turkSubmitTo": origin(request),
    }
    return site.page(
        "preview.html.j2",
        hit=hit,
        practice=_practice(worker),
        can_accept=qualifying.may("accept", hit.type.values.requirements, held),
        frame=_frame_address(question, f"/w/preview/{frames.seal_preview(site, hit.id)}/frame", values),
        height=question.frame_height,
    )


def _frame_address(question: questions.Question, own: str, values: dict[str, str]) -> str:
    if question.url is None:
        return f"{own}?{urlencode(values)}"
    joint = "&" if urlsplit(question.url).query else "?"
    return f"{question.url}{joint}{urlencode(values)}"


def _settle(site: Site, environment: Environment) -> None:
    now = site.clock()
    with site.database.read() as connection:
        due = settling.is_due(connection, environment, now)
    if due:
        with site.database.write(environment) as connection:
            settling.settle(connection, environment, now)


def _practice(worker: WorkerRow) -> bool:
    return worker.environment is Environment.SANDBOX


async def _field(request: Request, name: str) -> str:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM:
            return ""
    values = parse_qs(body.decode("latin-1"), max_num_fields=20)
    return values.get(name, [""])[0]


def _gone(site: Site) -> Response:
    return site.notice(
        404, "Nothing here", "This page does not exist, or is not yours.", ("/w", "Back to the list")
    )


def _foreign(site: Site) -> Response:
    return site.notice(
        403,
        "Not done",
        "Another site sent this form. Use the buttons of this one.",
        ("/w", "Back to the list"),
    )


ROUTES = (
    ("/w", listing),
    ("/w/accept", accept, "POST"),
    ("/w/preview/{hit_id}", preview),
    ("/w/a/{token}", around),
    ("/w/a/{token}/return", give_back, "POST"),
)
