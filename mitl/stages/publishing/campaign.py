"""What `mitl publish` was asked for."""

from __future__ import annotations

from dataclasses import dataclass

from mitl.errors import UsageError
from mitl.records import Direction, Environment

PROBES = 5
"""Pictures that are fetched as a worker's browser would, before anything is posted."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """Which pairs to ask, in which words, of how many workers, for how much."""

    environment: Environment
    direction: str = "both"
    """``i2t``, ``t2i`` or ``both``: whose proposals are asked."""
    template: str = "pairs-plain"
    reward_cents: int | None = None
    """Per HIT; None computes it from the hourly floor and the expected working time."""
    assignments: int = 1
    limit: int | None = None
    """Pairs that runs of the same words may have out at once."""
    overlap: float = 0.0
    """Share of the new candidates that is asked of a second worker as well, 0 to 1."""
    max_cost_cents: int | None = None
    """Of the whole bill of a plan, what an interrupted run of it has posted included."""
    pilot: int | None = None
    """Post so many HITs of random open pairs and no more, to find out how long the work takes; they count as out
    until they are done, as pairs under a limit do."""
    wait_for_pilot: bool = True
    """Whether nothing new is posted in this wording while a pilot of it is out."""
    probes: int = PROBES
    """Pictures to fetch before posting; 0 fetches none."""

    def __post_init__(self) -> None:
        if self.pilot is not None and self.overlap:
            raise UsageError(
                "--overlap does not go with --pilot; a pilot is as many HITs as it says, so give --overlap with the "
                "rest of the campaign"
            )

    @property
    def words(self) -> dict[str, object]:
        """By what a repetition of this command is known, whatever it may cost."""
        return {
            "kind": "pairs",
            "direction": self.direction,
            "template": self.template,
            "pilot": self.pilot is not None,
        }

    @property
    def limited(self) -> bool:
        """Whether it says how much may be out."""
        return self.limit is not None or self.pilot is not None

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions whose proposals are asked."""
        return tuple(Direction) if self.direction == "both" else (Direction(self.direction),)
