"""Features within a side: how like a caption is to the image's own, and an image to the caption's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import Ints, places
from mitl.fusion.evidence import Floats, FusionEvidence, Joint, OwnCaptions, UnitVectors, of_length_1

NEIGHBOURS = 10
"""Nearest items that say how crowded it is around an item."""
DIRECTIONS = 32
"""Main directions of a side that models see."""
_CELLS = 1 << 24
"""Similarities held at once."""


def text_features(evidence: FusionEvidence) -> tuple[list[str], Floats]:
    """Names, and (n, F): by each encoder the cosine of the caption with the image's own captions.

    ``own_most`` and ``own_mean`` leave the caption itself out, as a pair of an image with its own caption would else
    compare it with itself; ``groups`` compares the mean of the image's captions with that of the caption's.
    NaN where nothing is left to compare with.
    """
    names: list[str] = []
    columns: list[Floats] = []
    for vectors in evidence.texts:
        names += [f"{vectors.name}.{what}" for what in ("own_most", "own_mean", "groups")]
        means = group_vectors(evidence.own, vectors)
        cosine: Floats = np.einsum("nd,nd->n", means.of(evidence.images), means.of(evidence.groups))
        columns += [*_with_own(evidence, vectors), cosine]
    if evidence.words:
        names += ["words.uncovered", "words.rarest_uncovered", "words.length"]
        columns += list(_uncovered(evidence))
    return names, _stacked(columns, len(evidence.pairs))


def picture_features(evidence: FusionEvidence) -> tuple[list[str], Floats]:
    """Names, and (n, F): the cosine of the image with the caption's own image, by each encoder."""
    names = [f"{vectors.name}.image" for vectors in evidence.pictures]
    columns = [
        np.einsum("nd,nd->n", vectors.of(evidence.images), vectors.of(evidence.groups))
        for vectors in evidence.pictures
    ]
    return names, _stacked(columns, len(evidence.pairs))


def joint_features(evidence: FusionEvidence) -> tuple[list[str], Floats]:
    """Names, and (n, F): each annotator's cosine of every ranked pair, less how near either side is to its nearest.

    So there is a number also where the annotator ranks neither for the other, and an item that is near to everything
    is nearer to nothing. Source of the difference: Lample et al., Word translation without parallel data, ICLR 2018
    (cross-domain similarity local scaling).
    """
    names: list[str] = []
    columns: list[Floats] = []
    for joint in evidence.joint:
        cosine = cosines(joint, evidence)
        of_images, of_captions = _crowding(joint)
        images = of_images[places(joint.images.ids, evidence.images)]
        captions = of_captions[places(joint.captions.ids, evidence.pair_captions)]
        names += [f"{joint.images.name}.{what}" for what in ("cosine", "above_image", "above_caption")]
        columns += [cosine, cosine - images, cosine - captions]
    if evidence.joint:
        names += ["joint.above_image", "joint.above_caption", "joint.least"]
        scaled = [column / (float(column.std()) or 1.0) for column in columns]
        columns += [np.mean(scaled[1::3], axis=0), np.mean(scaled[2::3], axis=0)]
        columns.append(np.min([a + b for a, b in zip(scaled[1::3], scaled[2::3], strict=True)], axis=0))
    return names, _stacked(columns, len(evidence.pairs))


@dataclass(frozen=True, slots=True, eq=False)
class Directions:
    """Where items lie: the main directions of images, by pictures and by their captions, and of captions.

    From these a model learns what people look at, of which cosines of whole vectors say nothing. They are kept by
    item, since a row for each pair would be longer than all other features.
    """

    images: Floats
    """(I, D)."""
    captions: Floats
    """(C, D)."""
    image_at: Ints
    """(n,) row of each pair's image."""
    caption_at: Ints

    @classmethod
    def of(cls, evidence: FusionEvidence) -> Directions:
        """``DIRECTIONS`` of each side, or as many as its vectors have; none where there are no vectors."""
        items = np.unique(np.concatenate([evidence.images, evidence.own.images]))
        of_images = [vectors.of(items) for vectors in evidence.pictures]
        of_images += [group_vectors(evidence.own, vectors).of(items) for vectors in evidence.texts]
        of_captions = [vectors.of(evidence.captions) for vectors in evidence.texts]
        return cls(
            _main(of_images, len(items)),
            _main(of_captions, len(evidence.captions)),
            places(items, evidence.images),
            places(evidence.captions, evidence.pair_captions),
        )

    @property
    def names(self) -> list[str]:
        """Of the features."""
        sides = (("image", self.images), ("caption", self.captions))
        return [f"{side}.direction{n}" for side, rows in sides for n in range(rows.shape[1])]

    def rows(self, chosen: Ints) -> Floats:
        """(m, F) of these pairs."""
        return np.concatenate(
            [self.images[self.image_at[chosen]], self.captions[self.caption_at[chosen]]], axis=1
        )


def _main(blocks: list[Floats], count: int) -> Floats:
    """(N, D) the items' places along the directions in which they differ most, each of variance 1."""
    if not blocks:
        return np.empty((count, 0), np.float32)
    turned = main_directions(np.concatenate(blocks, axis=1), DIRECTIONS)
    scaled: Floats = (turned / np.maximum(turned.std(axis=0), 1e-6)).astype(np.float32)
    return scaled


def main_directions(rows: Floats, count: int) -> Floats:
    """(N, D) the rows' places along the directions in which they differ most, ``count`` at most, from their middle."""
    centred = rows - rows.mean(axis=0)
    scale, axes = np.linalg.eigh((centred.T @ centred).astype(np.float64))
    kept = axes[:, scale > max(scale[-1] * 1e-6, 0)][:, -count:]
    # The sign of an axis is the solver's whim.
    kept = kept * np.sign(kept[np.abs(kept).argmax(axis=0), np.arange(kept.shape[1])])
    turned: Floats = centred @ kept.astype(np.float32)
    return turned


def _stacked(columns: list[Floats], count: int) -> Floats:
    return np.stack(columns, axis=1).astype(np.float32) if columns else np.empty((count, 0), np.float32)


def _with_own(evidence: FusionEvidence, vectors: UnitVectors) -> tuple[Floats, Floats]:
    """(n,) the greatest and the mean cosine with the image's own captions, the caption itself left out."""
    most, mean = (np.full(len(evidence.pairs), np.nan, np.float32) for _ in range(2))
    for rows, captions in with_own_captions(evidence):
        cosine = vectors.of(evidence.pair_captions[rows]) @ vectors.of(captions).T
        other = evidence.pair_captions[rows][:, None] != captions
        count = other.sum(axis=1)
        some = count > 0
        most[rows[some]] = np.where(other, cosine, -np.inf)[some].max(axis=1)
        mean[rows[some]] = (np.where(other, cosine, 0).sum(axis=1) / np.maximum(count, 1))[some]
    return most, mean


def with_own_captions(evidence: FusionEvidence) -> Iterator[tuple[Ints, Ints]]:
    """The places of each image's pairs, and the image's own captions; images without captions are left out."""
    firsts = np.flatnonzero(np.diff(evidence.images, prepend=-1))
    for start, stop in zip(firsts, np.append(firsts[1:], len(evidence.images)), strict=True):
        captions = evidence.own.of_image(int(evidence.images[start]))
        if len(captions):
            yield np.arange(start, stop), captions


def group_vectors(own: OwnCaptions, vectors: UnitVectors) -> UnitVectors:
    """Each image's mean caption, of unit length; zero where it has none that says anything."""
    if not len(own.captions):
        return UnitVectors(vectors.name, own.images, np.empty((0, vectors.rows.shape[1]), np.float32))
    sums = np.add.reduceat(vectors.of(own.captions), own.starts[:-1], axis=0)
    return UnitVectors(vectors.name, own.images, of_length_1(sums))


def _uncovered(evidence: FusionEvidence) -> Iterator[Floats]:
    """(n,) share of the caption's words, by rarity, that no other caption of the image has; the rarest; how many."""
    number: dict[str, int] = {}
    of_caption = [
        np.array(sorted({number.setdefault(word, len(number)) for word in words}), np.int64)
        for words in evidence.words
    ]
    n_captions = np.bincount(np.concatenate([*of_caption, np.empty(0, np.int64)]), minlength=len(number))
    rarity = np.log((1 + len(of_caption)) / (1 + n_captions))
    share, rarest, length = (np.full(len(evidence.pairs), np.nan, np.float32) for _ in range(3))
    at = places(evidence.captions, evidence.pair_captions)
    for rows, captions in with_own_captions(evidence):
        told = np.zeros(len(number), np.int64)
        own_at = places(evidence.captions, captions)
        for caption in own_at:
            told[of_caption[caption]] += 1
        for row in rows:
            words = of_caption[at[row]]
            if not len(words):
                continue
            itself = int(at[row] in own_at)
            lacking = rarity[words] * (told[words] <= itself)
            share[row] = lacking.sum() / max(float(rarity[words].sum()), 1e-9)
            rarest[row], length[row] = lacking.max(), len(words)
    yield from (share, rarest, length)


def cosines(joint: Joint, evidence: FusionEvidence) -> Floats:
    """(n,) cosine of the image and the caption of each ranked pair, in blocks."""
    cosine: Floats = np.concatenate(
        [
            np.einsum(
                "nd,nd->n",
                joint.images.of(evidence.images[rows]),
                joint.captions.of(evidence.pair_captions[rows]),
            )
            for rows in _blocks(len(evidence.pairs), joint.images.rows.shape[1])
        ]
    )
    return cosine


def _crowding(joint: Joint) -> tuple[Floats, Floats]:
    """(I,) and (C,) mean cosine with the nearest items of the other side."""
    sides = joint.images.rows, joint.captions.rows
    means = []
    for queries, gallery in (sides, sides[::-1]):
        k = min(NEIGHBOURS, len(gallery))
        nearest = [
            np.partition(queries[rows] @ gallery.T, len(gallery) - k, axis=1)[:, -k:].mean(axis=1)
            for rows in _blocks(len(queries), len(gallery))
        ]
        means.append(np.concatenate(nearest))
    return means[0], means[1]


def _blocks(count: int, width: int) -> Iterator[NDArray[np.int64]]:
    step = max(1, _CELLS // max(1, width))
    for start in range(0, count, step):
        yield np.arange(start, min(start + step, count))
