"""What `mitl prefer publish` was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mitl.errors import UsageError
from mitl.hits.comparisons import MAX_PER_HIT
from mitl.records import Direction, Environment
from mitl.stages.publishing.campaign import PROBES, Campaign


@dataclass(frozen=True, slots=True)
class Study:
    """Which rankings to compare on how many queries, in which words, by how many workers, for how much."""

    environment: Environment
    direction: Direction = Direction.T2I
    systems: tuple[str, ...] = ()
    """Annotators of the latest run; none and no files takes all that ranked in the direction."""
    files: tuple[tuple[str, Path], ...] = ()
    """Further systems: name and Parquet file of rankings."""
    designed: str | None = None
    """Source of positives for the paper's five made rankings, which then are the systems."""
    queries: int = 40
    """The paper's number (D.1)."""
    top_k: int = 5
    per_hit: int = 10
    """Comparisons of a HIT, controls included."""
    controls: int = 2
    """Of them."""
    assignments: int = 3
    limit: int | None = None
    """Comparisons that runs of the same words may have out at once."""
    template: str = "rankings-plain"
    reward_cents: int | None = None
    max_cost_cents: int | None = None
    probes: int = PROBES

    def __post_init__(self) -> None:
        if not 0 <= self.controls < self.per_hit <= MAX_PER_HIT:
            raise UsageError(
                f"--per-hit {self.per_hit} with --controls {self.controls} leaves no comparison to ask; a HIT has up "
                f"to {MAX_PER_HIT}, of which at least one is no control"
            )
        if self.designed is not None and (self.systems or self.files):
            raise UsageError(
                "--designed makes its own five rankings; leave --system and --rankings out, or leave it out"
            )
        names = [*self.systems, *(name for name, _ in self.files)]
        twice = [name for place, name in enumerate(names) if name in names[:place]]
        if twice:
            raise UsageError(f"the system {twice[0]!r} is named twice; name each once")

    @property
    def words(self) -> dict[str, object]:
        """By what a repetition of this command is known, as ``Campaign.words``."""
        return {
            "kind": "rankings",
            "direction": self.direction.value,
            "template": self.template,
            "systems": sorted([*self.systems, *(name for name, _ in self.files)]),
            "designed": self.designed,
        }

    @property
    def limited(self) -> bool:
        """Whether it says how much may be out."""
        return self.limit is not None

    @property
    def campaign(self) -> Campaign:
        """The same terms as those of a campaign of pairs, for what bills both alike."""
        return Campaign(
            environment=self.environment,
            direction=self.direction.value,
            template=self.template,
            reward_cents=self.reward_cents,
            assignments=self.assignments,
            limit=self.limit,
            max_cost_cents=self.max_cost_cents,
            probes=self.probes,
        )
