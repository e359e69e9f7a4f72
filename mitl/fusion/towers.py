"""Two towers that learn from answers what of an image and of a caption makes a match, and the feature that they are.

A pair's log-odds come from towers that read no answer of its fold, and where they are learnt from, none of the fold
that the outcome is for: towers are fitted without each two folds.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import Ints, places
from mitl.fusion.answered import AnsweredFeatures, AnsweredPairs
from mitl.fusion.evidence import Floats, FusionEvidence
from mitl.fusion.likeness import cosines, group_vectors, main_directions
from mitl.fusion.parts import UNKEPT, Arrays, KeptParts

WIDTH, HIDDEN, DROPPED = 128, 384, 0.6
"""Of the towers: their product's width, the layer before it, and the share of its numbers that each step leaves out."""
EPOCHS, BATCH, RATE, DECAY = 25, 1024, 2e-3, 0.01
SLOWED, ROOT, SMALL = 0.9, 0.999, 1e-8
"""Of Adam."""
START = 1.0
"""Of a known similarity's weight."""
DIRECTIONS, LENGTH = 192, 22.0
"""Main directions of each set of vectors that the towers read, and the root of the mean square length in them."""


def tower_features(
    evidence: FusionEvidence,
    trained: AnsweredPairs,
    pair_folds: NDArray[np.int16],
    count: int,
    seed: int,
    parts: KeptParts = UNKEPT,
) -> AnsweredFeatures:
    """The log-odds by towers; none where one of the sides has no vectors.

    A pair's own ones are the mean of the towers without its fold and another; those to learn from outside a fold are of
    the towers without the pair's and this one.
    """
    tables, pairs = read(evidence)
    every = list(combinations(range(count), 2))
    if not all(table.shape[1] for table in tables):
        parts.advance(len(every))
        shapes = (len(evidence.pairs), 0), (len(trained.rows), count, 0)
        return AnsweredFeatures((), *(np.empty(shape, np.float32) for shape in shapes))
    of = pair_folds[trained.rows]
    own = np.zeros((len(evidence.pairs), 1), np.float32)
    training = np.zeros((len(trained.rows), count, 1), np.float32)

    def without(two: tuple[int, int]) -> Arrays:
        seen = ~np.isin(of, two)
        towers = Towers(*tables, pairs.similarities.shape[1], seed)
        towers.learn(pairs.rows(trained.rows[seen]), trained.yes[seen], trained.no[seen])
        rows = np.flatnonzero(np.isin(pair_folds, two))
        return {"rows": rows, "odds": towers.log_odds(pairs.rows(rows)).astype(np.float32)}

    def kept(two: tuple[int, int]) -> Arrays:
        return parts.kept("towers-{}-{}".format(*two), lambda: without(two))

    with ThreadPoolExecutor(min(len(every), os.cpu_count() or 1)) as pool:
        for two, part in zip(every, pool.map(kept, every), strict=True):
            rows, odds = part["rows"], part["odds"]
            own[rows, 0] += odds / (count - 1)
            at = places(rows, trained.rows)
            for fold, other in (two, two[::-1]):
                mine = of == other
                training[mine, fold, 0] = odds[at[mine]]
            parts.advance(1)
    return AnsweredFeatures(("towers.log_odds",), own, training)


def read(evidence: FusionEvidence) -> tuple[tuple[Floats, Floats], Pairs]:
    """What towers are given: numbers of each image and of each caption, and the ranked pairs.

    An image has those of its picture and the mean of its own captions; each annotator's cosine is a known similarity.
    """
    images, captions = np.unique(evidence.images), np.unique(evidence.pair_captions)
    pictures = [vectors.of(images) for vectors in evidence.pictures]
    pictures += [group_vectors(evidence.own, vectors).of(images) for vectors in evidence.texts]
    similarities = np.empty((len(evidence.pairs), len(evidence.joint)), np.float32)
    for column, joint in zip(similarities.T, evidence.joint, strict=True):
        column[:] = cosines(joint, evidence)
    pairs = Pairs(places(images, evidence.images), places(captions, evidence.pair_captions), similarities)
    return (_table(pictures), _table([vectors.of(captions) for vectors in evidence.texts])), pairs


def _table(sets: list[Floats]) -> Floats:
    """(N, D) the main directions of each set of vectors."""
    columns = [np.empty((len(sets[0]) if sets else 0, 0), np.float32)]
    for rows in sets:
        turned = main_directions(rows, DIRECTIONS)
        length = math.sqrt(float((turned**2).sum()) / len(turned)) or 1.0
        columns.append((turned * (LENGTH / length)).astype(np.float32))
    return np.concatenate(columns, axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """n pairs as the towers read them."""

    images: Ints
    """(n,) rows of the images' table."""
    captions: Ints
    similarities: Floats
    """(n, S) that are known beside the tables."""

    def rows(self, chosen: Ints) -> Pairs:
        """Some of them."""
        return Pairs(self.images[chosen], self.captions[chosen], self.similarities[chosen])


class Towers:
    """Log-odds of a match: the product of an image's and a caption's tower, a bias of each, and known similarities.

    Args:
        images: (I, D) numbers of each image.
        captions: (C, E) of each caption.
        similarities: how many are known of a pair.
        seed: of the weights and of what each step leaves out.
    """

    def __init__(self, images: Floats, captions: Floats, similarities: int, seed: int) -> None:
        self._tables = images, captions
        self._rng = np.random.default_rng(seed)
        widths = [table.shape[1] for table in self._tables]
        self._flat = np.empty(sum(_Tower.size(width) for width in widths) + similarities, np.float32)
        self._slope = np.zeros_like(self._flat)
        self._towers, self._known = _laid_out(self._flat, widths)
        self._tower_slopes, self._known_slope = _laid_out(self._slope, widths)
        for tower in self._towers:
            for weight, bias in (tower[:2], tower[2:]):
                bound = 1 / math.sqrt(len(weight))
                for parameter in (weight, bias):
                    parameter[...] = self._rng.uniform(-bound, bound, parameter.shape)
        self._known[...] = START

    def learn(self, pairs: Pairs, yes: NDArray[np.float64], no: NDArray[np.float64]) -> None:
        """Fit to the log-likelihood of answers, by AdamW with a rate that falls along a cosine.

        Source: Loshchilov and Hutter, Decoupled weight decay regularization, ICLR 2019.
        """
        if not len(yes):
            return
        total = yes + no
        share, weight = (yes / total).astype(np.float32), (total / total.mean()).astype(np.float32)
        mean, square = np.zeros_like(self._flat), np.zeros_like(self._flat)
        count = math.ceil(len(yes) / BATCH)
        for step, rows in enumerate(self._batches(len(yes), count), start=1):
            self._descend(pairs.rows(rows), share[rows], weight[rows])
            rate = RATE * (0.5 + 0.5 * math.cos(math.pi * (step - 1) / (EPOCHS * count)))
            mean += (1 - SLOWED) * (self._slope - mean)
            square += (1 - ROOT) * (self._slope**2 - square)
            self._flat *= 1 - rate * DECAY
            root = np.sqrt(square / (1 - ROOT**step)) + SMALL
            self._flat -= rate / (1 - SLOWED**step) * mean / root

    def log_odds(self, pairs: Pairs) -> NDArray[np.float64]:
        """(n,) of a match."""
        left, right = (tower(table)[1] for tower, table in zip(self._towers, self._tables, strict=True))
        odds = np.empty(len(pairs.images))
        for start in range(0, len(odds), 16 * BATCH):
            part = slice(start, start + 16 * BATCH)
            a, b = left[pairs.images[part]], right[pairs.captions[part]]
            odds[part] = _joined(a, b) + pairs.similarities[part] @ self._known
        return odds

    def _batches(self, n: int, count: int) -> Iterator[Ints]:
        for _ in range(EPOCHS):
            yield from np.array_split(self._rng.permutation(n), count)

    def _descend(self, pairs: Pairs, share: Floats, weight: Floats) -> None:
        """Lay the slope of a batch's loss out."""
        rows = [table[at] for table, at in zip(self._tables, (pairs.images, pairs.captions), strict=True)]
        kept = [
            (self._rng.random((len(share), HIDDEN), np.float32) >= DROPPED).astype(np.float32)
            / np.float32(1 - DROPPED)
            for _ in rows
        ]
        sides = [tower(*read) for tower, *read in zip(self._towers, rows, kept, strict=True)]
        odds = _joined(sides[0][1], sides[1][1]) + pairs.similarities @ self._known
        slope = (weight * (1 / (1 + np.exp(-odds.clip(-30, 30))) - share) / len(share)).astype(np.float32)
        self._known_slope[...] = slope @ pairs.similarities
        for side, (hidden, _) in enumerate(sides):
            other = sides[1 - side][1]
            of_product = slope[:, None] * other[:, :WIDTH] / math.sqrt(WIDTH)
            out = np.concatenate([of_product, slope[:, None]], axis=1)
            back = (out @ self._towers[side].second.T) * kept[side] * (hidden > 0)
            slopes = self._tower_slopes[side]
            slopes.first[...], slopes.first_bias[...] = rows[side].T @ back, back.sum(axis=0)
            slopes.second[...], slopes.second_bias[...] = hidden.T @ out, out.sum(axis=0)


class _Tower(NamedTuple):
    """The weights of one side, or their slopes."""

    first: Floats
    first_bias: Floats
    second: Floats
    second_bias: Floats

    @staticmethod
    def size(width: int) -> int:
        """Numbers of a tower over a table of this width."""
        return (width + 1) * HIDDEN + (HIDDEN + 1) * (WIDTH + 1)

    def __call__(self, rows: Floats, kept: Floats | None = None) -> tuple[Floats, Floats]:
        """(n, HIDDEN) and (n, WIDTH + 1)."""
        hidden: Floats = np.maximum(rows @ self.first + self.first_bias, 0)
        if kept is not None:
            hidden *= kept
        return hidden, hidden @ self.second + self.second_bias


def _laid_out(flat: Floats, widths: Sequence[int]) -> tuple[list[_Tower], Floats]:
    """Views: a tower for each width, and what is left."""
    towers = []
    for width in widths:
        shapes = (width, HIDDEN), (HIDDEN,), (HIDDEN, WIDTH + 1), (WIDTH + 1,)
        *parts, flat = np.split(flat, np.cumsum([math.prod(shape) for shape in shapes]))
        towers.append(_Tower(*(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))))
    return towers, flat


def _joined(left: Floats, right: Floats) -> Floats:
    odds: Floats = (
        np.einsum("nd,nd->n", left[:, :WIDTH], right[:, :WIDTH]) / math.sqrt(WIDTH)
        + left[:, WIDTH]
        + right[:, WIDTH]
    )
    return odds
