"""Workers by how much they did: the paper's Table B.1."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

EDGES = (1, 5, 10, 15, 25)
"""The most HITs of a worker in each bin; a last bin holds whoever did more. As in Table B.1 of the paper."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What one worker did."""

    submitted: int
    approved: int


@dataclass(frozen=True, slots=True)
class WorkloadBin:
    """The workers who submitted more than ``above`` and at most ``most`` HITs."""

    above: int
    most: int | None
    """None in the last bin."""
    workers: int = 0
    submitted: int = 0
    approved: int = 0

    @property
    def text(self) -> str:
        """The bin as the paper writes it."""
        if self.most is None:
            return f"{self.above} <"
        return str(self.most) if self.most == self.above + 1 else f"{self.above} < and ≤ {self.most}"

    @property
    def ratio(self) -> float | None:
        """Approved of submitted HITs, from 0 to 1; None in an empty bin."""
        return self.approved / self.submitted if self.submitted else None


def by_workload(workers: Iterable[Workload], edges: tuple[int, ...] = EDGES) -> tuple[WorkloadBin, ...]:
    """Every worker with a submission in the bin of their number of HITs; empty bins are kept."""
    bounds = list(zip((0, *edges), (*edges, None), strict=True))
    sums = [[0, 0, 0] for _ in bounds]
    for one in workers:
        if not one.submitted:
            continue
        place = sum(one.submitted > edge for edge in edges)
        for column, value in enumerate((1, one.submitted, one.approved)):
            sums[place][column] += value
    return tuple(WorkloadBin(*bound, *found) for bound, found in zip(bounds, sums, strict=True))


def together(bins: Iterable[WorkloadBin]) -> WorkloadBin:
    """All workers in one bin."""
    found = list(bins)
    return WorkloadBin(
        above=0,
        most=None,
        workers=sum(one.workers for one in found),
        submitted=sum(one.submitted for one in found),
        approved=sum(one.approved for one in found),
    )
