"""Rankings of the project's annotators, computed once and kept as files."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from annotators import registry
from annotators.base import Annotator, Ranking, RankingSource
from mitl.core.whole_files import one_clear_line, whole_file
from mitl.errors import AnnotatorError, RetrievalError
from mitl.progress import Progress
from mitl.proposals.candidates import NamedRanking, ranking_path
from mitl.records import CaptionItem, Direction, ImageItem
from mitl.retrieval.rankings import read_ranking, read_ranking_info, write_ranking
from mitl.retrieval.shortlisted import Audit, Recall
from mitl.settings import Settings
from mitl.stages.proposing.computing import Computing, Means, open_engine
from mitl.stages.proposing.ranker import Items, Ranker, require_pictures
from mitl.stages.proposing.scopes import split_scope

__all__ = [
    "Computing",
    "Items",
    "Means",
    "build_annotators",
    "open_engine",
    "rank_all",
    "rank_with",
    "rankers",
    "ranking_path",
]

logger = logging.getLogger(__name__)

SOURCES = "shortlists"
"""Folder, within that of the rankings, of the deeper rankings that shortlists were made of, and of their recall."""


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
    configs = {name: split_scope(name, settings.annotator_config.get(name, {}))[0] for name in names}
    return [registry.build(name, config, folder=settings.project) for name, config in configs.items()]


def rankers(
    annotators: Sequence[Annotator | RankingSource], items: Items, progress: Progress, means: Means
) -> list[Ranker]:
    """One for each annotator; those that score a shortlist know whose rankings make it.

    Raises:
        AnnotatorError: there is no other annotator to make a shortlist, or it has a shortlist itself.
    """
    found = [Ranker(annotator, items, progress, means) for annotator in annotators]
    whole = {ranker.name: ranker for ranker in found if ranker.scope.shortlist is None}
    for ranker in found:
        if ranker.name in whole:
            continue
        names = ranker.scope.sources or tuple(whole)
        if not names:
            raise AnnotatorError(
                f"annotator {ranker.name!r} scores a shortlist, but no other annotator is asked; add --annotator NAME, "
                "or set shortlist_from or scope = 'exhaustive' in its settings"
            )
        for name in names:
            if means.scope(name).shortlist is not None:
                raise AnnotatorError(
                    f"'shortlist_from' of annotator {ranker.name!r} names {name!r}, which scores a shortlist itself; "
                    "name others"
                )
            if name not in whole:
                whole[name] = Ranker(means.build(name), items, progress, means)
        ranker.sources = [whole[name] for name in names]
    return found


def rank_all(
    folder: Path,
    annotators: Sequence[Annotator | RankingSource],
    items: Items,
    queries: Mapping[Direction, Sequence[int]],
    depth: Mapping[Direction, int],
    progress: Progress,
    means: Means | None = None,
) -> tuple[list[NamedRanking], int]:
    """The ranking of every annotator and direction, and how many of them had to be computed; see ``rank_with``.

    Without ``means``, this process computes, and what it keeps lies in ``folder`` too.
    """
    return rank_with(
        folder, rankers(annotators, items, progress, means or Means.beside(folder)), queries, depth
    )


def rank_with(
    folder: Path,
    chosen: Sequence[Ranker],
    queries: Mapping[Direction, Sequence[int]],
    depth: Mapping[Direction, int],
) -> tuple[list[NamedRanking], int]:
    """The rankings of all rankers in both directions, and how many of them had to be computed.

    A ranking whose file is in ``folder`` and fits is read; each other one is computed and written at once, so
    that an interrupted run goes on where it was.

    Raises:
        AnnotatorError: an annotator that reads pictures would miss some; all are told before anything is computed.
    """
    work = _Work(folder, queries, depth)
    for asked in (one for ranker in chosen for one in (ranker, *ranker.sources)):
        require_pictures(asked.annotator, asked.items.images)
    for ranker in chosen:
        for source in ranker.sources:
            for direction in (one for one in Direction if queries[one]):
                needed = work.deepest.get((source.name, direction), 0)
                work.deepest[source.name, direction] = max(needed, ranker.source_depth(direction))
    found = {}
    for ranker in sorted(chosen, key=lambda one: bool(one.sources)):  # those that make shortlists first
        for direction in Direction:
            if queries[direction]:
                found[ranker.name, direction] = work.named(ranker, direction)
    order = [(ranker.name, direction) for ranker in chosen for direction in Direction if queries[direction]]
    return [found[key] for key in order], work.computed


def is_ranked(
    folder: Path,
    ranker: Ranker,
    queries: Mapping[Direction, Sequence[int]],
    depth: Mapping[Direction, int],
) -> bool:
    """Whether both rankings lie in ``folder`` already, so that ``rank_with`` would only read them."""
    work = _Work(folder, queries, depth)
    return all(work._read(folder, ranker, direction, depth[direction]) is not None for direction in Direction)


@dataclass(slots=True)
class _Work:
    """The rankings of one folder."""

    folder: Path
    queries: Mapping[Direction, Sequence[int]]
    depth: Mapping[Direction, int]
    deepest: dict[tuple[str, Direction], int] = field(default_factory=dict)
    """How deep a shortlist needs an annotator's ranking."""
    computed: int = 0

    def named(self, ranker: Ranker, direction: Direction) -> NamedRanking:
        """An annotator's ranking, read or computed."""
        found = self._read(self.folder, ranker, direction, self.depth[direction])
        if found is None:
            found = self._compute(ranker, direction)
        elif ranker.sources:
            recall = _read_recall(self._recall_path(ranker, direction))
            if recall is not None:
                ranker.means.recalls[ranker.name, direction] = recall
        return NamedRanking(ranker.name, direction, found)

    def _compute(self, ranker: Ranker, direction: Direction) -> Ranking:
        depth = self.depth[direction]
        if ranker.sources:
            found = self._shortlisted(ranker, direction)
        elif self.deepest.get((ranker.name, direction), 0) >= depth:
            deep = self._deep(ranker, direction)
            found = Ranking(deep.query_ids, deep.item_ids[:, :depth], deep.similarities[:, :depth])
        else:
            return self._searched(self.folder, ranker, direction, self.depth)
        self._write(self.folder, ranker, direction, found)
        return found

    def _searched(
        self, folder: Path, ranker: Ranker, direction: Direction, depth: Mapping[Direction, int]
    ) -> Ranking:
        """A new ranking; the other direction's as well where one pass gives both and it is not there yet."""
        other = next(one for one in Direction if one is not direction)
        if (
            other in depth
            and ranker.searches_both(self.queries)
            and self._read(folder, ranker, other, depth[other]) is None
        ):
            both = ranker.both(depth)
            for one, found in both.items():
                self._write(folder, ranker, one, found)
            return both[direction]
        found = ranker.ranking(direction, self.queries[direction], depth[direction])
        self._write(folder, ranker, direction, found)
        return found

    def _shortlisted(self, ranker: Ranker, direction: Direction) -> Ranking:
        sources = [self._deep(source, direction) for source in ranker.sources]
        found = ranker.ranking(direction, self.queries[direction], self.depth[direction], sources)
        with one_clear_line(self.folder, "the rankings before it are kept"):
            _write_recall(self._recall_path(ranker, direction), ranker.means.recalls[ranker.name, direction])
        return found

    def _deep(self, source: Ranker, direction: Direction) -> Ranking:
        """A ranking deep enough for a shortlist, which is kept apart: nobody else should look so far."""
        folder = self.folder / SOURCES
        depth = {
            one: self.deepest[source.name, one] for one in Direction if (source.name, one) in self.deepest
        }
        found = self._read(folder, source, direction, depth[direction])
        return self._searched(folder, source, direction, depth) if found is None else found

    def _recall_path(self, ranker: Ranker, direction: Direction) -> Path:
        return self.folder / SOURCES / f"{ranker.name}.{direction}.json"

    def _read(self, folder: Path, ranker: Ranker, direction: Direction, depth: int) -> Ranking | None:
        """The stored ranking; None where there is none, or where it is damaged or of other queries or weights."""
        path = ranking_path(folder, ranker.name, direction)
        if not path.exists():
            return None
        sides = (ranker.items.side(direction, gallery=gallery) for gallery in (False, True))
        try:
            info = read_ranking_info(path)
            known = (info.annotator, info.direction, info.fingerprint)
            if known != (ranker.name, direction, ranker.mark()) or info.depth < depth:
                return None
            found = read_ranking(path, *(_surrogates(side) for side in sides))
        except RetrievalError as error:
            logger.warning("%s; it is computed again", error)
            return None
        return found if list(found.query_ids) == list(self.queries[direction]) else None

    def _write(self, folder: Path, ranker: Ranker, direction: Direction, found: Ranking) -> None:
        self.computed += folder == self.folder
        with one_clear_line(folder, "the rankings before it are kept"):
            write_ranking(
                ranking_path(folder, ranker.name, direction),
                found,
                annotator=ranker.name,
                direction=direction,
                fingerprint=ranker.mark(),
                id_kind=ranker.items.id_kind,
                query_external_ids=_externals(ranker.items.side(direction, gallery=False)),
                item_external_ids=_externals(ranker.items.side(direction, gallery=True)),
            )


def _write_recall(path: Path, recall: Recall) -> None:
    with whole_file(path) as sink:
        sink.write(json.dumps(asdict(recall)).encode())


def _read_recall(path: Path) -> Recall | None:
    """What was measured when the shortlist was made; None where it is gone."""
    try:
        found = json.loads(path.read_bytes())
        return Recall(**{**found, "audit": Audit(**found["audit"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _surrogates(side: Sequence[ImageItem] | Sequence[CaptionItem]) -> dict[str, int]:
    return {item.external_id: item.id for item in side}


def _externals(side: Sequence[ImageItem] | Sequence[CaptionItem]) -> dict[int, str]:
    return {item.id: item.external_id for item in side}
