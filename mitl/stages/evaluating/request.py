"""What ``mitl evaluate`` was asked: which models, against what, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mitl.errors import UsageError
from mitl.records import Direction
from mitl.stages.evaluating.choices import Wanted
from mitl.stages.evaluating.figures import Sampling
from mitl.stages.evaluating.models.files import Similarity
from mitl.stages.evaluating.models.options import ModelFiles


@dataclass(frozen=True, slots=True)
class Against:
    """The sets that models are held against, besides the originals of a project."""

    release: Path | None = None
    official: Sequence[str] = ()
    cxc: Path | None = None
    """Folder of CxC's three CSVs."""
    objects: Sequence[Path] = ()
    """Files that say which objects an image shows."""
    graded: bool = False
    """Whether graded labels of the release and of CxC are scored too."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call."""

    against: Against = field(default_factory=Against)
    models: Sequence[ModelFiles] = ()
    annotators: Sequence[str] = ()
    similarity: Similarity = "dot"
    directions: Sequence[Direction] = tuple(Direction)
    wanted: Wanted = field(default_factory=Wanted)
    sampling: Sampling = field(default_factory=Sampling)
    paired_with: str | None = None
    """The model that the others are tested against."""
    csv: Path | None = None
    latex: Path | None = None

    def __post_init__(self) -> None:
        names = [*(model.name for model in self.models), *self.annotators]
        twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
        if twice is not None:
            raise UsageError(f"two models are called {twice!r}; give each a name of its own")
