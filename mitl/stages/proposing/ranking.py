"""Rankings of a data set by its annotators, computed once and kept as files."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from annotators import registry
from annotators.base import (
    Annotator,
    Encoded,
    Modality,
    Ranking,
    RankingSource,
    ScoresPairs,
    fingerprint,
    is_exact,
    is_reusable,
    measured_recall,
    paid_pairs,
    reads_pictures,
    scores_pairs,
    searches_itself,
)
from mitl.core.whole_files import one_clear_line, whole_file
from mitl.db.store import items as item_store
from mitl.db.store.items import DatasetRow
from mitl.errors import AnnotatorError, RetrievalError
from mitl.proposals.candidates import NamedRanking, ranking_path
from mitl.records import CaptionItem, Direction, IdKind, ImageItem, PartKind
from mitl.records.forms import IMAGES
from mitl.retrieval.pair_scores import PairScores, ScoredItems, ScoredUnit, Unit
from mitl.retrieval.pair_search import PairSearch
from mitl.retrieval.rankings import (
    MAX_DEPTH,
    ExternalIds,
    MadeBy,
    read_ranking,
    read_ranking_info,
    require_best_first,
    write_ranking,
)
from mitl.retrieval.shortlisted import (
    PairRanking,
    ShortlistAudit,
    Shortlisting,
    ShortlistRecall,
    shortlisted_top_k,
)
from mitl.retrieval.vectors import VECTOR_KINDS
from mitl.settings import Settings
from mitl.stages.proposing.computing import ComputeContext, PairScope, split_scope

logger = logging.getLogger(__name__)

SOURCES = "shortlists"
"""Folder, within that of the rankings, of the deeper rankings that shortlists were made of, and of their recall."""
_GROWTH = 8
"""How many times longer a shortlist may become for the sake of its recall."""


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
    configured = settings.annotator_config
    for name in names:
        near = get_close_matches(name, configured, 1)
        if near and name not in (*configured, *registry.names()):
            raise AnnotatorError(
                f"no annotator called {name!r}; did you mean {near[0]!r}, which mitl.toml has?"
            )
    configs = {name: split_scope(name, settings.annotator_config.get(name, {}))[0] for name in names}
    return [registry.build(name, config, folder=settings.project) for name, config in configs.items()]


@dataclass(frozen=True)
class SearchedItems:
    """Both sides of the data set, in tie order."""

    id_kind: IdKind
    images: Sequence[ImageItem]
    captions: Sequence[CaptionItem]
    sides: tuple[str, str] = IMAGES.sides
    """What both are called."""
    dataset_sha256: str = ""
    """Over the ids and texts of the data set; empty of a part of it."""

    @cached_property
    def references(self) -> Mapping[Direction, Mapping[int, frozenset[int]]]:
        """Direction → item that searches → items that it may not find: a composed query its reference, and vice versa.

        As CIRR's own evaluation leaves the reference out of each query's gallery.
        """
        of_query = {c.id: frozenset([c.reference_id]) for c in self.captions if c.reference_id is not None}
        of_image: dict[int, set[int]] = {}
        for query, (reference,) in of_query.items():
            of_image.setdefault(reference, set()).add(query)
        return {
            Direction.I2T: {image: frozenset(queries) for image, queries in of_image.items()},
            Direction.T2I: of_query,
        }

    def left_out(self, direction: Direction) -> int:
        """The most items that a query of this direction may not find."""
        return max(map(len, self.references[direction].values()), default=0)

    def further(self, direction: Direction, depth: int) -> int:
        """How deep a search must go so that ``depth`` items are left of what it found, or all there are."""
        return min(depth + self.left_out(direction), len(self.side(direction, gallery=True)))

    def reach(self, direction: Direction) -> int:
        """How many items every query of this direction can find."""
        return len(self.side(direction, gallery=True)) - self.left_out(direction)

    def side(
        self, direction: Direction, *, gallery: bool = False
    ) -> Sequence[ImageItem] | Sequence[CaptionItem]:
        """The queries' side of a direction, or its gallery's."""
        return self.images if (direction is Direction.I2T) != gallery else self.captions


def read_items(session: Session, settings: Settings) -> tuple[DatasetRow, SearchedItems]:
    """The project's data set, and all of its items; StoreError where there is none."""
    dataset = item_store.dataset(session)
    images = item_store.images(session, dataset.id, settings.project)
    captions = item_store.captions(session, dataset.id)
    return dataset, SearchedItems(
        dataset.id_kind, images, captions, dataset.pair_sides, dataset.content_sha256
    )


def at_hand(annotator: Annotator | RankingSource, images: Sequence[ImageItem]) -> list[ImageItem]:
    """The images that this annotator can look at: all, or those with a file where it says that it reads files."""
    if not reads_pictures(annotator, unsaid=False):
        return list(images)
    return [image for image in images if image.path is not None and image.path.is_file()]


def require_pictures(
    annotator: Annotator | RankingSource, images: Sequence[ImageItem], *, can_sample: bool = False
) -> None:
    """AnnotatorError with all that is missing, where the annotator reads files and some are not there."""
    at_hand_ids = {image.id for image in at_hand(annotator, images)}
    lacking = [image for image in images if image.id not in at_hand_ids]
    if not lacking:
        return
    looks = {PartKind.AUDIO: "listens to sounds", PartKind.VIDEO: "looks at videos"}
    says = f"annotator {annotator.name!r} {looks.get(images[0].kind, 'looks at pictures')}"
    if images[0].texts:
        raise AnnotatorError(
            f"{says}, but this data set has texts on both sides; use bm25, "
            "minilm, or embeddings or rankings from files"
        )
    unnamed = [image.external_id for image in lacking if image.path is None]
    lost = [image.path for image in lacking if image.path is not None]
    folders = sorted({str(path.parent) for path in lost})
    parts = []
    if unnamed:
        parts.append(f"no file was ever found for {len(unnamed):,} ({_first(unnamed)})")
    if lost:
        parts.append(
            f"the file of {len(lost):,} is gone from {_first(folders)} ({_first([path.name for path in lost])})"
        )
    option = "media" if images[0].kind in looks else "images"
    instead = (
        f", or take those at hand with --sample {len(at_hand_ids)}"
        if can_sample and len(at_hand_ids) > 1
        else ""
    )
    raise AnnotatorError(
        f"{says}, but {len(lacking):,} of {len(images):,} images have none: "
        f"{' and '.join(parts)}; run `mitl init` with the options of the first call, and --{option} FOLDER if they are "
        f"elsewhere{instead}"
    )


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


@dataclass(slots=True)
class AnnotatorRun:
    """One annotator at work on a data set: what its rankings depend on, its encodings, and the search itself."""

    annotator: Annotator | RankingSource
    items: SearchedItems
    compute: ComputeContext
    sources: Sequence[AnnotatorRun] = ()
    """Whose rankings give the candidates, where it scores a shortlist only."""
    _encoded: dict[Modality, Encoded] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The annotator's."""
        return self.annotator.name

    @property
    def scope(self) -> PairScope:
        """Which pairs are scored, by an annotator of pairs.

        Raises:
            AnnotatorError: a shortlist is wanted of an annotator that does not score pairs.
        """
        scope = self.compute.scope(self.name)
        if scope.shortlist is not None and not scores_pairs(self.annotator):
            raise AnnotatorError(
                f"annotator {self.name!r} does not score pair by pair, so it needs no shortlist; take 'scope' out of "
                "its settings"
            )
        return scope

    def mark(self) -> str:
        """Hash of all that a ranking depends on besides its queries: the annotator, the pictures, the shortlist."""
        mark = self.annotator.fingerprint
        if reads_pictures(self.annotator, unsaid=is_reusable(self.annotator)):
            keys = self._keys(self.annotator, "image")
            mark = fingerprint(
                annotator=mark, pictures=hashlib.sha256(keys.astype("<u8").tobytes()).hexdigest()
            )
        scope = self.scope
        if scope.shortlist is not None:
            numbers = [scope.shortlist, scope.recall, scope.audit_queries, scope.audit_items]
            mark = fingerprint(
                annotator=mark, scope=numbers, sources=[source.mark() for source in self.sources]
            )
        return mark

    def ranking(
        self, direction: Direction, query_ids: Sequence[int], depth: int, sources: Sequence[Ranking] = ()
    ) -> Ranking:
        """Each query's ``depth`` nearest items; those that it may not find come behind all others.

        ``sources``: their rankings, ``source_depth`` deep, where this annotator scores a shortlist only.
        """
        further = self.items.further(direction, depth)
        return self._without(direction, self._ranking(direction, query_ids, further, sources), depth)

    def _without(self, direction: Direction, ranking: Ranking, depth: int) -> Ranking:
        forbidden = self.items.references[direction]
        if not forbidden:
            return ranking
        gone = [
            [item in forbidden.get(query, ()) for item in items]
            for query, items in zip(ranking.query_ids.tolist(), ranking.item_ids.tolist(), strict=True)
        ]
        # Stable, so that what stays keeps its order in front of what goes.
        kept = np.argsort(np.array(gone), axis=1, kind="stable")[:, :depth]
        return Ranking(
            ranking.query_ids,
            np.take_along_axis(ranking.item_ids, kept, axis=1),
            np.take_along_axis(ranking.similarities, kept, axis=1),
        )

    def _ranking(
        self, direction: Direction, query_ids: Sequence[int], depth: int, sources: Sequence[Ranking]
    ) -> Ranking:
        if isinstance(self.annotator, RankingSource):
            ranking = self.annotator.ranking(
                direction, self.items.images, self.items.captions, query_ids, depth
            )
            return self._checked(ranking, direction, query_ids, depth)
        asked = np.asarray(query_ids, dtype=np.int64)
        if scores_pairs(self.annotator):
            return self._by_scores(self.annotator, direction, asked, depth, sources)
        queries, gallery = direction.ordered(self.encoded("image"), self.encoded("caption"))
        (ranking,) = self.compute.engine.rank(
            self.annotator,
            (queries.rows(np.searchsorted(queries.ids, asked)), gallery),
            (depth,),
            progress=lambda label, total: self.compute.progress(f"{label} {direction}", total),
        )
        if (measured := measured_recall(self.annotator)) is not None:
            self.compute.own_recalls[self.name, direction] = measured
        if searches_itself(self.annotator):
            return self._checked(ranking, direction, query_ids, depth)
        return ranking

    def _checked(
        self, ranking: Ranking, direction: Direction, query_ids: Sequence[int], depth: int
    ) -> Ranking:
        gallery_ids = [item.id for item in self.items.side(direction, gallery=True)]
        require_best_first(self.name, ranking, query_ids, gallery_ids, depth)
        return ranking

    def searches_both(self, queries: Mapping[Direction, Sequence[int]]) -> bool:
        """Whether one pass serves both directions: all items search, and their vectors say all."""
        if self.annotator.kind not in VECTOR_KINDS or searches_itself(self.annotator):
            return False
        return all(list(queries[d]) == [item.id for item in self.items.side(d)] for d in Direction)

    def both(self, depth: Mapping[Direction, int]) -> dict[Direction, Ranking]:
        """The rankings of all items on both sides."""
        assert not isinstance(self.annotator, RankingSource)
        sides = self.encoded("image"), self.encoded("caption")
        depths = [self.items.further(d, depth[d]) for d in Direction]
        rankings = self.compute.engine.rank(self.annotator, sides, depths, progress=self.compute.progress)
        return {
            d: self._without(d, ranking, depth[d]) for d, ranking in zip(Direction, rankings, strict=True)
        }

    def source_depth(self, direction: Direction) -> int:
        """How deep the sources' rankings must be; further where a recall is wished, so that the list can grow."""
        scope = self.scope
        assert scope.shortlist is not None, "only a shortlist has sources"
        most = min(len(self.items.side(direction, gallery=True)), MAX_DEPTH)
        return min(scope.shortlist * (1 if scope.recall is None else _GROWTH), most)

    def _keys(self, annotator: Annotator | RankingSource, modality: Modality) -> NDArray[np.uint64]:
        items = self.items.images if modality == "image" else self.items.captions
        return self.compute.encodings.keys(annotator, modality, items, self.compute.progress)

    def encoded(self, modality: Modality) -> Encoded:
        """All items of one side."""
        if modality not in self._encoded:
            assert not isinstance(self.annotator, RankingSource)
            items = self.items.images if modality == "image" else self.items.captions
            self._encoded[modality] = self.compute.encoded(self.annotator, modality, items)
        return self._encoded[modality]

    def _by_scores(
        self,
        annotator: ScoresPairs,
        direction: Direction,
        query_ids: NDArray[np.int64],
        depth: int,
        sources: Sequence[Ranking],
    ) -> Ranking:
        """By a score for each pair, of which those of earlier runs are not computed again."""
        search, label, scope = self._pair_search(annotator), f"score {self.name} {direction}", self.scope
        gallery = self.items.side(direction, gallery=True)
        try:
            if scope.shortlist is None:
                with self.compute.progress(label, total=len(query_ids) * len(gallery)) as advance:
                    return search.exhaustive(direction, query_ids, depth, advance)
            shortlisted = shortlisted_top_k(
                query_ids,
                np.array([item.id for item in gallery], np.int64),
                depth,
                sources,
                Shortlisting(
                    min(scope.shortlist, len(gallery)),
                    scope.recall,
                    ShortlistAudit(scope.audit_queries, scope.audit_items),
                ),
                PairRanking(
                    partial(search.exhaustive, direction),
                    partial(search.among, direction),
                    self.compute.progress,
                    label,
                ),
            )
            self.compute.recalls[self.name, direction] = shortlisted.recall
            return shortlisted.ranking
        finally:
            self.compute.scored[self.name] += search.computed

    def _pair_search(self, annotator: ScoresPairs) -> PairSearch:
        keys = self._keys(annotator, "image"), self._keys(annotator, "caption")
        items = ScoredItems(self.items.images, self.items.captions, *keys)

        def scores(name: str, *, exact: bool) -> PairScores:
            def score(units: Iterable[Unit]) -> Iterator[ScoredUnit]:
                # Encoded only when a pair is missing.
                sides = self.encoded("image"), self.encoded("caption")
                return self.compute.engine.score(annotator, *sides, units, exact=exact)

            folder = self.compute.scores / name
            return PairScores(folder, annotator.name, items, score, paid_pairs(annotator))

        name = f"{annotator.name}-{annotator.fingerprint[:16]}"
        exact = None if is_exact(annotator) else scores(f"{name}-float32", exact=True)
        return PairSearch(annotator.name, items, scores(name, exact=False), exact)


def annotator_runs(
    annotators: Sequence[Annotator | RankingSource], items: SearchedItems, compute: ComputeContext
) -> list[AnnotatorRun]:
    """One for each annotator; those that score a shortlist know whose rankings make it.

    Raises:
        AnnotatorError: there is no other annotator to make a shortlist, or it has a shortlist itself.
    """
    runs = [AnnotatorRun(annotator, items, compute) for annotator in annotators]
    whole = {run.name: run for run in runs if run.scope.shortlist is None}
    for run in runs:
        if run.name in whole:
            continue
        names = run.scope.sources or tuple(whole)
        if not names:
            raise AnnotatorError(
                f"annotator {run.name!r} scores a shortlist, but no other annotator is asked; add --annotator NAME, "
                "or set shortlist_from or scope = 'exhaustive' in its settings"
            )
        for name in names:
            if compute.scope(name).shortlist is not None:
                raise AnnotatorError(
                    f"'shortlist_from' of annotator {run.name!r} names {name!r}, which scores a shortlist itself; "
                    "name others"
                )
            if name not in whole:
                whole[name] = AnnotatorRun(compute.build(name), items, compute)
        run.sources = [whole[name] for name in names]
    return runs


def rank_with(kept: RankingFolder, runs: Sequence[AnnotatorRun]) -> tuple[list[NamedRanking], int]:
    """The rankings of all runs in both directions, and how many of them had to be computed.

    A ranking whose file is in the folder and fits is read; each other one is computed and written at once, so
    that an interrupted run goes on where it was.

    Raises:
        AnnotatorError: an annotator that reads pictures would miss some; all are told before anything is computed.
        RetrievalError: rankings would be deeper than files hold.
    """
    asked = [direction for direction in Direction if kept.queries[direction]]
    if (deepest := max((kept.depth[direction] for direction in asked), default=0)) > MAX_DEPTH:
        raise RetrievalError(
            f"the depth is {deepest:,}, but rankings are kept to {MAX_DEPTH:,}; ask for less"
        )
    for part in (part for run in runs for part in (run, *run.sources)):
        require_pictures(part.annotator, part.items.images)
    for run in runs:
        for source in run.sources:
            for direction in asked:
                needed = kept.deepest.get((source.name, direction), 0)
                kept.deepest[source.name, direction] = max(needed, run.source_depth(direction))
    rankings = {
        (run.name, direction): NamedRanking(run.name, direction, kept.ranking(run, direction))
        for run in sorted(runs, key=lambda run: bool(run.sources))  # those that make shortlists first
        for direction in asked
    }
    return [rankings[run.name, direction] for run in runs for direction in asked], kept.computed


@dataclass(slots=True)
class RankingFolder:
    """The rankings of some queries in one folder."""

    folder: Path
    queries: Mapping[Direction, Sequence[int]]
    depth: Mapping[Direction, int]
    deepest: dict[tuple[str, Direction], int] = field(default_factory=dict)
    """How deep a shortlist needs an annotator's ranking."""
    computed: int = 0

    def holds(self, run: AnnotatorRun) -> bool:
        """Whether both rankings lie here already, so that they would only be read."""
        return all(self._read(self.folder, run, d, self.depth[d]) is not None for d in Direction)

    def ranking(self, run: AnnotatorRun, direction: Direction) -> Ranking:
        """An annotator's ranking, read or computed."""
        depth = self.depth[direction]
        ranking = self._read(self.folder, run, direction, depth)
        if run.sources:
            recall_file = self.folder / SOURCES / f"{run.name}.{direction}.json"
            if ranking is None:
                ranking = self._shortlisted(run, direction, recall_file)
            elif (recall := _read_recall(recall_file)) is not None:
                run.compute.recalls[run.name, direction] = recall
        elif ranking is None and self.deepest.get((run.name, direction), 0) >= depth:
            deep = self._deep(run, direction)
            ranking = Ranking(deep.query_ids, deep.item_ids[:, :depth], deep.similarities[:, :depth])
            self._write(self.folder, run, direction, ranking)
        return self._searched(self.folder, run, direction, self.depth) if ranking is None else ranking

    def _searched(
        self, folder: Path, run: AnnotatorRun, direction: Direction, depth: Mapping[Direction, int]
    ) -> Ranking:
        """A new ranking; the other direction's as well where one pass gives both and it is not there yet."""
        other = next(way for way in Direction if way is not direction)
        if (
            other in depth
            and run.searches_both(self.queries)
            and self._read(folder, run, other, depth[other]) is None
        ):
            rankings = run.both(depth)
        else:
            rankings = {direction: run.ranking(direction, self.queries[direction], depth[direction])}
        for way, ranking in rankings.items():
            self._write(folder, run, way, ranking)
        return rankings[direction]

    def _shortlisted(self, run: AnnotatorRun, direction: Direction, recall_file: Path) -> Ranking:
        sources = [self._deep(source, direction) for source in run.sources]
        ranking = run.ranking(direction, self.queries[direction], self.depth[direction], sources)
        recall = json.dumps(asdict(run.compute.recalls[run.name, direction]))
        with one_clear_line(self.folder, "the rankings before it are kept"), whole_file(recall_file) as sink:
            sink.write(recall.encode())
        self._write(self.folder, run, direction, ranking)
        return ranking

    def _deep(self, source: AnnotatorRun, direction: Direction) -> Ranking:
        """A ranking deep enough for a shortlist, which is kept apart: nobody else should look so far."""
        folder = self.folder / SOURCES
        depth = {d: self.deepest[source.name, d] for d in Direction if (source.name, d) in self.deepest}
        ranking = self._read(folder, source, direction, depth[direction])
        return self._searched(folder, source, direction, depth) if ranking is None else ranking

    def _read(self, folder: Path, run: AnnotatorRun, direction: Direction, depth: int) -> Ranking | None:
        """The stored ranking; None where there is none, or it is damaged or of other queries, weights or data."""
        path = ranking_path(folder, run.name, direction)
        if not path.exists():
            return None
        try:
            info = read_ranking_info(path)
            # A folder may have held another data set before, of the same ids; older files do not say which.
            dataset = info.made.dataset_sha256 and run.items.dataset_sha256
            if info.made != MadeBy(run.name, direction, run.mark(), dataset) or info.depth < depth:
                return None
            sides = (run.items.side(direction, gallery=gallery) for gallery in (False, True))
            ranking = read_ranking(path, *({item.external_id: item.id for item in side} for side in sides))
        except RetrievalError as error:
            logger.warning("%s; it is computed again", error)
            return None
        return ranking if list(ranking.query_ids) == list(self.queries[direction]) else None

    def _write(self, folder: Path, run: AnnotatorRun, direction: Direction, ranking: Ranking) -> None:
        self.computed += folder == self.folder
        sides = (run.items.side(direction, gallery=gallery) for gallery in (False, True))
        names = ({item.id: item.external_id for item in side} for side in sides)
        with one_clear_line(folder, "the rankings before it are kept"):
            write_ranking(
                ranking_path(folder, run.name, direction),
                ranking,
                MadeBy(run.name, direction, run.mark(), run.items.dataset_sha256),
                ExternalIds(run.items.id_kind, *names),
            )


def _read_recall(path: Path) -> ShortlistRecall | None:
    """What was measured when the shortlist was made; None where it is gone."""
    try:
        recall = json.loads(path.read_bytes())
        return ShortlistRecall(**{**recall, "audit": ShortlistAudit(**recall["audit"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None
