"""Prometheus' text format, version 0.0.4.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/. Written here because it is four rules, and the
client library's registry of the whole process would mix the servers that run in one.
"""

from __future__ import annotations

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
