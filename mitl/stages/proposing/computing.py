"""How and where rankings are computed, and where what they need is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from annotators import registry
from annotators.base import Annotator, RankingSource
from mitl.core.whole_files import folder_bytes
from mitl.records import Direction
from mitl.retrieval.encodings import EncodingStore
from mitl.retrieval.engines import Engine, LocalEngine, Recipe
from mitl.retrieval.products import Backend
from mitl.retrieval.shortlisted import Recall
from mitl.settings import Settings
from mitl.stages.proposing.scopes import Scope, split_scope


@dataclass(frozen=True, slots=True)
class Computing:
    """How the command line wants rankings computed; none of it changes a ranking."""

    engine: str = "local"
    """``local`` or ``ray``."""
    ray_address: str | None = None
    """Of an existing cluster; None starts one of this machine's cores."""
    backend: str = "auto"

    @classmethod
    def of(cls, settings: Settings) -> Computing:
        """As ``mitl.toml`` says."""
        return cls(settings.engine, settings.ray_address, settings.backend)


@dataclass(slots=True)
class Means:
    """Who computes, where encodings and scores of pairs are kept, and what it came to."""

    engine: Engine
    encodings: EncodingStore
    scores: Path
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of each annotator."""
    project: Path = field(default_factory=Path)
    scored: Counter[str] = field(default_factory=Counter)
    """Pairs that had to be scored, by annotator."""
    recalls: dict[tuple[str, Direction], Recall] = field(default_factory=dict)
    """Of the shortlists of annotators of pairs, by annotator and direction."""
    own_recalls: dict[tuple[str, Direction], Any] = field(default_factory=dict)
    """What annotators that shortlist for themselves measured: ``count``, ``recall``, ``k``, ``queries``."""

    @classmethod
    def of(cls, settings: Settings, engine: Engine | None = None) -> Means:
        """A project's folders, and this process unless another engine is given."""
        return cls(
            engine or LocalEngine(cast(Backend, settings.backend)),
            EncodingStore(settings.runs / "encodings"),
            settings.runs / "scores",
            settings.annotator_config,
            settings.project,
        )

    @classmethod
    def beside(cls, folder: Path) -> Means:
        """This process, with all that is kept in the folder of the rankings."""
        return cls(LocalEngine(), EncodingStore(folder / "encodings"), folder / "scores")

    def scope(self, name: str) -> Scope:
        """Which pairs an annotator of pairs scores; all where nothing is set."""
        return split_scope(name, self.settings.get(name, {}))[1] or Scope()

    def build(self, name: str) -> Annotator | RankingSource:
        """An annotator with its settings."""
        return registry.build(name, split_scope(name, self.settings.get(name, {}))[0], folder=self.project)

    @property
    def shortlists(self) -> dict[str, dict[str, object]]:
        """How much of the true top k each shortlist holds, by annotator and direction."""
        found: dict[str, dict[str, object]] = {
            f"{name} {direction}": {**asdict(recall), "candidates": round(recall.candidates, 1)}
            for (name, direction), recall in self.recalls.items()
        }
        for (name, direction), own in self.own_recalls.items():
            found[f"{name} {direction}"] = {
                "k": own.k,
                "depth": own.count,
                "share": own.recall,
                "queries": own.queries,
            }
        return found

    @property
    def shortlist_lines(self) -> tuple[str, ...]:
        """The same for people."""
        said = {**{key: recall.line for key, recall in self.recalls.items()}, **self.own_recalls}
        return tuple(f"{name} {direction}: {line}" for (name, direction), line in said.items())

    @property
    def kept_bytes(self) -> int:
        """What encodings and scores take on disk."""
        return self.encodings.size_bytes + folder_bytes(self.scores)

    @property
    def paths(self) -> dict[str, str]:
        """Where they lie; both folders can be deleted at any time, and are made again."""
        return {"encodings": str(self.encodings.folder), "scores": str(self.scores)}


def open_engine(settings: Settings, computing: Computing, names: Sequence[str]) -> Engine:
    """The engine that was asked for, to be entered; what it needs is imported only here."""
    backend = cast(Backend, computing.backend)
    if computing.engine == "local":
        return LocalEngine(backend)
    from mitl.retrieval.ray_engine import RayEngine

    recipes = {}
    for name in names:
        for one in (name, *Means.of(settings).scope(name).sources):
            config, _ = split_scope(one, settings.annotator_config.get(one, {}))
            recipes[one] = Recipe(one, config, settings.project)
    return RayEngine(recipes, address=computing.ray_address, backend=backend)
