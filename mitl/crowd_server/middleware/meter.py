"""Counting requests by kind of page and outcome, and ``/metrics`` in Prometheus' text format, version 0.0.4.

Kinds are few and known beforehand, whatever callers send. ``/metrics`` answers programs of this machine, and whoever
brings the operator's token. The format takes the few lines of ``exposed``, so ``prometheus_client`` is not needed.
Source: https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from __future__ import annotations

import hmac
import os
import resource
import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from mitl.addresses import parse_address
from mitl.crowd_server.middleware.callers import is_of_this_machine
from mitl.crowd_server.pages.site import Site
from mitl.crowd_server.store import reports
from mitl.records import Environment

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One value: of the metric itself, or of one of its parts such as ``_bucket``."""

    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class ServerMetric:
    """A metric with all its samples; units stand in the name."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: tuple[MetricSample, ...]


def exposed(metrics: Iterable[ServerMetric]) -> str:
    """The page's text."""
    return "".join(f"{line}\n" for metric in metrics for line in _lines(metric))


def _lines(metric: ServerMetric) -> Iterator[str]:
    help_text = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {metric.name} {help_text}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for sample in metric.samples:
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels.items())
        yield (
            f"{metric.name}{sample.suffix}{{{labels}}} {_number(sample.value)}"
            if labels
            else (f"{metric.name}{sample.suffix} {_number(sample.value)}")
        )


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
OTHER = "other"
_METHODS = ("GET", "HEAD", "POST")


class Meter:
    """The requests of one server since it started."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self._kinds = frozenset(kinds)
        self._lock = threading.Lock()
        self._running = 0
        self._answers: Counter[tuple[str, str, int]] = Counter()
        self._times: dict[str, list[int]] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def begin(self) -> None:
        """A request came in."""
        with self._lock:
            self._running += 1

    def end(self, kind: str, method: str, status: int, seconds: float) -> None:
        """It was answered; ``status`` 0 says that the caller went away before."""
        known = kind if kind in self._kinds else OTHER
        with self._lock:
            self._running -= 1
            self._answers[known, method if method in _METHODS else OTHER, status] += 1
            times = self._times.setdefault(known, [0] * (len(BUCKETS_S) + 1))
            times[bisect_left(BUCKETS_S, seconds)] += 1
            self._seconds[known] += seconds

    def metrics(self) -> tuple[ServerMetric, ...]:
        """What was counted so far."""
        with self._lock:
            answers = sorted(self._answers.items())
            times = {kind: list(buckets) for kind, buckets in sorted(self._times.items())}
            seconds, running = dict(self._seconds), self._running
        return (
            ServerMetric(
                "mitl_http_requests_total",
                "counter",
                "Requests by kind of page or operation; status 0: the caller went away.",
                tuple(
                    MetricSample(count, {"kind": kind, "method": method, "status": str(status)})
                    for (kind, method, status), count in answers
                ),
            ),
            ServerMetric(
                "mitl_http_request_duration_seconds",
                "histogram",
                "Time to answer.",
                tuple(sample for kind in times for sample in _histogram(kind, times[kind], seconds[kind])),
            ),
            _gauge(
                "mitl_http_requests_running", "Requests that wait for an answer.", [MetricSample(running)]
            ),
        )


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


def _gauge(name: str, about: str, samples: Iterable[MetricSample]) -> ServerMetric:
    return ServerMetric(name, "gauge", about, tuple(samples))


def _crowd(site: Site) -> tuple[ServerMetric, ...]:
    with site.database.read() as connection:
        hits = reports.hit_counts(connection, site.clock())
        assignments = reports.assignment_counts(connection)
        workers = reports.worker_counts(connection)
        money = reports.account_sums(connection)
    people = [MetricSample(count, {"environment": of}) for of, count in workers.items()]
    return (
        _gauge("mitl_crowd_hits", "HITs by state.", _by("state", hits)),
        _gauge("mitl_crowd_assignments", "Assignments by state.", _by("state", assignments)),
        _gauge("mitl_crowd_workers", "Workers who ever came.", people),
        _gauge("mitl_crowd_money_cents", "Budget, held and spent money.", _by("account", money)),
    )


def _by(label: str, counts: dict[tuple[Environment, str], int]) -> Iterator[MetricSample]:
    for (of, what), count in sorted(counts.items()):
        yield MetricSample(count, {"environment": of.value, label: what})


def _process(site: Site) -> tuple[ServerMetric, ...]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    about = {"version": version("mitl"), "server_id": site.server_id}
    started, memory = MetricSample(_STARTED), MetricSample(_resident_bytes(used))
    cpu = MetricSample(used.ru_utime + used.ru_stime)
    return (
        _gauge("mitl_info", "Which server this is.", [MetricSample(1, about)]),
        _gauge("process_start_time_seconds", "Start of the process, seconds since 1970.", [started]),
        ServerMetric("process_cpu_seconds_total", "counter", "User and system time.", (cpu,)),
        _gauge("process_resident_memory_bytes", "Memory in use.", [memory]),
    )


def _resident_bytes(used: resource.struct_rusage) -> int:
    """As Linux says; elsewhere the most that it ever was."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return used.ru_maxrss * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


ROUTES = (("/metrics", show),)
