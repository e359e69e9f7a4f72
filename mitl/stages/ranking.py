"""Rankings of the project's annotators, computed once and kept as files."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from annotators import registry
from annotators.base import Annotator, Encoded, Ranking, RankingSource
from mitl.errors import AnnotatorError, RetrievalError
from mitl.progress import Progress
from mitl.proposals.candidates import NamedRanking
from mitl.records import CaptionItem, Direction, IdKind, ImageItem
from mitl.retrieval.rankings import read_ranking, read_ranking_info, write_ranking
from mitl.retrieval.topk import top_k
from mitl.settings import Settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Items:
    """Both sides of the data set, in tie order."""

    id_kind: IdKind
    images: Sequence[ImageItem]
    captions: Sequence[CaptionItem]

    def side(self, direction: Direction, *, gallery: bool) -> Sequence[ImageItem] | Sequence[CaptionItem]:
        """The queries' side of a direction, or its gallery's."""
        return self.images if (direction is Direction.I2T) != gallery else self.captions


@dataclass(slots=True)
class Ranker:
    """One annotator with its encodings, made when first needed."""

    annotator: Annotator | RankingSource
    items: Items
    progress: Progress
    _encoded: dict[str, Encoded] = field(default_factory=dict)

    def ranking(self, direction: Direction, query_ids: Sequence[int], depth: int) -> Ranking:
        """Each query's ``depth`` nearest items."""
        if isinstance(self.annotator, RankingSource):
            return self.annotator.ranking(direction, self.items.images, self.items.captions, query_ids, depth)
        sides = (self._images(), self._captions())
        queries, gallery = sides if direction is Direction.I2T else sides[::-1]
        wanted = np.asarray(query_ids, dtype=np.int64)
        places = np.searchsorted(queries.ids, wanted)
        return top_k(self.annotator, queries.rows(places), gallery, depth, progress=self.progress)

    def _images(self) -> Encoded:
        if "image" not in self._encoded:
            assert not isinstance(self.annotator, RankingSource)
            self._encoded["image"] = self.annotator.encode_images(self.items.images)
        return self._encoded["image"]

    def _captions(self) -> Encoded:
        if "caption" not in self._encoded:
            assert not isinstance(self.annotator, RankingSource)
            self._encoded["caption"] = self.annotator.encode_captions(self.items.captions)
        return self._encoded["caption"]


def build_annotators(settings: Settings, names: Sequence[str]) -> list[Annotator | RankingSource]:
    """The annotators of these names with their settings from ``mitl.toml``.

    Raises:
        AnnotatorError: no name is given, a name is given twice or is unknown, or what it needs is missing.
    """
    if not names:
        raise AnnotatorError(
            "no annotator is named; give --annotator NAME or set annotators in [propose] of mitl.toml; "
            f"known: {', '.join(registry.names())}"
        )
    repeated = [name for place, name in enumerate(names) if name in names[:place]]
    if repeated:
        raise AnnotatorError(f"annotator {repeated[0]!r} is named twice; name each once")
    return [
        registry.build(name, dict(settings.annotator_config.get(name, {})), folder=settings.project)
        for name in names
    ]


def ranking_path(folder: Path, annotator: str, direction: Direction) -> Path:
    """Where one ranking of a run lies."""
    return folder / f"{annotator}.{direction}.parquet"


def rank_all(
    folder: Path,
    annotators: Sequence[Annotator | RankingSource],
    items: Items,
    queries: Mapping[Direction, Sequence[int]],
    depth: Mapping[Direction, int],
    progress: Progress,
) -> tuple[list[NamedRanking], int]:
    """The ranking of every annotator and direction, and how many of them had to be computed.

    A ranking whose file is in ``folder`` and fits is read; each other one is computed and written at once, so
    that an interrupted run goes on where it was.
    """
    found: list[NamedRanking] = []
    computed = 0
    for annotator in annotators:
        ranker = Ranker(annotator, items, progress)
        for direction in Direction:
            if not queries[direction]:
                continue
            path = ranking_path(folder, annotator.name, direction)
            named = _read(path, annotator, direction, depth[direction], items, queries[direction])
            if named is None:
                ranking = ranker.ranking(direction, queries[direction], depth[direction])
                named = NamedRanking(annotator.name, direction, ranking)
                _write(path, named, annotator.fingerprint, items)
                computed += 1
            found.append(named)
    return found, computed


def _surrogates(side: Sequence[ImageItem] | Sequence[CaptionItem]) -> dict[str, int]:
    return {item.external_id: item.id for item in side}


def _externals(side: Sequence[ImageItem] | Sequence[CaptionItem]) -> dict[int, str]:
    return {item.id: item.external_id for item in side}


def _read(
    path: Path,
    annotator: Annotator | RankingSource,
    direction: Direction,
    depth: int,
    items: Items,
    queries: Sequence[int],
) -> NamedRanking | None:
    """The stored ranking; None where there is none, or where it is damaged or of other queries or weights."""
    if not path.exists():
        return None
    try:
        info = read_ranking_info(path)
        if (info.annotator, info.direction, info.fingerprint) != (
            annotator.name,
            direction,
            annotator.fingerprint,
        ) or info.depth < depth:
            return None
        ranking = read_ranking(
            path,
            _surrogates(items.side(direction, gallery=False)),
            _surrogates(items.side(direction, gallery=True)),
        )
    except RetrievalError as error:
        logger.warning("%s; it is computed again", error)
        return None
    if list(ranking.query_ids) != list(queries):
        return None
    return NamedRanking(annotator.name, direction, ranking)


def _write(path: Path, named: NamedRanking, fingerprint: str, items: Items) -> None:
    write_ranking(
        path,
        named.ranking,
        annotator=named.annotator,
        direction=named.direction,
        fingerprint=fingerprint,
        id_kind=items.id_kind,
        query_external_ids=_externals(items.side(named.direction, gallery=False)),
        item_external_ids=_externals(items.side(named.direction, gallery=True)),
    )
