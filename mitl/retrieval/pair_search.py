"""Exact rankings by scores of pairs: of all pairs, or of a query's candidates; cheap scores first where there are any.

A network may score pairs in a low precision first. Then the best of them, and a margin, are scored in float32, and
the order is that of float32. How far the low precision is off is not bounded by theory but measured, on every pair
that has both scores: where the margin does not cover it, the margin grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from annotators.base import Encoded, Modality, Ranking, ids_of
from mitl.progress import Advance
from mitl.records import AnnotatorKind, CaptionItem, Direction, ImageItem
from mitl.retrieval.pair_scores import Floats, PairScores, Places, ScoredItems
from mitl.retrieval.topk import top_k

MARGIN = 64
"""Pairs of a query that are scored in float32 beside its k, at first."""
_SAFETY = 1.5
"""Times the largest difference seen between the two scores of a pair."""
_BLOCK_PAIRS = 1 << 24
"""Candidates looked up at a time. The scores of a block of captions lie among those of all images, so that every
block reads all of them."""


@dataclass(frozen=True, slots=True, eq=False)
class _Near:
    """What each query has found, best first: gallery places (Q, M), -1 where there are fewer, and scores (Q, M)."""

    places: Places
    scores: Floats
    is_all: bool
    """Whether nothing else could be found."""

    def rows(self, index: Places) -> _Near:
        return _Near(self.places[index], self.scores[index], self.is_all)


@dataclass(frozen=True, slots=True)
class PairSearch:
    """One annotator's pairs, in the project's order of items."""

    name: str
    items: ScoredItems
    scores: PairScores
    exact: PairScores | None = None
    """Scores in float32, where ``scores`` are of a lower precision."""

    @property
    def computed(self) -> int:
        """Pairs that had to be scored since it was opened, in either precision."""
        return self.scores.computed + (self.exact.computed if self.exact else 0)

    def exhaustive(
        self, direction: Direction, query_ids: NDArray[np.int64], k: int, advance: Advance
    ) -> Ranking:
        """Each query's k best of the whole gallery.

        Args:
            advance: told of pairs as they are found or scored: queries times gallery in all.
        """
        gallery = ids_of(self._gallery(direction))
        best = _Near(np.empty((len(query_ids), k), np.int64), np.empty((len(query_ids), k), np.float32), True)
        rows, depth, told = np.arange(len(query_ids)), k, advance
        if self.exact is not None:
            depth = min(k + MARGIN, len(gallery))
        while len(rows):
            kept = KeptPairScores(self.name, self.scores, self.items, told)
            sides: tuple[Modality, Modality] = direction.ordered("image", "caption")
            ranking = top_k(
                kept, Encoded(sides[0], query_ids[rows], {}), Encoded(sides[1], gallery, {}), depth
            )
            places = np.searchsorted(gallery, ranking.item_ids)
            near = _Near(places, ranking.similarities, depth == len(gallery))
            done, settled = self._settled(direction, query_ids[rows], near, k)
            best.places[rows[done]], best.scores[rows[done]] = settled.places[done], settled.scores[done]
            rows, depth, told = rows[~done], min(2 * depth, len(gallery)), _silent
        return Ranking(query_ids, gallery[best.places], best.scores)

    def among(
        self,
        direction: Direction,
        query_ids: NDArray[np.int64],
        candidates: Sequence[Places],
        k: int,
        advance: Advance,
    ) -> Ranking:
        """Each query's k best of its own candidates.

        Args:
            candidates: for each query distinct places of the gallery's items, at least k.
            advance: told of candidates as they are found or scored.
        """
        gallery = ids_of(self._gallery(direction))
        best = _Near(np.empty((0, k), np.int64), np.empty((0, k), np.float32), True)
        for block in _blocks([len(items) for items in candidates]):
            near = self._scored(direction, query_ids[block], candidates[block], advance)
            done, settled = self._settled(direction, query_ids[block], near, k)
            assert done.all(), "nothing but the candidates could be found"
            best = _Near(
                np.concatenate([best.places, settled.places]),
                np.concatenate([best.scores, settled.scores]),
                True,
            )
        return Ranking(query_ids, gallery[best.places], best.scores)

    def _scored(
        self,
        direction: Direction,
        query_ids: NDArray[np.int64],
        candidates: Sequence[Places],
        advance: Advance,
    ) -> _Near:
        """All candidates of some queries, best first."""
        counts = np.array([len(items) for items in candidates])
        taken = np.arange(counts.max()) < counts[:, None]
        places = np.full(taken.shape, -1, np.int64)
        places[taken] = np.concatenate(candidates)
        near = _Near(places, np.full(taken.shape, -np.inf, np.float32), True)
        self._fill(self.scores, direction, query_ids, near, advance)
        return _best(near, taken.shape[1])

    def _settled(
        self, direction: Direction, query_ids: NDArray[np.int64], near: _Near, k: int
    ) -> tuple[NDArray[np.bool_], _Near]:
        """The k best of each query, and for which queries they certainly are those."""
        best = _best(near, k)
        if self.exact is None:
            return np.ones(len(query_ids), bool), best
        done, depth, error = np.zeros(len(query_ids), bool), min(k + MARGIN, near.places.shape[1]), 0.0
        while not done.all():
            rows = np.flatnonzero(~done)
            asked = near.rows(rows)
            exact = _Near(asked.places[:, :depth], np.full((len(rows), depth), -np.inf, np.float32), True)
            self._fill(self.exact, direction, query_ids[rows], exact, _silent)
            taken = exact.places >= 0
            error = max(
                error, float(np.abs(exact.scores[taken] - asked.scores[:, :depth][taken]).max(initial=0))
            )
            exact_best = _best(exact, k)
            best.places[rows], best.scores[rows] = exact_best.places, exact_best.scores
            if depth == near.places.shape[1] and near.is_all:
                done[rows] = True
                break
            done[rows] = asked.scores[:, depth - 1] + _SAFETY * error < exact_best.scores[:, k - 1]
            if depth == near.places.shape[1]:
                break
            depth = min(2 * depth, near.places.shape[1])
        return done, best

    def _fill(
        self,
        scores: PairScores,
        direction: Direction,
        query_ids: NDArray[np.int64],
        near: _Near,
        advance: Advance,
    ) -> None:
        """Put the scores of all its pairs into ``near``."""
        queries = np.searchsorted(ids_of(self._queries(direction)), query_ids)
        taken = near.places >= 0
        rows = np.broadcast_to(queries[:, None], taken.shape)[taken]
        near.scores[taken] = scores.get(*direction.ordered(rows, near.places[taken]), advance)

    def _queries(self, direction: Direction) -> Sequence[ImageItem] | Sequence[CaptionItem]:
        return self.items.images if direction is Direction.I2T else self.items.captions

    def _gallery(self, direction: Direction) -> Sequence[ImageItem] | Sequence[CaptionItem]:
        return self.items.captions if direction is Direction.I2T else self.items.images


class KeptPairScores:
    """Kept scores behind an annotator's signature, so that exact search can ask for blocks of them."""

    kind = AnnotatorKind.PAIRWISE
    fingerprint = ""

    def __init__(self, name: str, scores: PairScores, items: ScoredItems, advance: Advance) -> None:
        """Args: advance: told of pairs as they are found or scored."""
        self.name = name
        self._scores, self._advance = scores, advance
        self._ids = {"image": ids_of(items.images), "caption": ids_of(items.captions)}

    def encode_images(self, items: Sequence[ImageItem]) -> Encoded:
        """The images' ids: scores are found by them."""
        return Encoded("image", ids_of(items), {})

    def encode_captions(self, items: Sequence[CaptionItem]) -> Encoded:
        """The captions' ids."""
        return Encoded("caption", ids_of(items), {})

    def similarities(self, queries: Encoded, gallery: Encoded) -> Floats:
        """(Q, G) scores, computed where they are missing and kept."""
        rows, columns = (np.searchsorted(self._ids[side.modality], side.ids) for side in (queries, gallery))
        left, right = np.repeat(rows, len(columns)), np.tile(columns, len(rows))
        images, captions = (left, right) if queries.modality == "image" else (right, left)
        return self._scores.get(images, captions, self._advance).reshape(len(rows), len(columns))


def _best(near: _Near, k: int) -> _Near:
    """The k best, best first, ties to the item that comes first."""
    order = np.lexsort((near.places, -near.scores), axis=1)[:, :k]
    return _Near(
        np.take_along_axis(near.places, order, axis=1),
        np.take_along_axis(near.scores, order, axis=1),
        near.is_all,
    )


def _blocks(counts: Sequence[int]) -> Iterator[slice]:
    """Queries whose candidates are looked up together."""
    start, pairs = 0, 0
    for stop, count in enumerate(counts):
        if stop > start and pairs + count > _BLOCK_PAIRS:
            yield slice(start, stop)
            start, pairs = stop, 0
        pairs += count
    if counts:
        yield slice(start, len(counts))


def _silent(pairs: int) -> None:
    pass
