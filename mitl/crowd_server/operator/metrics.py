"""`/metrics`: for programs of this machine, and for whoever brings the operator's token."""

from __future__ import annotations

import hmac
import os
import resource
import time
from importlib.metadata import version
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from mitl.addresses import parse_address
from mitl.crowd_server.middleware.callers import is_of_this_machine
from mitl.crowd_server.middleware.meter import CONTENT_TYPE, Meter, Metric, Sample, exposed
from mitl.crowd_server.pages.site import Site
from mitl.crowd_server.store import reports
from mitl.records import Environment

_STARTED = time.time()
_REFUSAL = (
    "metrics are for this machine; from elsewhere send the operator's token: Authorization: Bearer TOKEN\n"
)


def show(site: Site, request: Request) -> Response:
    """All metrics as text."""
    if not _may_read(site, request):
        return PlainTextResponse(_REFUSAL, 403)
    meter: Meter = request.app.state.meter
    text = exposed((*_process(site), *_crowd(site), *meter.metrics()))
    return Response(text, headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})


def _may_read(site: Site, request: Request) -> bool:
    """What a proxy passes on is not of this machine, whether or not the operator named that proxy."""
    sender = parse_address(request.client.host) if request.client else None
    if is_of_this_machine(sender, request.headers):
        return True
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(
        token.strip().encode(), site.operator_token.encode()
    )


def _crowd(site: Site) -> tuple[Metric, ...]:
    with site.database.read() as connection:
        hits = reports.hit_counts(connection, site.clock())
        assignments = reports.assignment_counts(connection)
        workers = reports.worker_counts(connection)
        money = reports.account_sums(connection)
    return (
        Metric("mitl_crowd_hits", "gauge", "HITs by state.", _by("state", hits)),
        Metric("mitl_crowd_assignments", "gauge", "Assignments by state.", _by("state", assignments)),
        Metric(
            "mitl_crowd_workers",
            "gauge",
            "Workers who ever came.",
            tuple(Sample(count, {"environment": of}) for of, count in workers.items()),
        ),
        Metric("mitl_crowd_money_cents", "gauge", "Budget, held and spent money.", _by("account", money)),
    )


def _by(label: str, counts: dict[tuple[Environment, str], int]) -> tuple[Sample, ...]:
    return tuple(
        Sample(count, {"environment": of.value, label: what}) for (of, what), count in sorted(counts.items())
    )


def _process(site: Site) -> tuple[Metric, ...]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    about = {"version": version("mitl"), "server_id": site.server_id}
    return (
        Metric("mitl_info", "gauge", "Which server this is.", (Sample(1, about),)),
        Metric(
            "process_start_time_seconds",
            "gauge",
            "Start of the process, seconds since 1970.",
            (Sample(_STARTED),),
        ),
        Metric(
            "process_cpu_seconds_total",
            "counter",
            "User and system time.",
            (Sample(used.ru_utime + used.ru_stime),),
        ),
        Metric("process_resident_memory_bytes", "gauge", "Memory in use.", (Sample(_resident_bytes(used)),)),
    )


def _resident_bytes(used: resource.struct_rusage) -> int:
    """As Linux says; elsewhere the most that it ever was."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return used.ru_maxrss * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


ROUTES = (("/metrics", show),)
