"""The union of the annotators' top k: candidate pairs, each with everyone who proposed it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from annotators.base import Ranking
from mitl.core.packed import Ints, contains, distinct, pack_ids
from mitl.errors import ProposalError
from mitl.records import Direction

DIRECTIONS = tuple(Direction)
"""What the numbers of ``ProposalTable.direction`` stand for."""


@dataclass(frozen=True, slots=True, eq=False)
class NamedRanking:
    """The ranking that one annotator made in one direction."""

    annotator: str
    direction: Direction
    ranking: Ranking


def ranking_path(folder: Path, annotator: str, direction: Direction) -> Path:
    """Where one ranking of a run lies."""
    return folder / f"{annotator}.{direction}.parquet"


@dataclass(frozen=True, slots=True, eq=False)
class ProposalTable:
    """Proposals as columns of equal length, in the order of the rankings, then query, then rank.

    A pair has one row for each annotator and direction that proposed it. Known positives are among them:
    originals are judged like any other pair.
    """

    annotators: tuple[str, ...]
    """What the numbers of ``annotator`` stand for, in the order in which they first appeared."""
    image_id: Ints
    caption_id: Ints
    annotator: NDArray[np.int16]
    direction: NDArray[np.int8]
    """Places in ``DIRECTIONS``."""
    rank: NDArray[np.int16]
    similarity: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.image_id)

    def packed(self) -> Ints:
        """The pair of each row as one integer (``mitl.core.packed``)."""
        return pack_ids(self.image_id, self.caption_id)


@dataclass(frozen=True, slots=True)
class AnnotatorShare:
    """What one annotator contributed to the candidate pairs."""

    annotator: str
    proposed: int
    """Rows: queries of both directions times k."""
    unique: int
    """Distinct pairs among them."""
    new: int
    """Pairs that no annotator before it in the list proposed; these add up to all distinct pairs."""
    exclusive: int
    """Pairs that no other annotator proposed at all."""

    @property
    def overlap_share(self) -> float:
        """Share of its distinct pairs that another annotator proposed too; 0 where it proposed none."""
        return 1 - self.exclusive / self.unique if self.unique else 0.0


@dataclass(frozen=True, slots=True)
class ProposalSummary:
    """The table at the end of proposing: one row per annotator, and the totals."""

    shares: tuple[AnnotatorShare, ...]
    proposed: int
    distinct: int


def propose(rankings: Sequence[NamedRanking], top_k: int) -> ProposalTable:
    """The first ``top_k`` of every ranking as proposals.

    Raises:
        ProposalError: a ranking is not that deep, or two are of the same annotator and direction.
    """
    _check(rankings, top_k)
    names = tuple(dict.fromkeys(named.annotator for named in rankings))
    parts = [_rows(named, names.index(named.annotator), top_k) for named in rankings]
    image, caption, annotator, direction, rank, similarity = (
        np.concatenate(column) for column in zip(_no_rows(), *parts, strict=True)
    )
    return ProposalTable(names, image, caption, annotator, direction, rank, similarity)


def proposal_summary(table: ProposalTable) -> ProposalSummary:
    """Counts of what each annotator proposed, brought in and shares with the others."""
    packed = table.packed()
    sets = [distinct(packed[table.annotator == index]) for index in range(len(table.annotators))]
    everyone = np.sort(np.concatenate([np.empty(0, np.int64), *sets]))
    repeated = everyone[1:][everyone[1:] == everyone[:-1]]
    earlier = np.empty(0, np.int64)
    shares = []
    for index, (name, pairs) in enumerate(zip(table.annotators, sets, strict=True)):
        shares.append(
            AnnotatorShare(
                annotator=name,
                proposed=int((table.annotator == index).sum()),
                unique=len(pairs),
                new=len(pairs) - int(contains(earlier, pairs).sum()),
                exclusive=len(pairs) - int(contains(repeated, pairs).sum()),
            )
        )
        earlier = distinct(np.concatenate([earlier, pairs]))
    return ProposalSummary(tuple(shares), proposed=len(table), distinct=len(earlier))


def ranked_pairs(rankings: Sequence[NamedRanking]) -> Ints:
    """All pairs of the rankings to their full depth, packed, sorted and distinct."""
    parts = [_pair_ids(named, named.ranking.item_ids.shape[1]) for named in rankings]
    return distinct(np.concatenate([np.empty(0, np.int64), *(pack_ids(*part) for part in parts)]))


def _check(rankings: Sequence[NamedRanking], top_k: int) -> None:
    if top_k < 1:
        raise ProposalError(f"top-k is {top_k}, but it must be at least 1")
    seen: set[tuple[str, Direction]] = set()
    for named in rankings:
        depth = named.ranking.item_ids.shape[1]
        if top_k > depth:
            raise ProposalError(
                f"top-k is {top_k}, but the {named.direction} ranking of {named.annotator!r} is "
                f"{depth} deep; raise --depth or lower --top-k"
            )
        if (named.annotator, named.direction) in seen:
            raise ProposalError(f"two {named.direction} rankings of annotator {named.annotator!r}; give one")
        seen.add((named.annotator, named.direction))


def _pair_ids(named: NamedRanking, depth: int) -> tuple[Ints, Ints]:
    """Image ids and caption ids of the first ``depth`` ranks, row by row."""
    queries = np.repeat(named.ranking.query_ids, depth)
    items = named.ranking.item_ids[:, :depth].reshape(-1)
    return (queries, items) if named.direction is Direction.I2T else (items, queries)


def _rows(named: NamedRanking, index: int, top_k: int) -> tuple[NDArray[np.generic], ...]:
    images, captions = _pair_ids(named, top_k)
    count = len(images)
    return (
        images,
        captions,
        np.full(count, index, np.int16),
        np.full(count, DIRECTIONS.index(named.direction), np.int8),
        np.tile(np.arange(1, top_k + 1, dtype=np.int16), count // top_k),
        named.ranking.similarities[:, :top_k].reshape(-1),
    )


def _no_rows() -> tuple[NDArray[np.generic], ...]:
    types = (np.int64, np.int64, np.int16, np.int8, np.int16, np.float32)
    return tuple(np.empty(0, dtype) for dtype in types)
