"""Items without a partner that would be hard negatives (Jo et al., Algorithm 2).

Images without a text are scored against texts that have one; the reverse is the same with the sides exchanged, so rows
are items of the side that lacks partners, columns the paired items of the other.

Source: Jo et al., "Active Learning for Finely-Categorized Image-Text Retrieval by Selecting Hard Negative Unpaired
Samples", eq. 2-6. Algorithm 2 prints the full batch, the first and the surplus; the others are its eq. 3, 4 and the
counting weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import Floats, Ints
from mitl.errors import RoundError
from mitl.records import several
from mitl.selection.choice import draws

Similarities = NDArray[np.floating[Any]]
Similarity: TypeAlias = Callable[[Ints, Ints], Similarities]
"""(r, c) similarities of these rows and columns."""

_CELLS = 1 << 24
"""Similarities held at once: 128 MB."""


class Weight(StrEnum):
    """What a text adds to the score of an image that is a hard negative of it."""

    COUNTING = "counting"
    """1."""
    SURPLUS = "surplus"
    """How far the similarity lies above the threshold (eq. 6)."""


@dataclass(frozen=True, slots=True)
class HardNegatives:
    """When an item counts as a hard negative, and for how much; the paper's choice by default."""

    top: int = 1
    """The threshold is the similarity of the k-th nearest other paired item (eq. 4); 1 for eq. 2."""
    weight: Weight = Weight.SURPLUS
    sample: int | None = None
    """Paired items that the thresholds are taken from, drawn anew for each choice: the mini-batch of eq. 3; None for
    all. The paper has 2,560, some fifth of its pairs."""
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Unpaired:
    """Items of one side, some with partners on the other side."""

    similarity: Similarity
    """Of rows of this side and the ``T`` columns, the items that are somebody's partner."""
    rows: Ints
    """(U,) without partner: who may be chosen."""
    paired: Ints
    """(P,) rows with a partner."""
    own: Ints
    """(T,) each column's partner: a place in ``paired``."""


def of_array(similarities: Similarities) -> Similarity:
    """Looked up in (N, T)."""
    return lambda rows, columns: similarities[np.ix_(rows, columns)]


def of_vectors(rows: Similarities, columns: Similarities) -> Similarity:
    """The products of (N, D) and (T, D): cosines where these are of length 1."""
    return lambda some, others: rows[some] @ columns[others].T


def thresholds(paired: Similarities, own: Ints, top: int = 1) -> Floats:
    """(T,) of each text the ``top``-th highest similarity with a paired image that is not its own (eq. 2 and 4).

    Args:
        paired: (P, T).
        own: (T,) each text's image, a row.

    Raises:
        RoundError: there are fewer other images.
    """
    best = _Best(paired.shape[1], top)
    best.add(_others(paired, 0, own))
    return best.last(len(paired))


def hard_negative_scores(
    similarities: Similarities, thresholds: Floats, weight: Weight = Weight.SURPLUS
) -> Floats:
    """(U,) how hard a negative each image would be: the sum over the texts whose threshold it exceeds (eq. 5 and 6).

    Args:
        similarities: (U, T) of images without text and paired texts.
        thresholds: (T,).
    """
    surplus = similarities - thresholds
    above = surplus > 0
    weights = above if weight is Weight.COUNTING else np.where(above, surplus, 0.0)
    return np.asarray(weights.sum(axis=1), np.float64)


def unpaired_scores(unpaired: Unpaired, rule: HardNegatives | None = None) -> Floats:
    """(U,) the same for sets of any size: similarities are made in blocks.

    With a sample, texts and images of the sample's pairs alone enter (T_s and Z_s), a text's own image left out.

    Raises:
        RoundError: too few paired items, or a sample that is too small or of more items than there are.
    """
    rule = rule or HardNegatives()
    in_batch = _batch(len(unpaired.paired), rule)
    columns = np.flatnonzero(np.isin(unpaired.own, in_batch))
    batch, own = unpaired.paired[in_batch], np.searchsorted(in_batch, unpaired.own[columns])
    best = _Best(len(columns), rule.top)
    for start, block in _blocks(unpaired.similarity, batch, columns):
        best.add(_others(block, start, own))
    limits = best.last(len(batch))
    scores = [
        hard_negative_scores(block, limits, rule.weight)
        for _, block in _blocks(unpaired.similarity, unpaired.rows, columns)
    ]
    return np.concatenate([np.empty(0), *scores])


def hardest(unpaired: Unpaired, n: int, rule: HardNegatives | None = None) -> tuple[Ints, Floats]:
    """Algorithm 2: the ``n`` rows of the highest scores, highest first, and these; among equal ones the seed decides.

    Raises:
        RoundError: as `unpaired_scores`.
    """
    rule = rule or HardNegatives()
    scores = unpaired_scores(unpaired, rule)
    tie = draws(unpaired.rows, rule.seed, "ties of hard negatives")
    order = np.lexsort((tie, -scores))[:n]
    return unpaired.rows[order], scores[order]


def hard_share(scores: Floats) -> float:
    """The share of items that are a hard negative of some text (the paper's Table 4), 0 to 1; 0 of none."""
    return float((scores > 0).mean()) if len(scores) else 0.0


class _Best:
    """The highest similarities of each column so far."""

    def __init__(self, columns: int, top: int) -> None:
        if top < 1:
            raise RoundError(f"the threshold is that of the {top}th nearest, but it is the 1st at least")
        self._top, self._found = top, np.full((top, columns), -np.inf)

    def add(self, block: Floats) -> None:
        """More rows (r, columns)."""
        both = np.concatenate([self._found, block])
        self._found = -np.partition(-both, self._top - 1, axis=0)[: self._top]

    def last(self, rows: int) -> Floats:
        """(columns,) the lowest of them; RoundError where there were fewer rows than one more."""
        if rows <= self._top:
            raise RoundError(
                f"thresholds by the {self._top}. nearest need {self._top + 1} paired items at least, and there "
                f"are {rows}; pair more, or take a larger sample"
            )
        return np.asarray(self._found.min(axis=0), np.float64)


def _others(block: Similarities, start: int, own: Ints) -> Floats:
    """The block of rows from ``start`` on, without each column's own row."""
    rows = np.arange(start, start + len(block))[:, None]
    return np.where(rows == own, -np.inf, block)


def _batch(count: int, rule: HardNegatives) -> Ints:
    """Ascending places of the paired items that enter."""
    if rule.sample is None:
        return np.arange(count)
    if rule.sample > count:
        raise RoundError(
            f"the sample is {rule.sample:,} of {several(count, 'paired item')}; take a smaller one, or all"
        )
    every = np.arange(count)
    return np.sort(every[np.argsort(draws(every, rule.seed, "mini-batch"), kind="stable")[: rule.sample]])


def _blocks(similarity: Similarity, rows: Ints, columns: Ints) -> Iterator[tuple[int, Similarities]]:
    step = max(1, _CELLS // max(1, len(columns)))
    for start in range(0, len(rows), step):
        yield start, similarity(rows[start : start + step], columns)
