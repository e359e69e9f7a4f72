"""Proposals as columns, for millions of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mitl.core.packed import Ints, distinct, pack_ids
from mitl.records import Direction, Proposal


@dataclass(frozen=True, slots=True, eq=False)
class ProposalColumns:
    """One row per (pair, annotator, direction), by pair, annotator's name, direction's value and rank; all (n,)."""

    pairs: Ints
    """Packed, see :mod:`mitl.core.packed`; ascending."""
    annotator: NDArray[np.int32]
    """Places in ``annotators``."""
    annotators: tuple[str, ...]
    """Names, ascending."""
    direction: NDArray[np.int8]
    """Places of ``Direction``."""
    rank: NDArray[np.int32]
    """From 1."""
    similarity: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.pairs)

    @classmethod
    def make(
        cls,
        pairs: Ints,
        annotator: NDArray[np.integer],
        annotators: tuple[str, ...],
        direction: NDArray[np.integer],
        rank: NDArray[np.integer],
        similarity: NDArray[np.floating],
    ) -> ProposalColumns:
        """The columns in their order, from rows in any order."""
        name_order = np.argsort(np.array(annotators, dtype=object), kind="stable")
        place = np.empty(len(annotators), np.int32)
        place[name_order] = np.arange(len(annotators), dtype=np.int32)
        codes = place[annotator] if len(annotators) else np.empty(0, np.int32)
        value_order = np.argsort(np.argsort([direction_.value for direction_ in Direction]))
        order = np.lexsort((similarity, rank, value_order[direction], codes, pairs))
        return cls(
            pairs[order],
            codes[order],
            tuple(annotators[n] for n in name_order),
            direction[order].astype(np.int8),
            rank[order].astype(np.int32),
            similarity[order].astype(np.float64),
        )

    @classmethod
    def from_records(cls, proposals: Iterable[Proposal]) -> ProposalColumns:
        """The columns of records."""
        rows = list(proposals)
        annotators = tuple(sorted({row.annotator for row in rows}))
        code = {name: place for place, name in enumerate(annotators)}
        ids = np.array([(row.pair.image_id, row.pair.caption_id) for row in rows], np.int64).reshape(-1, 2)
        directions = list(Direction)
        return cls.make(
            pack_ids(ids[:, 0], ids[:, 1]),
            np.array([code[row.annotator] for row in rows], np.int32),
            annotators,
            np.array([directions.index(row.direction) for row in rows], np.int8),
            np.array([row.rank for row in rows], np.int32),
            np.array([row.similarity for row in rows], np.float64),
        )

    def finders(self, pairs: Ints) -> tuple[Ints, NDArray[np.int32]]:
        """Who proposed each of these pairs: (offsets (n + 1,), annotator codes), each annotator once, ascending."""
        if not len(self) or not len(pairs):
            return np.zeros(len(pairs) + 1, np.int64), np.empty(0, np.int32)
        # One key per (pair, annotator); rows are sorted by them already, so equal ones are neighbours.
        places = np.searchsorted(distinct(self.pairs), self.pairs)
        keys = places * len(self.annotators) + self.annotator
        first = np.append(True, keys[1:] != keys[:-1])
        owners, codes = self.pairs[first], self.annotator[first]
        starts = np.searchsorted(owners, pairs, side="left")
        ends = np.searchsorted(owners, pairs, side="right")
        offsets = np.concatenate([[0], np.cumsum(ends - starts)]).astype(np.int64)
        return offsets, codes[spans(starts, ends)]

    def distinct_pairs(self) -> dict[str, int]:
        """How many distinct pairs each annotator proposed."""
        counts = dict.fromkeys(self.annotators, 0)
        for place, name in enumerate(self.annotators):
            counts[name] = len(distinct(self.pairs[self.annotator == place]))
        return counts


def spans(starts: NDArray[np.integer], ends: NDArray[np.integer]) -> Ints:
    """The places from each start to before its end, one span after the other."""
    lengths = (ends - starts).astype(np.int64)
    total = int(lengths.sum())
    first = np.cumsum(lengths) - lengths
    return np.asarray(np.arange(total, dtype=np.int64) - np.repeat(first - starts, lengths), np.int64)
