"""The page around a HIT at work, giving it back, and the preview before one takes it."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mitl.crowd_server.api import questions
from mitl.crowd_server.panels import visits
from mitl.crowd_server.qualifications import qualifying
from mitl.crowd_server.site import Site, is_foreign
from mitl.crowd_server.store import hits, leases, qualifications, work_history, workers
from mitl.crowd_server.store.leases import LeaseRow
from mitl.crowd_server.store.workers import WorkerRow
from mitl.crowd_server.work import estimates, frames
from mitl.crowd_server.work.entry import gate
from mitl.crowd_server.work.fields import foreign
from mitl.crowd_server.work.sessions import unknown, worker_of
from mitl.crowd_server.work.shell import shell

_ONE_AT_A_TIME = "You already have a HIT open; finish or return it before you take another."


def around(site: Site, request: Request) -> Response:
    """``/w/a/<token>``: the page around a HIT: title, reward, time left, the frame, the way back."""
    worker = worker_of(site, request)
    if worker is None:
        return unknown(site)
    token = request.path_params["token"]
    lease = frames.lease_behind(site, token)
    if lease is None or lease.worker != worker.mturk_id:
        return _gone(site)
    now = site.clock()
    if lease.submitted_at is not None:
        return _submitted(site, request, worker, lease)
    if frames.token_of(site, lease) != token or not lease.is_live(now):
        return _over(site, request, worker, lease)
    barrier = gate(site, request, worker)
    if barrier is not None:
        return barrier
    with site.database.read() as connection:
        xml = hits.question(connection, lease.hit_id)
        time = estimates.of_hit(connection, lease.hit_type_id, xml)
    question = questions.read(xml)
    return site.page(
        "around.html.j2",
        shell=shell(site, request, worker),
        lease=lease,
        token=token,
        frame=frames.frame_address(request, question, lease, token),
        height=question.frame_height,
        estimate=time,
        seconds_left=int((lease.deadline_at - now).total_seconds()),
        notice=_ONE_AT_A_TIME if request.query_params.get("notice") == "first" else "",
    )


def _submitted(site: Site, request: Request, worker: WorkerRow, lease: LeaseRow) -> Response:
    """Thanks, what was earned, and what is next; after a visit's last HIT its end says all that."""
    own, token = shell(site, request, worker), frames.token_of(site, lease)
    if own.visit is not None and not own.visit.is_open:
        return visits.end_page(site, request, worker, own.visit, sent=token)
    with site.database.read() as connection:
        held = qualifications.held_by(connection, worker)
        open_to_them = [
            group
            for group in leases.groups(connection, worker, site.clock())
            if qualifying.may("accept", group.requirements, held)
        ]
        earnings = workers.earnings(connection, worker)
    return site.page(
        "submitted.html.j2",
        shell=own,
        lease=lease,
        token=token,
        earnings=earnings,
        same_kind=sum(group.available for group in open_to_them if group.mturk_id == lease.hit_type),
        other_kinds=sum(group.mturk_id != lease.hit_type for group in open_to_them),
    )


def _over(site: Site, request: Request, worker: WorkerRow, lease: LeaseRow) -> Response:
    """The page of a HIT that is no longer at work under this address, with the way to the one that is."""
    with site.database.read() as connection:
        kept = work_history.late_count(connection, lease.id) > 0
        current = leases.current(connection, worker, site.clock())
    return site.page(
        "time_over.html.j2",
        status=410,
        shell=shell(site, request, worker),
        lease=lease,
        kept=kept,
        token=request.path_params["token"],
        current=current and (current, frames.token_of(site, current)),
    )


async def give_back(site: Site, request: Request) -> Response:
    """``POST /w/a/<token>/return``: give a HIT back unanswered."""
    if is_foreign(request):
        return foreign(site)
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
    barrier = gate(site, request, worker)
    if barrier is not None:
        return barrier
    own = shell(site, request, worker)
    if own.is_blocked:
        return RedirectResponse("/w", 303)
    now, wanted = site.clock(), request.path_params["hit_id"].replace("\0", "")
    with site.database.read() as connection:
        hit = hits.find_hit(connection, worker.environment, wanted, now)
        if hit is None or hit.status(now) == "Disposed":
            return _gone(site)
        requirements = hit.type.values.requirements
        held = qualifications.held_by(connection, worker)
        if not qualifying.may("preview", requirements, held):
            return RedirectResponse("/w?notice=barred", 303)
        xml = hits.question(connection, hit.id)
        open_types = {group.mturk_id for group in leases.groups(connection, worker, now)}
        time = estimates.of_hit(connection, hit.type.id, xml)
    question = questions.read(xml)
    return site.page(
        "preview.html.j2",
        shell=own,
        hit=hit,
        estimate=time,
        can_accept=hit.type.mturk_id in open_types and qualifying.may("accept", requirements, held),
        frame=frames.preview_address(site, request, question, hit.id, hit.mturk_id),
        height=question.frame_height,
    )


def _gone(site: Site) -> Response:
    return site.notice(
        404, "Nothing here", "This page does not exist, or is not yours.", ("/w", "Back to the list")
    )


ROUTES = (
    ("/w/preview/{hit_id}", preview),
    ("/w/a/{token}", around),
    ("/w/a/{token}/return", give_back, "POST"),
)
