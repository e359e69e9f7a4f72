"""Pairs to look at: example queries, and pairs on which the sources disagree."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from mitl.records import Concept, Direction, Label, Shortcoming


class Frame(StrEnum):
    """By what an item stands among a query's items."""

    ORIGINAL = "original"
    YES = "yes"
    WEAK_YES = "weak_yes"
    CXC = "cxc"
    """CxC's rating alone speaks for it, or another source without an answer."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class ExampleItem:
    """One gallery item of an example query: a caption (``text``) or an image (``image``)."""

    external_id: str
    text: str | None = None
    image: Path | None = None
    original: bool = False
    label: Label | None = None
    """The aggregated answer; None where nobody was asked."""
    cxc_score: float | None = None
    found_by: tuple[tuple[str, int], ...] = ()
    """(annotator, rank) of each proposal."""
    shortcomings: tuple[Shortcoming, ...] = ()
    concepts: tuple[Concept, ...] = ()
    note: str = ""
    """The worker's own words."""
    truth: Label | None = None
    released: bool = True
    """Whether a release holds it; an original that nobody judged need not be in one."""

    @property
    def frame(self) -> Frame:
        """A refusal decides first, then the original annotation, then the answer, then CxC."""
        if self.label is not None and not self.label.is_positive:
            return Frame.REFUSED
        if self.original:
            return Frame.ORIGINAL
        if self.label is None:
            return Frame.CXC
        return Frame.YES if self.label is Label.YES else Frame.WEAK_YES


@dataclass(frozen=True, slots=True)
class ExampleQuery:
    """A query with positives and refused near misses, in the order in which they are to be shown."""

    direction: Direction
    external_id: str
    items: tuple[ExampleItem, ...]
    text: str | None = None
    image: Path | None = None
    totals: tuple[tuple[Frame, int], ...] = ()
    """How many items of each frame the query has; those shown may be fewer."""
    gained: int | None = None
    """Positives beyond the original annotation."""


class DisputeKind(StrEnum):
    """Why a pair is worth a look."""

    WORKERS = "workers"
    """Its workers do not agree whether it is a match."""
    ORIGINAL = "original"
    """People refuse it, and the original annotation holds it."""
    CXC = "cxc"
    """People and CxC's rating say the opposite."""
    MACHINES = "machines"
    """Every machine annotator proposed it, and people refuse it."""
    WRONG = "wrong"
    """People call it a match, and name a part that is wrong."""
    TRUTH = "truth"
    """The known truth says the opposite of people."""


@dataclass(frozen=True, slots=True)
class DisputedPair:
    """One pair with all that is said of it."""

    image_id: str
    """External, as the caption's."""
    caption_id: str
    text: str
    image: Path | None
    answers: tuple[Label, ...]
    """Of each worker, best first."""
    label: Label
    """The aggregated answer."""
    original: bool = False
    cxc_score: float | None = None
    found_by: tuple[tuple[str, int], ...] = ()
    """(annotator, rank) of each proposal."""
    shortcomings: tuple[Shortcoming, ...] = ()
    concepts: tuple[Concept, ...] = ()
    truth: Label | None = None


@dataclass(frozen=True, slots=True)
class Dispute:
    """The pairs of one kind of disagreement, those most worth a look first."""

    kind: DisputeKind
    total: int
    of: int
    """Pairs on which there could have been one."""
    shown: tuple[DisputedPair, ...]
