"""How the sources of positives are merged."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mitl.errors import ReleaseError
from mitl.judgements.aggregators import Aggregator
from mitl.records import Label

CXC_POSITIVE = 3.0
"""From this mean SITS rating on, CxC calls an image and a caption a match (CxC, section 3)."""


class Recipe(StrEnum):
    """Which sources make a release."""

    REPAIR = "repair"
    """The original pairs that neither people nor CxC refuse, and what these two add."""
    PAPER = "paper"
    """What people verified and what CxC rates as a match; an original pair needs one of them (Chun et al., ECCV
    Caption, section 3.3)."""


@dataclass(frozen=True, slots=True)
class MergeRules:
    """How the sources are merged; the defaults repair a data set: its own pairs stay unless somebody refused them."""

    cxc_threshold: float = CXC_POSITIVE
    with_originals: bool | None = None
    """Keep an original pair where neither people nor CxC contradict it; None: unless ``official``."""
    strict: bool = False
    """People's ``weak_yes`` is not enough, and a CxC rating does not lift it."""
    official: bool = False
    """Reproduce the released positives of ECCV Caption, slips included: see :func:`mitl.positives.merging.merge`."""

    aggregator: Aggregator = Aggregator.MAJORITY
    """How several judgements of one pair become its answer."""

    def __post_init__(self) -> None:
        if not 0 <= self.cxc_threshold <= 5:
            raise ReleaseError(
                f"the CxC threshold is {self.cxc_threshold:g}, but ratings go from 0 to 5; give one of these"
            )
        object.__setattr__(self, "aggregator", Aggregator(self.aggregator))  # a stored rule names it
        if self.with_originals is None:
            object.__setattr__(self, "with_originals", not self.official)
        if self.official and self.aggregator is not Aggregator.MAJORITY:
            raise ReleaseError(
                "the official filters have a rule of their own for several answers; "
                "leave out either --official-filters or --aggregate"
            )
        if self.official and self.with_originals:
            raise ReleaseError(
                "the official filters follow the paper's recipe, which leaves originals out; "
                "leave out either --official-filters or what keeps originals (--recipe repair, --with-originals)"
            )

    @property
    def recipe(self) -> Recipe:
        """Which of the two recipes this is a variety of."""
        return Recipe.REPAIR if self.with_originals else Recipe.PAPER

    def accepts(self, label: Label) -> bool:
        """Whether this answer of people makes a positive."""
        return label is Label.YES if self.strict else label.is_positive
