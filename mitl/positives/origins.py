"""How the answers of a release came to be, as its datasheet tells it: machines, queries, controls, people, pay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mitl.records import AnnotatorKind, Direction, ExclusionKind


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine annotator."""

    name: str
    kind: AnnotatorKind


@dataclass(frozen=True, slots=True)
class QueryDraw:
    """The queries of one direction in one run."""

    direction: Direction
    queries: int
    items: int
    """Images or captions that there are."""
    seed: int | None
    """With which they were drawn at random; None where all are asked or the makers listed them."""


@dataclass(frozen=True, slots=True)
class ProposalRun:
    """One round of proposals."""

    annotators: tuple[str, ...]
    top_k: int
    depth: int
    draws: tuple[QueryDraw, ...]


@dataclass(frozen=True, slots=True)
class ControlKind:
    """The gold controls of one kind."""

    controls: int
    """Distinct pairs."""
    seen: int
    """Answers on them, those on withdrawn ones left out."""
    passed: int


@dataclass(frozen=True, slots=True)
class Controls:
    """The gold controls and how they fared."""

    rule: str
    """Which answers pass, in words."""
    positive: ControlKind
    negative: ControlKind
    withdrawn: int


@dataclass(frozen=True, slots=True)
class Crowd:
    """Who worked on pages that the project posted, and what became of their work."""

    workers: int
    busiest_share: float | None
    """Of the answers of these workers that the release shows; None where there are none."""
    excluded: int
    capped: int
    max_hits_per_worker: int | None
    submissions: int
    used: int
    paid_unused: int
    rejected: int
    undecided: int


@dataclass(frozen=True, slots=True)
class BatchPay:
    """What HITs of one batch paid."""

    wording: str
    direction: str
    hits: int
    assignments: int
    """Different workers asked for each."""
    reward_cents: int
    pilot: bool


@dataclass(frozen=True, slots=True)
class Pay:
    """What was paid, and what an hour of work has paid; times are cut to what they can have been."""

    rewards_cents: int
    bonuses_cents: int
    fees_cents: int
    bonus_workers: int
    """Workers who got a bonus."""
    floor_cents: int
    """An hour; 0 where none is set."""
    timed_workers: int
    """Workers with paid work of known time."""
    median_hourly_cents: int | None
    """Over those workers, bonuses included."""
    workers_under: int
    """Those of them who earned less than the floor."""
    timed_pages: int
    pages: int
    """Paid HITs; ``timed_pages`` of them measured active time."""
    median_page_s: float | None
    pages_under: int
    """Timed HITs whose reward alone paid less than the floor."""


@dataclass(frozen=True, slots=True)
class PastWork:
    """Work of earlier projects that was read from files into one batch."""

    batch: str
    files: tuple[tuple[str, int], ...]
    """Kind and rows of each."""
    submissions: int
    workers: int
    """As far as the files tell workers apart."""


@dataclass(frozen=True, slots=True)
class ExclusionList:
    """Entries of one source and kind."""

    source: str
    kind: ExclusionKind
    entries: int


@dataclass(frozen=True, slots=True)
class Origins:
    """All of it; what is empty or None there was not."""

    machines: tuple[Machine, ...] = ()
    runs: tuple[ProposalRun, ...] = ()
    controls: Controls | None = None
    crowd: Crowd | None = None
    batches: tuple[BatchPay, ...] = ()
    """Those that were posted, in order."""
    pay: Pay | None = None
    past_work: tuple[PastWork, ...] = ()
    exclusions: tuple[ExclusionList, ...] = ()

    @property
    def nameless(self) -> bool:
        """Whether answers were read from a file that names no workers, so that two equal ones may count as one."""
        return any(kind == "mturk_parsed" for work in self.past_work for kind, _ in work.files)

    def busiest_share(self, shown: float | None) -> float | None:
        """Share of the answers that one worker gave; None where nobody knows who gave which.

        Args:
            shown: that of all answers, by the workers' names.
        """
        if self.crowd is not None:
            return self.crowd.busiest_share
        return None if self.nameless else shown

    @property
    def kinds(self) -> Mapping[str, AnnotatorKind]:
        """Of each machine annotator."""
        return {machine.name: machine.kind for machine in self.machines}
