"""Which metrics are wanted, and what a ranking means that ends too early."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mitl.errors import MetricError, UsageError
from mitl.metrics.positives import Short
from mitl.metrics.table import USUAL, Asked, asked_metrics


@dataclass(frozen=True, slots=True)
class Wanted:
    """The metrics of a set of positives."""

    metrics: tuple[Asked, ...] = field(default_factory=lambda: asked_metrics(USUAL))
    short: Short = "raise"

    @property
    def of_first(self) -> tuple[Asked, ...]:
        """Those that follow from each query's first positive."""
        return tuple(one for one in self.metrics if one.metric.positives == "first")


def parse_metrics(texts: Sequence[str], short: Short) -> Wanted:
    """The metrics named, several in one text parted by commas; the usual ones where none is.

    Raises:
        UsageError: there is no such metric.
    """
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    try:
        return Wanted(asked_metrics(names or USUAL), short)
    except MetricError as error:
        raise UsageError(str(error)) from error
