"""Where an annotator's work is done: on this machine, or by an engine that hands it to others.

Work comes in units that know nothing of each other (a chunk of items to encode, pairs to score, a tile of queries x
gallery to search), so that an engine may do them anywhere, in any order and, after a loss, twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from annotators import registry
from annotators.base import Annotator, Encoded, Modality, Ranking, RankingSource, ScoresPairs
from mitl.errors import AnnotatorError
from mitl.progress import Progress, no_progress
from mitl.retrieval.encodings import Chunk, encode_items
from mitl.retrieval.known_scores import Floats, Places
from mitl.retrieval.pair_scores import Scored, Unit
from mitl.retrieval.products import Backend
from mitl.retrieval.topk import top_k, top_k_both


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to build an annotator anywhere: its name and settings; ``folder`` is where relative paths start."""

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    folder: Path = field(default_factory=Path)

    def build(self) -> Annotator:
        """The annotator of the registry."""
        built = registry.build(self.name, self.config, folder=self.folder)
        if isinstance(built, RankingSource):
            raise AnnotatorError(f"annotator {self.name!r} brings rankings; there is nothing to compute")
        return built


def timed_scores(
    annotator: ScoresPairs,
    images: Encoded,
    captions: Encoded,
    image_rows: Places,
    caption_rows: Places,
    *,
    exact: bool,
) -> tuple[Floats, float]:
    """The pairs' scores and the seconds they took."""
    start = time.perf_counter()
    asked: dict[str, Any] = {"exact": True} if exact else {}
    found = annotator.scores(images, captions, image_rows, caption_rows, **asked)
    return np.asarray(found, np.float32), time.perf_counter() - start


class Engine(Protocol):
    """Does units of work; what comes back does not depend on which engine it was."""

    name: str
    used: set[str]
    """What multiplied vectors so far: names of ``mitl.retrieval.products``."""

    def encode(
        self, annotator: Annotator, modality: Modality, chunks: Iterable[Chunk]
    ) -> Iterator[tuple[int, Encoded]]:
        """Encode chunks, taken from ``chunks`` when their turn comes; in any order of completion."""
        ...

    def score(
        self,
        annotator: ScoresPairs,
        images: Encoded,
        captions: Encoded,
        units: Iterable[Unit],
        *,
        exact: bool = False,
    ) -> Iterator[Scored]:
        """Score units of pairs, taken when their turn comes; in any order of completion."""
        ...

    def top_k(
        self, annotator: Annotator, queries: Encoded, gallery: Encoded, k: int, *, progress: Progress
    ) -> Ranking:
        """As ``mitl.retrieval.topk.top_k``, the same bytes."""
        ...

    def top_k_both(
        self,
        annotator: Annotator,
        images: Encoded,
        captions: Encoded,
        k_i2t: int,
        k_t2i: int,
        *,
        progress: Progress,
    ) -> tuple[Ranking, Ranking]:
        """As ``mitl.retrieval.topk.top_k_both``, the same bytes."""
        ...

    def __enter__(self) -> Engine: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of what the engine holds."""
        ...


class LocalEngine:
    """This process."""

    name = "local"

    def __init__(self, backend: Backend = "auto") -> None:
        self._backend: Backend = backend
        self.used: set[str] = set()

    def encode(
        self, annotator: Annotator, modality: Modality, chunks: Iterable[Chunk]
    ) -> Iterator[tuple[int, Encoded]]:
        """One chunk after the other."""
        for number, items in chunks:
            yield number, encode_items(annotator, modality, items)

    def score(
        self,
        annotator: ScoresPairs,
        images: Encoded,
        captions: Encoded,
        units: Iterable[Unit],
        *,
        exact: bool = False,
    ) -> Iterator[Scored]:
        """One unit after the other."""
        for unit in units:
            found, seconds = timed_scores(
                annotator, images, captions, unit.images, unit.captions, exact=exact
            )
            yield Scored(unit.number, found, seconds)

    def top_k(
        self,
        annotator: Annotator,
        queries: Encoded,
        gallery: Encoded,
        k: int,
        *,
        progress: Progress = no_progress,
    ) -> Ranking:
        """The search itself."""
        options: Any = {"backend": self._backend, "progress": progress, "used": self.used}
        return top_k(annotator, queries, gallery, k, **options)

    def top_k_both(
        self,
        annotator: Annotator,
        images: Encoded,
        captions: Encoded,
        k_i2t: int,
        k_t2i: int,
        *,
        progress: Progress = no_progress,
    ) -> tuple[Ranking, Ranking]:
        """Both searches at once."""
        options: Any = {"backend": self._backend, "progress": progress, "used": self.used}
        return top_k_both(annotator, images, captions, k_i2t, k_t2i, **options)

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held."""
