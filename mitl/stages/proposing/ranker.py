"""One annotator on one project's items: what its rankings depend on, and the rankings."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from annotators.base import (
    Annotator,
    Encoded,
    Modality,
    Ranking,
    RankingSource,
    ScoresPairs,
    is_exact,
    is_reusable,
    measured_recall,
    reads_pictures,
    scores_pairs,
    searches_itself,
)
from annotators.fingerprint import fingerprint
from mitl.errors import AnnotatorError
from mitl.progress import Progress
from mitl.records import CaptionItem, Direction, IdKind, ImageItem
from mitl.retrieval.encodings import check_encoded, encode_items
from mitl.retrieval.known_scores import ScoredItems
from mitl.retrieval.pair_scores import PairScores, Scored, Unit
from mitl.retrieval.pair_search import PairSearch
from mitl.retrieval.shortlisted import Audit, shortlisted_top_k
from mitl.retrieval.topk import VECTOR_KINDS
from mitl.stages.proposing.computing import Means
from mitl.stages.proposing.scopes import Scope


@dataclass(frozen=True, slots=True)
class Items:
    """Both sides of the data set, in tie order."""

    id_kind: IdKind
    images: Sequence[ImageItem]
    captions: Sequence[CaptionItem]

    def side(self, direction: Direction, *, gallery: bool) -> Sequence[ImageItem] | Sequence[CaptionItem]:
        """The queries' side of a direction, or its gallery's."""
        return self.images if (direction is Direction.I2T) != gallery else self.captions


def at_hand(annotator: Annotator | RankingSource, images: Sequence[ImageItem]) -> list[ImageItem]:
    """The images that this annotator can look at: all, or those with a file where it says that it reads files."""
    if not reads_pictures(annotator, unsaid=False):
        return list(images)
    return [image for image in images if image.path is not None and image.path.is_file()]


def require_pictures(
    annotator: Annotator | RankingSource, images: Sequence[ImageItem], *, can_sample: bool = False
) -> None:
    """AnnotatorError with all that is missing, where the annotator reads files and some are not there."""
    there = {image.id for image in at_hand(annotator, images)}
    lacking = [image for image in images if image.id not in there]
    if not lacking:
        return
    unnamed = [image.external_id for image in lacking if image.path is None]
    lost = [image.path for image in lacking if image.path is not None]
    folders = sorted({str(path.parent) for path in lost})
    parts = []
    if unnamed:
        parts.append(f"no file was ever named for {len(unnamed):,} ({_first(unnamed)})")
    if lost:
        parts.append(
            f"the file of {len(lost):,} is gone from {_first(folders)} ({_first([path.name for path in lost])})"
        )
    instead = f", or take those at hand with --sample {len(there)}" if can_sample and len(there) > 1 else ""
    raise AnnotatorError(
        f"annotator {annotator.name!r} looks at pictures, but {len(lacking):,} of {len(images):,} images have none: "
        f"{' and '.join(parts)}; name their folder with `mitl init --images FOLDER` and the options of the first call"
        f"{instead}"
    )


def _first(names: Sequence[str], shown: int = 3) -> str:
    return ", ".join(names[:shown]) + (", …" if len(names) > shown else "")


@dataclass(slots=True)
class Ranker:
    """One annotator with its encodings, made when first needed."""

    annotator: Annotator | RankingSource
    items: Items
    progress: Progress
    means: Means
    sources: Sequence[Ranker] = ()
    """Whose rankings give the candidates, where it scores a shortlist only."""
    _encoded: dict[Modality, Encoded] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The annotator's."""
        return self.annotator.name

    @property
    def scope(self) -> Scope:
        """Which pairs are scored, by an annotator of pairs.

        Raises:
            AnnotatorError: a shortlist is wanted of an annotator that does not score pairs.
        """
        found = self.means.scope(self.name)
        if found.shortlist is not None and not scores_pairs(self.annotator):
            raise AnnotatorError(
                f"annotator {self.name!r} does not score pair by pair, so it needs no shortlist; take 'scope' out of "
                "its settings"
            )
        return found

    def mark(self) -> str:
        """Hash of all that a ranking depends on besides its queries: the annotator, the pictures, the shortlist."""
        found = self.annotator.fingerprint
        if self._reads_pictures():
            assert not isinstance(self.annotator, RankingSource)
            keys = self.means.encodings.keys(self.annotator, "image", self.items.images, self.progress)
            pictures = hashlib.sha256(keys.astype("<u8").tobytes()).hexdigest()
            found = fingerprint(annotator=found, pictures=pictures)
        scope = self.scope
        if scope.shortlist is not None:
            numbers = [scope.shortlist, scope.recall, scope.audit_queries, scope.audit_items]
            marks = [source.mark() for source in self.sources]
            found = fingerprint(annotator=found, scope=numbers, sources=marks)
        return found

    def ranking(
        self, direction: Direction, query_ids: Sequence[int], depth: int, sources: Sequence[Ranking] = ()
    ) -> Ranking:
        """Each query's ``depth`` nearest items.

        ``sources``: their rankings, ``source_depth`` deep, where this annotator scores a shortlist only.
        """
        if isinstance(self.annotator, RankingSource):
            return self.annotator.ranking(direction, self.items.images, self.items.captions, query_ids, depth)
        wanted = np.asarray(query_ids, dtype=np.int64)
        if scores_pairs(self.annotator):
            return self._by_scores(self.annotator, direction, wanted, depth, sources)
        sides: tuple[Modality, Modality] = ("image", "caption")
        if direction is Direction.T2I:
            sides = ("caption", "image")
        queries, gallery = (self._side(modality) for modality in sides)
        places = np.searchsorted(queries.ids, wanted)
        found = self.means.engine.top_k(
            self.annotator, queries.rows(places), gallery, depth, progress=self.progress
        )
        measured = measured_recall(self.annotator)
        if measured is not None:
            self.means.own_recalls[self.name, direction] = measured
        return found

    def searches_both(self, queries: Mapping[Direction, Sequence[int]]) -> bool:
        """Whether one pass serves both directions: all items search, and their vectors say all."""
        if self.annotator.kind not in VECTOR_KINDS or searches_itself(self.annotator):
            return False
        sides = {direction: self.items.side(direction, gallery=False) for direction in Direction}
        return all(list(queries[d]) == [item.id for item in side] for d, side in sides.items())

    def both(self, depth: Mapping[Direction, int]) -> dict[Direction, Ranking]:
        """The rankings of all items on both sides."""
        assert not isinstance(self.annotator, RankingSource)
        found = self.means.engine.top_k_both(
            self.annotator,
            self._side("image"),
            self._side("caption"),
            depth[Direction.I2T],
            depth[Direction.T2I],
            progress=self.progress,
        )
        return dict(zip(Direction, found, strict=True))

    def source_depth(self, direction: Direction) -> int:
        """How deep the sources' rankings must be; further where a recall is wished, so that the list can grow."""
        scope = self.scope
        assert scope.shortlist is not None, "only a shortlist has sources"
        gallery = len(self.items.side(direction, gallery=True))
        return min(scope.shortlist * (1 if scope.recall is None else _GROWTH), gallery)

    def _reads_pictures(self) -> bool:
        return reads_pictures(self.annotator, unsaid=is_reusable(self.annotator))

    def _side(self, modality: Modality) -> Encoded:
        if modality not in self._encoded:
            assert not isinstance(self.annotator, RankingSource)
            items = self.items.images if modality == "image" else self.items.captions
            if is_reusable(self.annotator):
                encode = partial(self.means.engine.encode, self.annotator, modality)
                found = self.means.encodings.encoded(
                    self.annotator, modality, items, encode, progress=self.progress
                )
            else:
                found = encode_items(self.annotator, modality, items)
                check_encoded(self.name, found, items)
            self._encoded[modality] = found
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
        search, label = self._pair_search(annotator), f"score {self.name}"
        gallery = self.items.side(direction, gallery=True)
        try:
            if self.scope.shortlist is None:
                with self.progress(label, total=len(query_ids) * len(gallery)) as advance:
                    return search.exhaustive(direction, query_ids, depth, advance)
            found = shortlisted_top_k(
                query_ids,
                np.array([item.id for item in gallery], np.int64),
                depth,
                sources,
                min(self.scope.shortlist, len(gallery)),
                exhaustive=partial(search.exhaustive, direction),
                among=partial(search.among, direction),
                wished=self.scope.recall,
                audit=Audit(self.scope.audit_queries, self.scope.audit_items),
                progress=self.progress,
                label=label,
            )
            self.means.recalls[self.name, direction] = found.recall
            return found.ranking
        finally:
            self.means.scored[self.name] += search.computed

    def _pair_search(self, annotator: ScoresPairs) -> PairSearch:
        keys = self.means.encodings.keys
        items = ScoredItems(
            self.items.images,
            self.items.captions,
            keys(annotator, "image", self.items.images, self.progress),
            keys(annotator, "caption", self.items.captions, self.progress),
        )

        def scores(name: str, *, exact: bool) -> PairScores:
            def score(units: Iterable[Unit]) -> Iterator[Scored]:
                # Encoded only when a pair is missing.
                sides = self._side("image"), self._side("caption")
                return self.means.engine.score(annotator, *sides, units, exact=exact)

            return PairScores(self.means.scores / name, annotator.name, items, score)

        name = f"{annotator.name}-{annotator.fingerprint[:16]}"
        near = scores(name, exact=False)
        if is_exact(annotator):
            return PairSearch(annotator.name, items, near)
        return PairSearch(annotator.name, items, near, scores(f"{name}-float32", exact=True))


_GROWTH = 8
"""How many times longer a shortlist may become for the sake of its recall."""
