"""The union of the annotators' top k: candidate pairs, each with everyone who proposed it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from annotators.base import Ranking
from mitl.core.arrays import Ints, contains, distinct, pack_ids, spans
from mitl.errors import ProposalError
from mitl.records import Direction
from mitl.records.frames import PROPOSALS, frame

DIRECTIONS = tuple(Direction)
"""What the numbers of a frame's ``direction`` stand for."""


@dataclass(frozen=True, slots=True, eq=False)
class NamedRanking:
    """The ranking that one annotator made in one direction."""

    annotator: str
    direction: Direction
    ranking: Ranking


def ranking_path(folder: Path, annotator: str, direction: Direction) -> Path:
    """Where one ranking of a run lies."""
    return folder / f"{annotator}.{direction}.parquet"


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


def propose(rankings: Sequence[NamedRanking], top_k: int) -> pd.DataFrame:
    """The first ``top_k`` of every ranking (``PROPOSALS``), annotators in the order in which they first come.

    Known positives are among them: originals are judged like any other pair.

    Raises:
        ProposalError: a ranking is not that deep, or two are of the same annotator and direction.
    """
    _check(rankings, top_k)
    names = list(dict.fromkeys(named.annotator for named in rankings))
    heads = [_packed(named, top_k) for named in rankings]
    similarities = [named.ranking.similarities[:, :top_k].reshape(-1) for named in rankings]
    counts = [len(head) for head in heads]
    of_rankings = {
        "annotator": [names.index(named.annotator) for named in rankings],
        "direction": [DIRECTIONS.index(named.direction) for named in rankings],
    }
    codes = {name: np.repeat(np.array(of, np.int64), counts) for name, of in of_rankings.items()}
    return frame(
        PROPOSALS,
        {
            "pair": np.concatenate([np.empty(0, np.int64), *heads]),
            "annotator": pd.Categorical.from_codes(codes["annotator"], pd.Index(names, dtype=object)),
            "direction": codes["direction"],
            "rank": np.tile(np.arange(1, top_k + 1), sum(counts) // top_k),
            "similarity": np.concatenate([np.empty(0, np.float32), *similarities]),
        },
    )


def proposal_summary(proposals: pd.DataFrame) -> ProposalSummary:
    """Counts of what each annotator proposed, brought in and shares with the others."""
    codes, packed = proposals["annotator"].cat.codes, proposals["pair"].to_numpy()
    names = proposals["annotator"].cat.categories
    sets = [distinct(packed[codes == code]) for code in range(len(names))]
    everyone = np.sort(np.concatenate([np.empty(0, np.int64), *sets]))
    repeated = everyone[1:][everyone[1:] == everyone[:-1]]
    earlier = np.empty(0, np.int64)
    shares = []
    for code, (name, pairs) in enumerate(zip(names, sets, strict=True)):
        shares.append(
            AnnotatorShare(
                annotator=name,
                proposed=int((codes == code).sum()),
                unique=len(pairs),
                new=len(pairs) - int(contains(earlier, pairs).sum()),
                exclusive=len(pairs) - int(contains(repeated, pairs).sum()),
            )
        )
        earlier = distinct(np.concatenate([earlier, pairs]))
    return ProposalSummary(tuple(shares), proposed=len(proposals), distinct=len(earlier))


def finders(proposals: pd.DataFrame, pairs: Ints) -> tuple[Ints, NDArray[np.integer]]:
    """Who proposed each of these pairs: (offsets (n + 1,), places among the names), each annotator once, ascending.

    Args:
        proposals: in order.
    """
    proposed, codes, first = _first_of_each(proposals)
    owners = proposed[first]
    starts, ends = (np.searchsorted(owners, pairs, side=side) for side in ("left", "right"))
    return np.concatenate([[0], np.cumsum(ends - starts)]).astype(np.int64), codes[first][spans(starts, ends)]


def distinct_pairs(proposals: pd.DataFrame) -> dict[str, int]:
    """How many distinct pairs each annotator proposed, by proposals in order."""
    _, codes, first = _first_of_each(proposals)
    names = proposals["annotator"].cat.categories
    return dict(zip(names, np.bincount(codes[first], minlength=len(names)).tolist(), strict=True))


def _first_of_each(proposals: pd.DataFrame) -> tuple[Ints, NDArray[np.integer], NDArray[np.bool_]]:
    """The pairs, the annotators' places, and which rows are the first of their pair and annotator."""
    pairs, codes = proposals["pair"].to_numpy(), proposals["annotator"].cat.codes.to_numpy()
    first = np.ones(len(pairs), np.bool_)
    first[1:] = (pairs[1:] != pairs[:-1]) | (codes[1:] != codes[:-1])
    return pairs, codes, first


def ranked_pairs(rankings: Sequence[NamedRanking], depth: int | None = None) -> Ints:
    """All pairs of the rankings to this or their full depth, packed, sorted and distinct."""
    deep = (named.ranking.item_ids.shape[1] for named in rankings)
    parts = (
        _packed(named, full if depth is None else min(depth, full))
        for named, full in zip(rankings, deep, strict=True)
    )
    return distinct(np.concatenate([np.empty(0, np.int64), *parts]))


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


def _packed(named: NamedRanking, depth: int) -> Ints:
    """The pairs of the first ``depth`` ranks, row by row."""
    queries = np.repeat(named.ranking.query_ids, depth)
    items = named.ranking.item_ids[:, :depth].reshape(-1)
    return pack_ids(*named.direction.ordered(queries, items))
