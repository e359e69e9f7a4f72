"""Counting requests by kind of page and outcome, and Prometheus' text format, version 0.0.4.

Kinds are few and known beforehand, whatever callers send.
Source: https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Sample:
    """One value: of the metric itself, or of one of its parts such as ``_bucket``."""

    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric with all its samples; units stand in the name."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: tuple[Sample, ...]


def exposed(metrics: Iterable[Metric]) -> str:
    """The page's text."""
    return "".join(f"{line}\n" for metric in metrics for line in _lines(metric))


def _lines(metric: Metric) -> Iterator[str]:
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

    def metrics(self) -> tuple[Metric, ...]:
        """What was counted so far."""
        with self._lock:
            answers = sorted(self._answers.items())
            times = {kind: list(buckets) for kind, buckets in sorted(self._times.items())}
            seconds, running = dict(self._seconds), self._running
        return (
            Metric(
                "mitl_http_requests_total",
                "counter",
                "Requests by kind of page or operation; status 0: the caller went away.",
                tuple(
                    Sample(count, {"kind": kind, "method": method, "status": str(status)})
                    for (kind, method, status), count in answers
                ),
            ),
            Metric(
                "mitl_http_request_duration_seconds",
                "histogram",
                "Time to answer.",
                tuple(sample for kind in times for sample in _histogram(kind, times[kind], seconds[kind])),
            ),
            Metric(
                "mitl_http_requests_running", "gauge", "Requests that wait for an answer.", (Sample(running),)
            ),
        )


def _histogram(kind: str, counts: list[int], seconds: float) -> Iterator[Sample]:
    below = 0
    for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), counts, strict=True):
        below += count
        yield Sample(below, {"kind": kind, "le": bound}, "_bucket")
    yield Sample(seconds, {"kind": kind}, "_sum")
    yield Sample(below, {"kind": kind}, "_count")
