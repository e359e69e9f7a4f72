"""Counting requests by kind of page and outcome, and ``/metrics`` in Prometheus' text format, version 0.0.4.

Kinds are few and known beforehand, whatever callers send. ``/metrics`` answers programs of this machine, and whoever
brings the operator's token. The format takes the few lines of ``metric``, so ``prometheus_client`` is not needed.
Source: https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from __future__ import annotations

import hmac
import mmap
import os
import resource
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from mitl.addresses import parse_address
from mitl.crowd_server.middleware.callers import is_of_this_machine
from mitl.crowd_server.pages.site import Site
from mitl.crowd_server.store import reports
from mitl.records import Environment

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricSample(NamedTuple):
    """One value: of the metric itself, or of one of its parts such as ``_bucket``."""

    value: float
    labels: Mapping[str, str] = MappingProxyType({})
    suffix: str = ""


def metric(
    name: str, kind: Literal["counter", "gauge", "histogram"], about: str, samples: Iterable[MetricSample]
) -> str:
    """The page's lines about a metric; units stand in the name."""
    lines = [f"# HELP {name} {_escaped(about)}", f"# TYPE {name} {kind}"]
    for value, labels, suffix in samples:
        pairs = (f'{label}="{_escaped(text, quotes=True)}"' for label, text in labels.items())
        named = "{" + ",".join(pairs) + "}" if labels else ""
        lines.append(f"{name}{suffix}{named} {_number(value)}")
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str, *, quotes: bool = False) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quotes else escaped


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
OTHER = "other"
_METHODS = ("GET", "HEAD", "POST", OTHER)
_STATUSES = 600
_BUCKETS = len(BUCKETS_S) + 1


class Meter:
    """The requests of one server since it started, counted by all of its processes.

    Each process writes to a part of its own of one piece of memory, which it has shared with the others since it was
    forked; whoever shows the numbers adds the parts up. A process that takes a dead one's place counts on in its part,
    so that no number ever falls.
    """

    def __init__(self, kinds: Iterable[str], workers: int = 1) -> None:
        self._kinds = {kind: place for place, kind in enumerate((*sorted(kinds), OTHER))}
        self._lock = threading.Lock()
        self._times_from = len(self._kinds) * len(_METHODS) * _STATUSES
        self._counts = [_shared("q", self._times_from + len(self._kinds) * _BUCKETS) for _ in range(workers)]
        self._seconds = [_shared("d", len(self._kinds)) for _ in range(workers)]
        self._processes = [_shared("d", len(_Place)) for _ in range(workers)]
        self._own = 0
        self._cpu_before = 0.0
        if workers == 1:
            self.be(0)

    def be(self, place: int) -> None:
        """Count in this part from now on: this process has it to itself."""
        self._own = place
        counters = self._processes[place]
        counters[_Place.RUNNING], counters[_Place.PID] = 0, os.getpid()
        self._cpu_before = counters[_Place.CPU_S]

    def leave(self, place: int) -> None:
        """The process that had this part is gone; what it counted stays."""
        self._processes[place][_Place.RUNNING] = self._processes[place][_Place.PID] = 0

    @property
    def workers(self) -> int:
        """How many processes answer now."""
        return sum(counters[_Place.PID] > 0 for counters in self._processes)

    @property
    def wanted(self) -> int:
        """How many processes there should be."""
        return len(self._processes)

    def begin(self) -> None:
        """A request came in."""
        with self._lock:
            self._processes[self._own][_Place.RUNNING] += 1

    def end(self, kind: str, method: str, status: int, seconds: float) -> None:
        """It was answered; ``status`` 0 says that the caller went away before."""
        kind_place = self._kinds.get(kind, len(self._kinds) - 1)
        counters, counts = self._processes[self._own], self._counts[self._own]
        asked = _METHODS.index(method if method in _METHODS else OTHER)
        with self._lock:
            counters[_Place.RUNNING] -= 1
            counters[_Place.CPU_S] = self._cpu_before + time.process_time()
            counts[(kind_place * len(_METHODS) + asked) * _STATUSES + status] += 1
            counts[self._times_from + kind_place * _BUCKETS + bisect_left(BUCKETS_S, seconds)] += 1
            self._seconds[self._own][kind_place] += seconds

    def text(self) -> str:
        """What was counted so far, as the page shows it."""
        times = {kind: self._times(place) for kind, place in self._kinds.items()}
        asked = sorted(kind for kind, buckets in times.items() if any(buckets))
        seconds = {kind: sum(own[self._kinds[kind]] for own in self._seconds) for kind in asked}
        running = sum(own[_Place.RUNNING] for own in self._processes)
        cpu_s = sum(own[_Place.CPU_S] for own in self._processes)
        memory = sum(_resident_bytes(int(own[_Place.PID])) for own in self._processes)
        return (
            metric(
                "mitl_http_requests_total",
                "counter",
                "Requests by kind of page or operation; status 0: the caller went away.",
                (sample for kind in asked for sample in self._by_outcome(kind)),
            )
            + metric(
                "mitl_http_request_duration_seconds",
                "histogram",
                "Time to answer.",
                (sample for kind in asked for sample in _histogram(kind, times[kind], seconds[kind])),
            )
            + _gauge("mitl_http_requests_running", "Requests that wait for an answer.", running)
            + _gauge("mitl_http_workers", "Processes that answer.", self.workers)
            + metric(
                "process_cpu_seconds_total",
                "counter",
                "User and system time of all processes.",
                [MetricSample(cpu_s)],
            )
            + _gauge(
                "process_resident_memory_bytes",
                "Memory in use by all processes, with what they share in each.",
                memory,
            )
        )

    def _times(self, place: int) -> list[int]:
        first = self._times_from + place * _BUCKETS
        return [sum(counts[at] for counts in self._counts) for at in range(first, first + _BUCKETS)]

    def _by_outcome(self, kind: str) -> Iterator[MetricSample]:
        for place, method in enumerate(_METHODS):
            first = (self._kinds[kind] * len(_METHODS) + place) * _STATUSES
            for status in range(_STATUSES):
                count = sum(counts[first + status] for counts in self._counts)
                if count:
                    yield MetricSample(count, {"kind": kind, "method": method, "status": str(status)})


class _Place(IntEnum):
    """What a process tells of itself, by place."""

    PID = 0
    RUNNING = 1
    CPU_S = 2


def _shared(kind: Literal["q", "d"], count: int) -> Any:  # a memoryview of whole numbers or of others
    """So many zeros of 8 bytes, which children of this process share; pages that nobody writes to take no memory."""
    return memoryview(mmap.mmap(-1, 8 * count)).cast(kind)


def _histogram(kind: str, counts: list[int], seconds: float) -> Iterator[MetricSample]:
    below = 0
    for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), counts, strict=True):
        below += count
        yield MetricSample(below, {"kind": kind, "le": bound}, "_bucket")
    yield MetricSample(seconds, {"kind": kind}, "_sum")
    yield MetricSample(below, {"kind": kind}, "_count")


_STARTED = time.time()
_REFUSAL = (
    "metrics are for this machine; from elsewhere send the operator's token: Authorization: Bearer TOKEN\n"
)


def show(site: Site, request: Request) -> Response:
    """All metrics as text."""
    if not _may_read(site, request):
        return PlainTextResponse(_REFUSAL, 403)
    meter: Meter = request.app.state.meter
    text = _process(site) + _crowd(site) + meter.text()
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


def _gauge(name: str, about: str, value: float | Iterable[MetricSample]) -> str:
    """Of one value, or of one by labels."""
    return metric(name, "gauge", about, [MetricSample(value)] if isinstance(value, int | float) else value)


def _crowd(site: Site) -> str:
    with site.database.read() as connection:
        hits = reports.hit_counts(connection, site.clock())
        assignments = reports.assignment_counts(connection)
        workers = reports.worker_counts(connection)
        money = reports.account_sums(connection)
    people = [MetricSample(count, {"environment": of}) for of, count in workers.items()]
    return (
        _gauge("mitl_crowd_hits", "HITs by state.", _by("state", hits))
        + _gauge("mitl_crowd_assignments", "Assignments by state.", _by("state", assignments))
        + _gauge("mitl_crowd_workers", "Workers who ever came.", people)
        + _gauge("mitl_crowd_money_cents", "Budget, held and spent money.", _by("account", money))
    )


def _by(label: str, counts: dict[tuple[Environment, str], int]) -> Iterator[MetricSample]:
    for (of, what), count in sorted(counts.items()):
        yield MetricSample(count, {"environment": of.value, label: what})


def _process(site: Site) -> str:
    about = {"version": version("mitl"), "server_id": site.server_id}
    return _gauge("mitl_info", "Which server this is.", [MetricSample(1, about)]) + _gauge(
        "process_start_time_seconds", "Start of the process, seconds since 1970.", _STARTED
    )


def _resident_bytes(pid: int) -> int:
    """The memory of a process, 0 for none; where the system does not say, the most that this one ever had."""
    if not pid:
        return 0
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 if pid == os.getpid() else 0
    return pages * os.sysconf("SC_PAGE_SIZE")


ROUTES = (("/metrics", show),)
