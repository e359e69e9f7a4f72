"""Where an annotator's work is done: on this machine, or by an engine that hands it to others.

Work comes in units that know nothing of each other (a chunk of items to encode, pairs to score, a tile of queries x
gallery to search), so that an engine may do them anywhere, in any order and, after a loss, twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from annotators import registry
from annotators.base import Annotator, Encoded, Modality, Ranking, RankingSource, ScoresPairs
from mitl.errors import AnnotatorError
from mitl.progress import Progress, no_progress
from mitl.retrieval.encodings import Chunk, encode_chunks
from mitl.retrieval.pair_scores import Floats, Places, ScoredUnit, Unit
from mitl.retrieval.products import Backend
from mitl.retrieval.topk import SearchOptions, rank


@dataclass(frozen=True, slots=True)
class AnnotatorRecipe:
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
    annotator: ScoresPairs, sides: tuple[Encoded, Encoded], rows: tuple[Places, Places], *, exact: bool
) -> tuple[Floats, float]:
    """The scores of pairs of an image's and a caption's row, and the seconds they took."""
    start = time.perf_counter()
    asked: dict[str, Any] = {"exact": True} if exact else {}
    scores = annotator.scores(*sides, *rows, **asked)
    return np.asarray(scores, np.float32), time.perf_counter() - start


class LocalEngine:
    """This process. What comes back does not depend on which engine it was."""

    name = "local"

    def __init__(self, backend: Backend = "auto") -> None:
        self._backend: Backend = backend
        self.used: set[str] = set()
        """What multiplied vectors so far: names of ``mitl.retrieval.products``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Let go of what the engine holds."""

    def encode(
        self, annotator: Annotator, modality: Modality, chunks: Iterable[Chunk]
    ) -> Iterator[tuple[int, Encoded]]:
        """Encode chunks, taken from ``chunks`` when their turn comes; in any order of completion."""
        return encode_chunks(annotator, modality, chunks)

    def score(
        self,
        annotator: ScoresPairs,
        images: Encoded,
        captions: Encoded,
        units: Iterable[Unit],
        *,
        exact: bool = False,
    ) -> Iterator[ScoredUnit]:
        """Score units of pairs, taken when their turn comes; in any order of completion."""
        for unit in units:
            rows = unit.images, unit.captions
            yield ScoredUnit(unit.number, *timed_scores(annotator, (images, captions), rows, exact=exact))

    def rank(
        self,
        annotator: Annotator,
        sides: tuple[Encoded, Encoded],
        ks: Sequence[int],
        *,
        progress: Progress = no_progress,
    ) -> list[Ranking]:
        """As ``mitl.retrieval.topk.rank``, the same bytes: one direction, or with two of ``ks`` both."""
        options = SearchOptions(backend=self._backend, progress=progress, used=self.used)
        return rank(annotator, sides, ks, options)
