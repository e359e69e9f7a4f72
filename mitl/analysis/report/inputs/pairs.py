"""What became of the pairs: proposed, asked, answered, and how many positives a query has."""

from __future__ import annotations

from dataclasses import dataclass

from mitl.records import Direction


@dataclass(frozen=True, slots=True)
class AnnotatorProposals:
    """What one machine annotator brought, both directions together; in the order of the run."""

    name: str
    kind: str
    proposed: int
    """Places in its top k, a pair found from both directions counted twice."""
    distinct: int
    """Different pairs among them."""
    new: int
    """Those that no annotator earlier in the order had proposed."""
    overlap: int
    """Those that at least one other annotator proposed too."""
    usable: int | None = None
    """Its distinct pairs with a usable judgement."""
    positive: int | None = None
    """Those judged positive."""


@dataclass(frozen=True, slots=True)
class FunnelCounts:
    """How many pairs are left after each step; None for a step not reached."""

    possible: int | None = None
    """Query x gallery pairs, both directions."""
    ranked: int | None = None
    """Places in the kept rankings (top 25), all annotators and directions."""
    proposed: int | None = None
    """Places in the top k (top 5)."""
    distinct: int | None = None
    """Different candidate pairs among these."""
    asked: int | None = None
    """Candidate pairs on a posted HIT."""
    judged: int | None = None
    """Candidate pairs with at least one judgement."""
    usable: int | None = None
    """Candidate pairs with at least one usable judgement."""
    positive: int | None = None
    """Candidate pairs judged yes or weak_yes."""
    beyond_originals: int | None = None
    """Those that the original annotation does not hold."""


@dataclass(frozen=True, slots=True)
class Multiplicity:
    """Positives per query of one direction, one number a query, before and after."""

    direction: Direction
    before: tuple[int, ...]
    after: tuple[int, ...]
