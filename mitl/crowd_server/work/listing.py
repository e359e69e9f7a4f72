"""Pages for workers: the list of HITs, accepting, what became of their work, messages."""

from __future__ import annotations

import tempfile
import threading
from typing import BinaryIO

from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from mitl.core.paging import ListPage, number_in
from mitl.crowd_server.pages.held import pack
from mitl.crowd_server.pages.site import download_headers
from mitl.crowd_server.protocol import qualifying
from mitl.crowd_server.store import accounts, assignments, leases, persons, qualifications, workers
from mitl.crowd_server.store.assignments import TimeEstimate
from mitl.crowd_server.store.leases import OpenGroup
from mitl.crowd_server.store.models import VisitState
from mitl.crowd_server.store.workers import WorkerRow
from mitl.crowd_server.work.entry import after_study, end_page, gate, proceed, visit_page
from mitl.crowd_server.work.visitor import BACK, Fields, Visitor, current_lease, for_workers, form, seal_lease

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
ON_A_PAGE = 50
"""Messages."""
WORK_ON_A_PAGE = 100
"""Submissions."""
NOTICES = {
    "none": "No HIT of that kind is left for you just now.",
    "barred": "That kind of HIT is not open to you.",
    "returned": "You returned the HIT. Nothing you entered was sent.",
}


@for_workers
def listing(visitor: Visitor) -> Response:
    """``/w``: the groups of HITs that this worker may take; on a panel's visit, where that stands."""
    worker, now = visitor.worker, visitor.now
    notice = visitor.notice(NOTICES)
    with visitor.read() as books:
        visit = visitor.visit(books.connection)
    if visit is not None and visit.state in (VisitState.COMPLETED, VisitState.NOTHING_LEFT):
        return end_page(visitor, visit)
    if barrier := gate(visitor):
        return barrier
    if visit is not None:
        return visit_page(visitor, visit, notice)
    accounts.settle_due(visitor.site.database, worker.environment, now)
    with visitor.read() as books:
        offered = leases.groups(books, worker)
        held = qualifications.held_for(books.connection, worker, offered)
        groups = [
            (group, qualifying.may("accept", group.requirements, held))
            for group in offered
            if qualifying.may("discover", group.requirements, held)
        ]
        n_groups = len(groups)
        words = " ".join(visitor.request.query_params.get("q", "").replace("\0", "").split())[:MAX_WORDS]
        groups = [shown for shown in groups if _has(shown[0], words)]
        times = visitor.site.times.of_groups(books.connection, [group for group, _ in groups])
        earnings = workers.earnings(books.connection, worker)
    order = visitor.request.query_params.get("sort", "")
    if order not in ORDERS:
        order = next(iter(ORDERS))
    return visitor.page(
        "listing.html.j2",
        groups=sorted(groups, key=lambda shown: _rank(shown[0], times.get(shown[0].hit_type_id), order)),
        known=n_groups,
        words=words,
        order=order,
        orders=ORDERS,
        estimates=times,
        current=current_lease(visitor),
        earnings=earnings,
        notice=notice,
    )


def _has(group: OpenGroup, words: str) -> bool:
    """Whether a group's title and description hold each of these words, in capitals or not."""
    text = f"{group.title} {group.description}".casefold()
    return all(word in text for word in words.casefold().split())


def _rank(group: OpenGroup, time: TimeEstimate | None, order: str) -> tuple[float, float]:
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


@for_workers
def work(visitor: Visitor) -> Response:
    """``/w/work``: what became of each submission: approved or not, why, what is owed, bonuses, what came late.

    The newest first, 100 on a page, at ``?page=``.
    """
    accounts.settle_due(visitor.site.database, visitor.worker.environment, visitor.now)
    with visitor.read() as books:
        earnings = workers.earnings(books.connection, visitor.worker)
        sent = earnings.waiting + earnings.approved + earnings.rejected
        turn = ListPage.to(
            number_in(visitor.request.query_params.get("page", "")) or 1, sent, a_page=WORK_ON_A_PAGE
        )
        submissions = assignments.submissions(books.connection, visitor.worker.id, turn.part)
        late = assignments.late_answers(books.connection, visitor.worker.id) if turn.page == 1 else ()
    return visitor.page(
        "work.html.j2",
        earnings=earnings,
        submissions=submissions,
        late=late[: assignments.LATE_SHOWN],
        late_is_cut=len(late) > assignments.LATE_SHOWN,
        turn=turn,
    )


@form
@after_study
def accept(visitor: Visitor, fields: Fields) -> Response:
    """``POST /w/accept``: lease one HIT of a type and go to its page; an open one comes first."""
    site, worker = visitor.site, visitor.worker
    hit_type = fields.get("hit_type_id", "")
    with visitor.read() as books:
        visit = visitor.visit(books.connection)
    with visitor.write() as books:
        if visit is not None:
            return RedirectResponse(proceed(visitor, books, visit, hit_type), 303)
        requirements, current = leases.at_hand(books, worker, hit_type)
        if current is not None:
            return RedirectResponse(f"/w/a/{seal_lease(site, worker.mturk_id, *current)}?notice=first", 303)
        if requirements is None:
            return RedirectResponse("/w?notice=none", 303)
        if requirements != "[]":
            held = qualifications.held_by(books.connection, worker)
            if not qualifying.may("accept", requirements, held):
                return RedirectResponse("/w?notice=barred", 303)
        leased = leases.accept(books, worker, hit_type)
        if leased is None and workers.is_blocked(books.connection, worker.id):
            return RedirectResponse("/w", 303)
    if leased is None:
        return RedirectResponse("/w?notice=none", 303)
    return RedirectResponse(f"/w/a/{seal_lease(site, worker.mturk_id, *leased)}", 303)


@for_workers
def message_page(visitor: Visitor) -> Response:
    """``/w/messages``: what requesters told a worker, newest first; what is shown counts as read from then on.

    Not behind the study's consent: who declines may still read what was said about their work.
    """
    worker, before = visitor.worker, number_in(visitor.request.query_params.get("before", ""))
    with visitor.read() as books:
        rows = workers.messages_of(books.connection, worker.id, before=before, limit=ON_A_PAGE + 1)
    shown = rows[:ON_A_PAGE]
    new = [row.id for row in shown if row.read_at is None]
    if new:
        with visitor.write() as books:
            workers.mark_read(books.connection, worker.id, new, visitor.now)
    return visitor.page(
        "messages.html.j2",
        messages=shown,
        older=shown[-1].id if len(rows) > ON_A_PAGE else None,
        newest=before is None,
    )


_ONE_AT_A_TIME = threading.Lock()
"""Packing takes a second for who sent thousands of HITs; more than one at once would keep others from their pages."""
_SENT: set[int] = set()
"""Workers whose archive lies on the disk."""


class _Archive(StreamingResponse):
    """What is held about a worker, on the disk until it was taken or its worker went away."""

    def __init__(self, worker: WorkerRow, packed: BinaryIO) -> None:
        headers = download_headers(f"data-of-{worker.mturk_id}.zip")
        pieces = iter(lambda: packed.read(1 << 16), b"")
        super().__init__(pieces, headers=headers, media_type="application/zip")
        self._worker_id, self._packed = worker.id, packed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._packed:
                await super().__call__(scope, receive, send)
        finally:
            _SENT.discard(self._worker_id)


@for_workers
def data(visitor: Visitor) -> Response:
    """``/w/data``: all that this server holds about the worker, as an archive; not behind the study's consent."""
    worker = visitor.worker
    text = "Your data, or those of others, are just being sent. Try again in a minute."
    busy = visitor.site.notice(503, "Not just now", text, BACK)
    if not _ONE_AT_A_TIME.acquire(blocking=False):  # who waited here would hold a thread that others need
        return busy
    try:
        if worker.id in _SENT:
            return busy
        sink = tempfile.TemporaryFile()  # noqa: SIM115 - it is open until it was sent
        with visitor.read() as books:
            pack(sink, [persons.held(books.connection, worker.id)], visitor.now, visitor.site.templates)
        _SENT.add(worker.id)
    finally:
        _ONE_AT_A_TIME.release()
    sink.seek(0)
    return _Archive(worker, sink)


ROUTES = (
    ("/w", listing),
    ("/w/work", work),
    ("/w/data", data),
    ("/w/accept", accept, "POST"),
    ("/w/messages", message_page),
)
