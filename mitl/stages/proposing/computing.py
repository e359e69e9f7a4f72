"""How and where rankings are computed, where what they need is kept, and which pairs are scored.

An annotator that needs a forward pass for each pair scores all of them, or a shortlist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from annotators import registry
from annotators.base import Annotator, Encoded, Modality, RankingSource, is_reusable
from mitl.errors import AnnotatorError
from mitl.progress import Progress, no_progress
from mitl.records import Direction
from mitl.retrieval.encodings import EncodingStore, Items, check_encoded, encode_items
from mitl.retrieval.engines import AnnotatorRecipe, LocalEngine
from mitl.retrieval.products import Backend
from mitl.retrieval.shortlisted import ShortlistRecall
from mitl.settings import Settings

KEYS = ("scope", "shortlist", "shortlist_from", "shortlist_recall", "audit_queries", "audit_items")
"""Settings of an annotator's table that are for whoever ranks, not for its network."""
SHORTLIST = 256
"""Candidates of a query and source where no number is given: as many as ALBEF and BLIP rerank on COCO."""
SHORTLIST_OF_CALLS = 30
"""The same where each pair costs two calls of a server, and the random items of an audit: all are never asked for
unless somebody says so."""
AUDIT_QUERIES = 20


@dataclass(frozen=True, slots=True)
class PairScope:
    """The best ``shortlist`` candidates of each query by each of ``sources``; every pair where it is None."""

    shortlist: int | None = None
    sources: tuple[str, ...] = ()
    """Annotators whose rankings give candidates; all others of the same run by default."""
    recall: float | None = None
    """That a shortlist must reach, measured; it grows until it does."""
    audit_queries: int = AUDIT_QUERIES
    """Random queries on which the recall is measured."""
    audit_items: int | None = None
    """Random items beside its shortlist that such a query is compared with; all by default."""

    def candidates(self, annotators: int) -> int | None:
        """How many a query has at most, in a run of so many annotators; None where all items are."""
        return self.shortlist and self.shortlist * max(1, len(self.sources) or annotators - 1)


def split_scope(name: str, config: Mapping[str, Any]) -> tuple[dict[str, Any], PairScope | None]:
    """An annotator's settings without those of its scope, and the scope; None where it is not an annotator of pairs.

    Raises:
        AnnotatorError: a scope that is not known, a number that is none or out of range.
    """
    if not _scores_pairs(name, config):
        return dict(config), None
    rest = {key: value for key, value in config.items() if key not in KEYS}
    scope, listed = config.get("scope"), [key for key in KEYS[1:] if key in config]
    if scope not in (None, "exhaustive", "shortlist"):
        raise _wrong(name, "scope", scope, "exhaustive or shortlist")
    if scope == "exhaustive" and listed:
        raise AnnotatorError(
            f"annotator {name!r} sets {listed[0]!r} although its 'scope' is 'exhaustive'; leave one of them out"
        )
    called = "chat" in config
    if scope != "shortlist" and not listed and not (called and scope is None):
        return rest, PairScope()
    sources, recall = config.get("shortlist_from", []), config.get("shortlist_recall")
    if not isinstance(sources, list) or not all(isinstance(source, str) for source in sources):
        raise _wrong(name, "shortlist_from", sources, 'a list of annotators, as ["clip", "pvse"]')
    if recall is not None and (not isinstance(recall, float) or not 0 < recall < 1):
        raise _wrong(name, "shortlist_recall", recall, "a number between 0 and 1")
    count = _whole(name, config, "shortlist", SHORTLIST_OF_CALLS if called else SHORTLIST)
    queries = _whole(name, config, "audit_queries", AUDIT_QUERIES)
    items = SHORTLIST_OF_CALLS if called else None
    if "audit_items" in config:
        items = _whole(name, config, "audit_items", 1)
    return rest, PairScope(count, tuple(sources), recall, queries, items)


def _scores_pairs(name: str, config: Mapping[str, Any]) -> bool:
    return (
        "scope" in config
        or "chat" in config
        or name == "vilt-mini"
        or registry.network_of(name, config) == "vilt"
    )


def _whole(name: str, config: Mapping[str, Any], key: str, default: int) -> int:
    value = config.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _wrong(name, key, value, "a whole number from 1")
    return value


def _wrong(name: str, key: str, value: object, right: str) -> AnnotatorError:
    return AnnotatorError(f"{key!r} of annotator {name!r} is {value!r}; it should be {right}")


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
class ComputeContext:
    """Who computes, who is told how far it is, where encodings and scores of pairs are kept, and what it came to."""

    engine: LocalEngine
    encodings: EncodingStore
    scores: Path
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of each annotator."""
    project: Path = field(default_factory=Path)
    progress: Progress = no_progress
    scored: Counter[str] = field(default_factory=Counter)
    """Pairs that had to be scored, by annotator."""
    recalls: dict[tuple[str, Direction], ShortlistRecall] = field(default_factory=dict)
    """Of the shortlists of annotators of pairs, by annotator and direction."""
    own_recalls: dict[tuple[str, Direction], Any] = field(default_factory=dict)
    """What annotators that shortlist for themselves measured: ``count``, ``recall``, ``k``, ``queries``."""

    @classmethod
    def of(
        cls, settings: Settings, engine: LocalEngine | None = None, progress: Progress = no_progress
    ) -> ComputeContext:
        """A project's folders, and this process unless another engine is given."""
        return cls(
            engine or LocalEngine(cast(Backend, settings.backend)),
            EncodingStore(settings.runs / "encodings"),
            settings.runs / "scores",
            settings.annotator_config,
            settings.project,
            progress,
        )

    def scope(self, name: str) -> PairScope:
        """Which pairs an annotator of pairs scores; all where nothing is set."""
        return split_scope(name, self.settings.get(name, {}))[1] or PairScope()

    def build(self, name: str) -> Annotator | RankingSource:
        """An annotator with its settings."""
        return registry.build(name, split_scope(name, self.settings.get(name, {}))[0], folder=self.project)

    def encoded(self, annotator: Annotator, modality: Modality, items: Items) -> Encoded:
        """All items encoded; what is kept is taken, and kept where the annotator's encodings may be used again."""
        if is_reusable(annotator):
            encode = partial(self.engine.encode, annotator, modality)
            return self.encodings.encoded(annotator, modality, items, encode, progress=self.progress)
        encoded = encode_items(annotator, modality, items)
        check_encoded(annotator, encoded, items)
        return encoded

    @property
    def shortlists(self) -> dict[str, dict[str, object]]:
        """How much of the true top k each shortlist holds, by annotator and direction."""
        of_scores = {
            key: {"k": it.k, "depth": it.count, "share": it.recall, "queries": it.queries}
            for key, it in self.own_recalls.items()
        }
        measured = {
            key: {**asdict(recall), "candidates": round(recall.candidates, 1)}
            for key, recall in self.recalls.items()
        }
        return {f"{name} {direction}": of for (name, direction), of in {**measured, **of_scores}.items()}

    @property
    def shortlist_lines(self) -> tuple[str, ...]:
        """The same for people."""
        said = {**{key: recall.line for key, recall in self.recalls.items()}, **self.own_recalls}
        return tuple(f"{name} {direction}: {line}" for (name, direction), line in said.items())


def open_engine(settings: Settings, computing: Computing, names: Sequence[str]) -> LocalEngine:
    """The engine that was asked for, to be entered; what it needs is imported only here."""
    backend = cast(Backend, computing.backend)
    if computing.engine == "local":
        return LocalEngine(backend)
    from mitl.retrieval.ray_engine import RayEngine

    recipes = {}
    for name in names:
        for annotator in (name, *ComputeContext.of(settings).scope(name).sources):
            config, _ = split_scope(annotator, settings.annotator_config.get(annotator, {}))
            recipes[annotator] = AnnotatorRecipe(annotator, config, settings.project)
    return RayEngine(recipes, address=computing.ray_address, backend=backend)
