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
    """How many pairs are left after each step, each a part of the one before; None for a step not reached."""

    possible: int | None = None
    """Query x gallery pairs, both directions, and the candidates beyond them that past work brought."""
    distinct: int | None = None
    """Candidate pairs: proposed by a machine annotator, or asked in past work."""
    asked: int | None = None
    """Candidate pairs on a posted HIT or in past work."""
    judged: int | None = None
    """Those with at least one judgement."""
    usable: int | None = None
    """Those with at least one usable judgement."""
    positive: int | None = None
    """Those judged yes or weak_yes."""
    beyond_originals: int | None = None
    """Those that the original annotation does not hold."""


@dataclass(frozen=True, slots=True)
class ProposalPlaces:
    """Places in lists, before a pair that stands in several of them counts once."""

    ranked: int
    """In the kept rankings (top 25), all annotators and directions."""
    proposed: int
    """In the top k (top 5)."""


@dataclass(frozen=True, slots=True)
class Multiplicity:
    """Positives per query of one direction, one number a query, before and after.

    Where people were asked about some queries' candidates only, the other queries are left out: nobody looked for
    their positives.
    """

    direction: Direction
    before: tuple[int, ...]
    after: tuple[int, ...]
    queries: int
    """All queries of the direction."""
    candidates: int
    """Candidate pairs that were proposed for them."""
    answered: int
    """Those with a usable answer."""

    @property
    def complete(self) -> bool:
        """Whether every candidate of every query is answered."""
        return self.answered == self.candidates and len(self.after) == self.queries
