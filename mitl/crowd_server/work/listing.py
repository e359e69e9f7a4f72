"""Pages for workers: the list of HITs, accepting, what became of their work."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mitl.crowd_server.models import VisitState
from mitl.crowd_server.panels import visits
from mitl.crowd_server.qualifications import qualifying
from mitl.crowd_server.site import Site, is_foreign
from mitl.crowd_server.store import blocks, leases, qualifications, settling, work_history, workers
from mitl.crowd_server.store.leases import GroupRow
from mitl.crowd_server.work import around as around_pages
from mitl.crowd_server.work import estimates, frames
from mitl.crowd_server.work.entry import gate
from mitl.crowd_server.work.estimates import Estimate
from mitl.crowd_server.work.fields import foreign, read_fields
from mitl.crowd_server.work.sessions import unknown, worker_of
from mitl.crowd_server.work.shell import find_visit, shell, visit_of
from mitl.records import Environment

ORDERS = {
    "old": "oldest first",
    "new": "newest first",
    "pay": "highest reward",
    "hour": "highest pay an hour",
    "short": "shortest time",
    "many": "most HITs",
}
"""How the list can be sorted, by the value of ``sort`` in its address; the first holds unless another is asked for."""
MAX_WORDS = 100
"""Characters of what is searched for."""
NOTICES = {
    "none": "No HIT of that kind is left for you just now.",
    "barred": "That kind of HIT is not open to you.",
    "returned": "You returned the HIT. Nothing you entered was sent.",
}


def listing(site: Site, request: Request) -> Response:
    """``/w``: the groups of HITs that this worker may take; on a panel's visit, where that stands."""
    worker = worker_of(site, request)
    if worker is None:
        return unknown(site)
    notice = NOTICES.get(request.query_params.get("notice", ""), "")
    visit = visit_of(site, request, worker)
    if visit is not None and visit.state in (VisitState.COMPLETED, VisitState.NOTHING_LEFT):
        return visits.end_page(site, request, worker, visit)
    barrier = gate(site, request, worker)
    if barrier is not None:
        return barrier
    if visit is not None:
        return visits.page(site, request, worker, visit, notice)
    now = site.clock()
    _settle(site, worker.environment)
    with site.database.read() as connection:
        held = qualifications.held_by(connection, worker)
        groups = [
            (group, qualifying.may("accept", group.requirements, held))
            for group in leases.groups(connection, worker, now)
            if qualifying.may("discover", group.requirements, held)
        ]
        known = len(groups)
        words = " ".join(request.query_params.get("q", "").replace("\0", "").split())[:MAX_WORDS]
        groups = [shown for shown in groups if _has(shown[0], words)]
        times = estimates.of_groups(connection, [group for group, _ in groups])
        current = leases.current(connection, worker, now)
        earnings = workers.earnings(connection, worker)
    order = request.query_params.get("sort", "")
    if order not in ORDERS:
        order = next(iter(ORDERS))
    return site.page(
        "listing.html.j2",
        shell=shell(site, request, worker),
        groups=sorted(groups, key=lambda shown: _rank(shown[0], times.get(shown[0].hit_type_id), order)),
        known=known,
        words=words,
        order=order,
        orders=ORDERS,
        estimates=times,
        current=current and (current, frames.token_of(site, current)),
        earnings=earnings,
        notice=notice,
    )


def _has(group: GroupRow, words: str) -> bool:
    """Whether a group's title and description hold each of these words, in capitals or not."""
    text = f"{group.title} {group.description}".casefold()
    return all(word in text for word in words.casefold().split())


def _rank(group: GroupRow, time: Estimate | None, order: str) -> tuple[float, float]:
    """What the list is sorted by: smaller comes first, without an estimate last, the older of two alike first."""
    unknown = float("inf")
    ranks = {
        "old": 0,
        "new": -group.hit_type_id,
        "pay": -group.reward_cents,
        "hour": unknown if time is None else -time.cents_an_hour(group.reward_cents),
        "short": unknown if time is None else time.seconds,
        "many": -group.available,
    }
    return ranks[order], group.hit_type_id


def work(site: Site, request: Request) -> Response:
    """``/w/work``: what became of each submission: approved or not, why, what is owed, bonuses, what came late."""
    worker = worker_of(site, request)
    if worker is None:
        return unknown(site)
    _settle(site, worker.environment)
    with site.database.read() as connection:
        earnings = workers.earnings(connection, worker)
        submissions = work_history.submissions(connection, worker.id)
        late = work_history.late_answers(connection, worker.id)
    return site.page(
        "work.html.j2",
        shell=shell(site, request, worker),
        earnings=earnings,
        submissions=submissions,
        late=late,
    )


async def accept(site: Site, request: Request) -> Response:
    """``POST /w/accept``: lease one HIT of a type and go to its page; an open one comes first."""
    if is_foreign(request):
        return foreign(site)
    fields = await read_fields(request)
    return await run_in_threadpool(_accept, site, request, fields.get("hit_type_id", ""))


def _accept(site: Site, request: Request, hit_type: str) -> Response:
    worker = worker_of(site, request)
    if worker is None:
        return unknown(site)
    barrier = gate(site, request, worker)
    if barrier is not None:
        return barrier
    now = site.clock()
    with site.database.write(worker.environment) as connection:
        visit = find_visit(site, request, worker, connection)
        if visit is not None:
            return RedirectResponse(visits.proceed(site, connection, worker, visit, hit_type), 303)
        current = leases.current(connection, worker, now)
        if current is not None:
            return RedirectResponse(f"/w/a/{frames.token_of(site, current)}?notice=first", 303)
        if blocks.is_blocked(connection, worker.id):
            return RedirectResponse("/w", 303)
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


def _settle(site: Site, environment: Environment) -> None:
    now = site.clock()
    with site.database.read() as connection:
        due = settling.is_due(connection, environment, now)
    if due:
        with site.database.write(environment) as connection:
            settling.settle(connection, environment, now)


ROUTES = (
    ("/w", listing),
    ("/w/work", work),
    ("/w/accept", accept, "POST"),
    *around_pages.ROUTES,
)
