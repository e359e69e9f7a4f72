"""Which pairs are rated for their likeness: CxC's sampling on arrays.

Likeness within one side is sampled by the other side (*other-modality* sampling): images whose captions are alike, and
captions whose images are alike, so that what people see is not alike by construction. Co-captions come on top, and
what people said of those pairs decides which captions are compared with which images.

Numbers of items are within their side. Every draw is by hash of the seed and the items (``mitl.proposals.sampling``),
so none depends on the order of rows or on the machine.
Source: Parekh et al., Crisscrossed Captions, EACL 2021, section 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from annotators.base import Ranking
from mitl.core.arrays import Ints, pack_ids
from mitl.proposals.sampling import draw_below, draw_key, shuffled
from mitl.records.frames import Schema, frame
from mitl.records.similarity import METHODS, SAMPLES, TASKS, SamplingMethod

NEIGHBOURS = 5
"""Most similar items that each item brings (section 2)."""

NEAREST: Schema = {
    "first": ("int64", "the item that chose the other; images on both sides"),
    "second": ("int64", "the item that was chosen"),
    "rank": ("int32", "of the second among the first one's neighbours, from 1"),
    "similarity": ("float64", "the encoder's"),
}
"""Pairs of images that lie near each other, each once, by the first one and rank."""

RATED: Schema = {
    "first": ("int64", "image of the item that chose the other"),
    "second": ("int64", "image of the item that was chosen"),
    "score": ("float64", "what people said of the two, 0 to 5"),
}
"""Pairs of images, or of captions seen as pairs of their images, with their rating."""


@dataclass(frozen=True, slots=True, eq=False)
class CaptionGroups:
    """The captions of each image, its co-captions."""

    images: Ints
    """(G,) rising; also images without a caption."""
    captions: Ints
    """(C,) by image, then rising."""
    starts: Ints
    """(G + 1,) where each image's captions begin."""

    @classmethod
    def of(cls, images: Sequence[int], captions: Sequence[int], image_of: Sequence[int]) -> CaptionGroups:
        """From all images, all captions and the image of each caption; every such image must be there."""
        order = np.lexsort((np.asarray(captions, np.int64), np.asarray(image_of, np.int64)))
        rising = np.unique(np.asarray(images, np.int64))
        owners = np.asarray(image_of, np.int64)[order]
        starts = np.searchsorted(owners, np.append(rising, np.iinfo(np.int64).max))
        assert np.isin(owners, rising).all()
        return cls(rising, np.asarray(captions, np.int64)[order], starts.astype(np.int64))

    @property
    def sizes(self) -> Ints:
        """(G,) captions of each image."""
        return np.diff(self.starts)

    @property
    def image_of(self) -> Ints:
        """(C,) the image of each of ``captions``."""
        return np.repeat(self.images, self.sizes)

    def of_image(self, image: int) -> list[int]:
        """An image's captions, rising."""
        place = int(np.searchsorted(self.images, image))
        numbers: list[int] = self.captions[self.starts[place] : self.starts[place + 1]].tolist()
        return numbers


def group_means(vectors: NDArray[np.floating], sizes: Ints) -> NDArray[np.float32]:
    """(G, D) unit means of consecutive groups of rows, none of them empty; a mean of length 0 stays zero.

    Args:
        vectors: (C, D), the captions of one image after the other.
        sizes: (G,) how many rows each group has, 1 at least.
    """
    assert sizes.sum() == len(vectors) and (sizes > 0).all()
    if not len(sizes):
        return np.empty((0, vectors.shape[1]), np.float32)
    starts = np.cumsum(sizes) - sizes
    sums = np.add.reduceat(vectors.astype(np.float64), starts, axis=0)
    length = np.linalg.norm(sums, axis=1, keepdims=True)
    unit: NDArray[np.float64] = sums / np.where(length > 0, length, 1.0)
    return unit.astype(np.float32)


def nearest(ranking: Ranking, neighbours: int) -> pd.DataFrame:
    """Each item's nearest others as pairs (``NEAREST``), two that chose each other only once.

    Such a pair keeps the order in which it ranks better, at equal ranks that of the smaller number first. CxC too has
    19,045 rows for the test split's 25,000 choices among images.

    Args:
        ranking: the items among themselves, ``neighbours`` + 1 deep, or as deep as there are items.
    """
    query_ids, item_ids = ranking.query_ids, ranking.item_ids
    is_other = item_ids != query_ids[:, None]
    # Among many equal items one may not be in its own list; then the last one is one too many.
    place = np.cumsum(is_other, axis=1)
    kept = is_other & (place <= neighbours)
    first = np.repeat(query_ids, kept.sum(axis=1))
    second, rank, similarity = item_ids[kept], place[kept], ranking.similarities[kept]
    pair = pack_ids(np.minimum(first, second), np.maximum(first, second))
    better = np.lexsort((first, rank, pair))
    once = better[np.append(True, pair[better][1:] != pair[better][:-1])] if len(pair) else better
    rows = once[np.lexsort((rank[once], first[once]))]
    return frame(
        NEAREST,
        {
            "first": first[rows],
            "second": second[rows],
            "rank": rank[rows],
            "similarity": similarity[rows],
        },
    )


def image_pairs(near: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Image pairs by each encoder of captions: ``SAMPLES`` without ``pair``.

    Args:
        near: encoder → ``NEAREST`` of the images by their captions.
    """
    return joined(
        [_samples(SamplingMethod.I2I_CSIM, pairs, encoder=encoder) for encoder, pairs in near.items()]
    )


def caption_pairs(near: Mapping[str, pd.DataFrame], groups: CaptionGroups, *, seed: int) -> pd.DataFrame:
    """A caption pair for each image pair, by each encoder of images: ``SAMPLES`` without ``pair``.

    Of the image that chose, its captions take turns in a random order, none a second time before all were used, as they
    do in CxC's files; of the other one a caption is drawn. Encoders that chose the same image pair share its captions.
    An image without a caption brings none.

    Args:
        near: encoder → ``NEAREST`` of the images by their pictures.
    """
    drawn: dict[tuple[int, int], tuple[int, int]] = {}
    turns: dict[int, Iterator[int]] = {}
    parts = []
    for encoder, pairs in near.items():
        rows = list(zip(pairs["first"].tolist(), pairs["second"].tolist(), strict=True))
        for pair in rows:
            if pair not in drawn and (captions := _drawn(pair, groups, turns, seed)) is not None:
                drawn[pair] = captions
        chosen = pairs[[pair in drawn for pair in rows]]
        both = np.array([drawn[pair] for pair in rows if pair in drawn], np.int64).reshape(-1, 2)
        chosen = chosen.assign(first=both[:, 0], second=both[:, 1])
        parts.append(_samples(SamplingMethod.C2C_ISIM, chosen, encoder=encoder))
    return joined(parts)


def _drawn(
    pair: tuple[int, int], groups: CaptionGroups, turns: dict[int, Iterator[int]], seed: int
) -> tuple[int, int] | None:
    """A caption of either image; None where one has none."""
    own, others = (groups.of_image(image) for image in pair)
    if not (own and others):
        return None
    turn = turns.setdefault(pair[0], _turns(own, seed))
    return next(turn), others[draw_below(len(others), seed, "caption of a similar image", *pair)]


def _turns(captions: Sequence[int], seed: int) -> Iterator[int]:
    """All captions in a random order, again and again."""
    order = shuffled(captions, seed, "captions take turns")
    while True:
        yield from order


def co_caption_pairs(groups: CaptionGroups, *, seed: int) -> pd.DataFrame:
    """Pairs of captions of one image along a random cycle through them: ``SAMPLES`` without ``pair``.

    So each caption is once first and once second: five of the ten pairs that five captions have, n of n captions. Two
    captions, whose cycle would be the same pair twice, are one pair; a lone caption makes none.
    """
    first, second = [], []
    for image in groups.images[groups.sizes > 1].tolist():
        cycle = shuffled(groups.of_image(image), seed, "co-captions")
        steps = list(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
        for one, other in steps if len(cycle) > 2 else steps[:1]:
            first.append(one)
            second.append(other)
    return _samples(SamplingMethod.C2C_COCAPTION, pd.DataFrame({"first": first, "second": second}))


def original_pairs(groups: CaptionGroups) -> pd.DataFrame:
    """Every image with each of its captions: ``SAMPLES`` without ``pair``."""
    pairs = pd.DataFrame({"first": groups.image_of, "second": groups.captions})
    return _samples(SamplingMethod.C2I_ORIGINAL, pairs)


BY_TEXTS, BY_IMAGES = "ratings of captions", "ratings of images"
"""What stands for the encoder of an image and a caption that people's ratings chose."""


def cross_candidates(
    by_texts: pd.DataFrame,
    by_images: pd.DataFrame,
    groups: CaptionGroups,
    known: pd.DataFrame,
    *,
    n: int,
    seed: int,
) -> pd.DataFrame:
    """Images with captions of images that people found alike to them: ``SAMPLES`` without ``pair``.

    A rated pair (j, k) offers image j with one caption of image k, drawn at random. The best rated ones are taken:
    half of the ``n`` by the ratings of captions, the rest by those of images, skipping what is there; where one of the
    two runs out, the other gives more. ``rank`` is the place in the ranking, ``similarity`` people's score.

    Args:
        by_texts: ``RATED`` caption pairs as pairs of their images; of one image they are left out.
        by_images: ``RATED`` image pairs.
        known: ``SAMPLES`` of this method that there are already; they count among the ``n``.
    """
    taken = {BY_TEXTS: int((known["encoder"] == BY_TEXTS).sum()), BY_IMAGES: 0}
    taken[BY_IMAGES] = len(known) - taken[BY_TEXTS]
    sampled = set(zip(known["first"].tolist(), known["second"].tolist(), strict=True))
    offers = {
        name: _offers(rated, groups, name, seed)
        for name, rated in ((BY_TEXTS, by_texts), (BY_IMAGES, by_images))
    }
    rows: list[tuple[int, int, str, int, float]] = []

    def take(name: str, most: int) -> None:
        for image, caption, rank, score in offers[name] if most > 0 else ():
            if (image, caption) in sampled:
                continue
            sampled.add((image, caption))
            rows.append((image, caption, name, rank, score))
            taken[name] += 1
            most -= 1
            if most == 0:
                return

    take(BY_TEXTS, n // 2 - taken[BY_TEXTS])
    take(BY_IMAGES, n - sum(taken.values()))
    take(BY_TEXTS, n - sum(taken.values()))
    names = ("first", "second", "encoder", "rank", "similarity")
    return _samples(SamplingMethod.C2I_INTRASIM, pd.DataFrame(rows, columns=list(names)))


def _offers(
    rated: pd.DataFrame, groups: CaptionGroups, name: str, seed: int
) -> Iterator[tuple[int, int, int, float]]:
    """Image, caption, rank and score of each rated pair, the best first; equal scores in random order."""
    pairs = [
        (first, second, score)
        for first, second, score in zip(
            *(rated[column].tolist() for column in ("first", "second", "score")), strict=True
        )
        if first != second
    ]
    pairs.sort(key=lambda it: (-it[2], draw_key(seed, f"rank by {name}", it[0], it[1])))
    for rank, (image, other, score) in enumerate(pairs, 1):
        captions = groups.of_image(other)
        if captions:
            yield (
                image,
                captions[draw_below(len(captions), seed, f"caption by {name}", image, other)],
                rank,
                score,
            )


def _samples(method: SamplingMethod, pairs: pd.DataFrame, encoder: str = "") -> pd.DataFrame:
    """``SAMPLES`` without ``pair``; what ``pairs`` lack of it was nobody's choice."""
    defaults: dict[str, Any] = {
        "task": TASKS.index(method.task),
        "method": METHODS.index(method),
        "encoder": encoder,
        "rank": 0,
        "similarity": np.nan,
    }
    columns = {
        name: pairs[name] if name in pairs else [defaults[name]] * len(pairs)
        for name in SAMPLES
        if name != "pair"
    }
    return frame(SAMPLES, {name: np.asarray(column) for name, column in columns.items()})


def joined(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The frames one below the other; their encoders' names stay a category."""
    if not parts:
        return _samples(SamplingMethod.I2I_CSIM, pd.DataFrame({"first": [], "second": []}))
    joined = pd.concat([part.astype({"encoder": "str"}) for part in parts], ignore_index=True)
    return joined.astype({"encoder": "category"})
