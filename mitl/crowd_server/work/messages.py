"""What requesters told a worker."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from mitl.crowd_server.site import Site
from mitl.crowd_server.store import messages
from mitl.crowd_server.work.sessions import unknown, worker_of
from mitl.crowd_server.work.shell import shell

ON_A_PAGE = 50


def overview(site: Site, request: Request) -> Response:
    """``/w/messages``: newest first; what is shown counts as read from then on.

    Not behind the study's consent: who declines may still read what was said about their work.
    """
    worker = worker_of(site, request)
    if worker is None:
        return unknown(site)
    with site.database.read() as connection:
        found = messages.page(connection, worker.id, before=_before(request), limit=ON_A_PAGE + 1)
    shown = found[:ON_A_PAGE]
    new = [row.id for row in shown if row.read_at is None]
    if new:
        with site.database.write(worker.environment) as connection:
            messages.mark_read(connection, worker.id, new, site.clock())
    return site.page(
        "messages.html.j2",
        shell=shell(site, request, worker),
        messages=shown,
        older=shown[-1].id if len(found) > ON_A_PAGE else None,
        newest=_before(request) is None,
    )


def _before(request: Request) -> int | None:
    text = request.query_params.get("before", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None


ROUTES = (("/w/messages", overview),)
