"""Which answers may speak for which pair, so that nothing judges itself, and the features that they make.

A pair joins two groups: its image, with the captions written for it, and the image that its caption was written for,
with that one's captions. All pairs of the same two groups are one cell: they say nearly the same (a caption's
paraphrases, and both ways round), so a cell is never divided among folds. Folds of whole queries cannot be had with
two directions: over captions that several images share, all queries hang together, and what is left after both groups
of a pair are taken out of the training is a third of the answers. So a pair's probability may rest on answers about
its image with other groups, and about its caption with other images, as it may when people are asked about a part of
a query's pairs.

Features are of what people said so far of other pairs: of the same image's captions, and of the same caption's images.
For a pair only answers outside a fold, and outside its own cell, are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import Ints, places, unpack_ids
from mitl.fusion.evidence import Floats, FusionEvidence, UnitVectors
from mitl.proposals.sampling import draw_below

FOLDS = 4


def cells(images: Ints, groups: Ints) -> Ints:
    """(n,) one number for each two groups that a pair joins, in whichever order."""
    return np.asarray(np.minimum(images, groups) << 32 | np.maximum(images, groups))


def folds(images: Ints, groups: Ints, seed: int, count: int = FOLDS) -> NDArray[np.int16]:
    """(n,) the fold of each pair, by its cell alone: no other pair and no answer changes it."""
    numbers, at = np.unique(cells(images, groups), return_inverse=True)
    drawn = [draw_below(count, seed, "fusion folds", number) for number in numbers.tolist()]
    return np.array(drawn, np.int16)[at]


SHARPNESS = 10.0
"""How fast an answer loses its say with the cosine: by e for every tenth."""
PRIOR = 0.2
"""Answers on a wholly alike item that the general share of matches is worth."""
LEAST = -1.0
"""Likeness to accepted or refused items where there are none."""


@dataclass(frozen=True, slots=True, eq=False)
class Said:
    """Answered pairs with all that decides whose features they may enter."""

    images: Ints
    captions: Ints
    cells: Ints
    folds: NDArray[np.int16]
    yes: NDArray[np.float64]
    no: NDArray[np.float64]

    @classmethod
    def of(cls, evidence: FusionEvidence, folds: NDArray[np.int16]) -> Said:
        """The evidence's answers; ``folds`` in their order."""
        answers = evidence.answers
        images, captions = unpack_ids(answers["pair"].to_numpy())
        said_cells = cells(images, evidence.group_of(captions))
        return cls(images, captions, said_cells, folds, answers["yes"].to_numpy(), answers["no"].to_numpy())

    def share(self, fold: int) -> float:
        """The share of matches among the answers outside a fold."""
        seen = self.folds != fold
        yes, no = float(self.yes[seen].sum()), float(self.no[seen].sum())
        return yes / (yes + no) if yes + no else 0.5


@dataclass(frozen=True, slots=True, eq=False)
class AnsweredPairs:
    """The ranked pairs that people answered."""

    rows: Ints
    """(a,) places among the ranked pairs."""
    yes: NDArray[np.float64]
    no: NDArray[np.float64]

    @classmethod
    def of(cls, evidence: FusionEvidence) -> AnsweredPairs:
        """Those among the evidence's answers."""
        at = places(evidence.pairs, evidence.answers["pair"].to_numpy())
        ranked = at >= 0
        said = (evidence.answers[name].to_numpy()[ranked] for name in ("yes", "no"))
        return cls(at[ranked], *said)


@dataclass(frozen=True, eq=False)
class AnsweredFeatures:
    """Features of answers for pairs and a fold whose answers they must not read."""

    names: tuple[str, ...]
    own: Floats
    """(n, F) of each pair, without the answers of its own fold."""
    training: Floats
    """(a, K, F) of each answered ranked pair, without the answers of each fold."""


def answered_features(
    evidence: FusionEvidence, said: Said, pair_folds: NDArray[np.int16], answered: Ints, count: int
) -> AnsweredFeatures:
    """Features of the answers on the pair's image and on its caption.

    Args:
        pair_folds: (n,) of the ranked pairs.
        answered: (a,) places of the ranked pairs that are trained on.
        count: how many folds there are.
    """
    sides = (
        _Side("image", evidence.images, evidence.pair_captions, said.images, said.captions, evidence.texts),
        _Side(
            "caption", evidence.pair_captions, evidence.images, said.captions, said.images, evidence.pictures
        ),
    )
    pair_cells = cells(evidence.images, evidence.groups)
    row_of = np.full(len(evidence.pairs), -1)
    row_of[answered] = np.arange(len(answered))
    names = tuple(name for side in sides for name in side.names)
    own = np.empty((len(evidence.pairs), len(names)), np.float32)
    training = np.empty((len(answered), count, len(names)), np.float32)
    shares = [said.share(fold) for fold in range(count)]
    first = 0
    for side in sides:
        part = slice(first, first + len(side.names))
        first = part.stop
        for rows, heard in side.shared():
            likes = side.likeness(rows, heard)
            for fold in range(count):
                chosen = (pair_folds[rows] == fold) | (row_of[rows] >= 0)
                at = rows[chosen]
                if not len(at):
                    continue
                readable = (said.folds[heard] != fold) & (said.cells[heard] != pair_cells[at][:, None])
                features = _features(
                    [like[chosen] for like in likes],
                    readable,
                    said.yes[heard],
                    said.no[heard],
                    shares[fold],
                )
                is_own = pair_folds[at] == fold
                own[at[is_own], part] = features[is_own]
                trained = row_of[at]
                training[trained[trained >= 0], fold, part] = features[trained >= 0]
    return AnsweredFeatures(names, own, training)


@dataclass(frozen=True, eq=False)
class _Side:
    """Pairs and answers that share the item of one side, and how alike their items of the other are."""

    name: str
    shared_item: Ints
    """(n,) of the ranked pairs."""
    other: Ints
    said_shared: Ints
    """(m,) of the answers."""
    said_other: Ints
    encoders: Sequence[UnitVectors]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the features, in order."""
        by = [
            f"{vectors.name}.{what}" for vectors in self.encoders for what in ("share", "yes", "no", "nearer")
        ]
        return tuple(f"said.{self.name}.{name}" for name in ("share", *by))

    def shared(self) -> Iterator[tuple[Ints, Ints]]:
        """Of each item: the places of its pairs, and those of its answers."""
        order = np.argsort(self.shared_item, kind="stable")
        heard = np.argsort(self.said_shared, kind="stable")
        rising, asked = self.shared_item[order], self.said_shared[heard]
        firsts = np.flatnonzero(np.diff(rising, prepend=-1))
        ends = np.append(firsts[1:], len(rising))
        low, high = (np.searchsorted(asked, rising[firsts], side=side) for side in ("left", "right"))
        for start, end, begin, stop in zip(firsts, ends, low, high, strict=True):
            yield order[start:end], heard[begin:stop]

    def likeness(self, rows: Ints, heard: Ints) -> list[Floats]:
        """By each encoder (rows, heard) cosines of the other items."""
        return [
            vectors.of(self.other[rows]) @ vectors.of(self.said_other[heard]).T for vectors in self.encoders
        ]


def _features(
    likes: Sequence[Floats],
    readable: NDArray[np.bool_],
    yes: NDArray[np.float64],
    no: NDArray[np.float64],
    share: float,
) -> NDArray[np.float64]:
    """(rows, F): share of matches, plain and weighted by likeness, less the general one; the nearest of each kind."""
    columns = [_share(readable.astype(np.float64), yes, no, share, 2.0)]
    for like in likes:
        columns.append(_share(np.exp(SHARPNESS * (like - 1)) * readable, yes, no, share, PRIOR))
        nearest = [
            np.where(readable & kind, like, LEAST).max(axis=1, initial=LEAST) for kind in (yes > no, no > yes)
        ]
        columns += [*nearest, nearest[0] - nearest[1]]
    return np.stack(columns, axis=1)


def _share(
    weight: NDArray[np.float64], yes: NDArray[np.float64], no: NDArray[np.float64], share: float, prior: float
) -> NDArray[np.float64]:
    """(rows,) how far the weighted share of yes lies above the general one, drawn towards it."""
    total = weight @ (yes + no)
    above: NDArray[np.float64] = (weight @ yes - share * total) / (total + prior)
    return above
