"""How the sources of positives are merged."""

from __future__ import annotations

from dataclasses import dataclass

from mitl.errors import ReleaseError
from mitl.judgements.aggregators import Aggregator
from mitl.records import Label

CXC_POSITIVE = 3.0
"""From this mean SITS rating on, CxC calls an image and a caption a match (CxC, section 3)."""


@dataclass(frozen=True, slots=True)
class MergeRules:
    """How the sources are merged; the defaults are the paper's recipe, verified plus CxC."""

    cxc_threshold: float = CXC_POSITIVE
    with_originals: bool = False
    """Add an original pair where neither people nor CxC contradict it."""
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
        if self.official and self.aggregator is not Aggregator.MAJORITY:
            raise ReleaseError(
                "the official filters have a rule of their own for several answers; "
                "leave out either --official-filters or --aggregate"
            )
        if self.official and self.with_originals:
            raise ReleaseError(
                "the official filters add no original pairs; "
                "leave out either --official-filters or --with-originals"
            )

    def accepts(self, label: Label) -> bool:
        """Whether this answer of people makes a positive."""
        return label is Label.YES if self.strict else label.is_positive
