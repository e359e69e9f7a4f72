"""How a model's similarities agree with people's scores of pairs: CxC's sampled Spearman, and Pearson.

Over all rated pairs a plain correlation would mislead, since the pairs of one query are alike. So half of the queries
are drawn, one pair of each, again and again. Source: Parekh et al., Crisscrossed Captions, EACL 2021, section 4.

Where no people's scores are, pseudo-labels tell how like a caption is to the captions that were written for the image.
Source: Li et al., Image-Text Retrieval with Binary and Continuous Label Supervision, section III-A: the label of
an image and a caption is the similarity of the image's own caption with it. The paper names one own caption; COCO has
five.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import Floats, spans
from mitl.core.statistics import percentile_interval
from mitl.errors import MetricError
from mitl.metrics.intervals import Interval, PairedTest
from mitl.metrics.positives import Ids, Places, Positives, integer_ids

_PAIRS = 4096
"""Pairs looked at in one go."""
SAMPLES = 1000
"""CxC's number of bootstrap samples."""


@dataclass(frozen=True, slots=True, eq=False)
class RankedValues:
    """The place of each value (P,) among the ``distinct`` different ones, in rising order."""

    codes: Ids
    distinct: int

    @classmethod
    def of(cls, values: NDArray[Any]) -> RankedValues:
        """Values without NaN."""
        distinct, codes = np.unique(values, return_inverse=True)
        return cls(codes.reshape(-1).astype(np.int64), len(distinct))

    def among(self, places: Ids) -> Floats:
        """(n,) the rank, from 1, of the values at ``places`` among them; equal values share their mean rank."""
        codes = self.codes[places]
        counts = np.bincount(codes, minlength=self.distinct)
        upto = np.cumsum(counts)
        return np.asarray((upto - (counts - 1) / 2)[codes], dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredPairs:
    """Pairs that people rated and a model scored; all are (P,).

    Raises:
        MetricError: the arrays differ in length, a value is not a number, a score is outside ``within``, or there are
            fewer than four queries.
    """

    query_ids: Ids
    similarities: Floats
    scores: Floats
    within: tuple[float, float] = (0.0, 5.0)
    """The lowest and the highest score that there may be; CxC's unless told."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "query_ids", integer_ids(self.query_ids, "query"))
        _check_values(self.similarities, self.scores, self.query_ids)
        low, high = self.within
        strange = np.flatnonzero((self.scores < low) | (self.scores > high))
        if len(strange):
            place = strange[0]
            raise MetricError(
                f"a pair of query {self.query_ids[place]} has the score {self.scores[place]:g}, but scores go from "
                f"{low:g} to {high:g}"
            )
        queries = len(np.unique(self.query_ids))
        if queries < 4:
            raise MetricError(
                f"a sampled correlation takes half of the queries; {queries} are too few, 4 the least"
            )

    def __len__(self) -> int:
        return len(self.query_ids)


@dataclass(frozen=True, slots=True, eq=False)
class SampledCorrelation:
    """Spearman's correlation of each sample, (samples,), -1 to 1."""

    draws: Floats
    n_queries: int
    n_pairs: int

    @property
    def mean(self) -> float:
        """The mean over the samples: the metric."""
        return float(self.draws.mean())

    @property
    def std(self) -> float:
        """The samples' standard deviation, as CxC prints it behind ±."""
        return float(self.draws.std())

    def interval(self, confidence: float = 0.95) -> Interval:
        """The metric with the ends of the samples' middle ``confidence``.

        Half of the queries without replacement vary as all of them would from one set of queries to another.
        Source: Efron, The Jackknife, the Bootstrap and Other Resampling Plans, 1982, chapters 8 and 9.
        """
        low, high = _ends(self.draws, confidence)
        return Interval(self.mean, low, high)


def sampled_spearman(pairs: ScoredPairs, *, samples: int = SAMPLES, seed: int = 0) -> SampledCorrelation:
    """Spearman's correlation over ``samples`` draws of half of the queries with one rated pair each.

    Raises:
        MetricError: ``samples`` is below 1, or a sample's similarities or scores are all equal.
    Source: Parekh et al., Crisscrossed Captions, EACL 2021, section 4.
    """
    return _sampled(pairs, [pairs.similarities], samples, seed)[0]


def paired_spearman(
    one: ScoredPairs, other: ScoredPairs, *, samples: int = SAMPLES, confidence: float = 0.95, seed: int = 0
) -> PairedTest:
    """The sampled Spearman of ``one`` less that of ``other``, on the same samples.

    p is twice the smaller share of samples in which the difference is on the one or the other side of 0, the estimate
    itself counted on both; so it is never 0.

    Args:
        one, other: two models' similarities of the same pairs, in the same order.

    Raises:
        MetricError: the pairs or their scores differ; and as ``sampled_spearman``.
    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 15.
    """
    if not (np.array_equal(one.query_ids, other.query_ids) and np.array_equal(one.scores, other.scores)):
        raise MetricError("the two models score different pairs; give both the same pairs in the same order")
    first, second = _sampled(one, [one.similarities, other.similarities], samples, seed)
    differences = first.draws - second.draws
    low, high = _ends(differences, confidence)
    side = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    p_value = min(1.0, 2 * (1 + side) / (1 + samples))
    return PairedTest(first.mean - second.mean, low, high, p_value, first.n_queries)


def pearson(similarities: NDArray[Any], scores: NDArray[Any]) -> float:
    """Pearson's correlation over all pairs, -1 to 1.

    Raises:
        MetricError: the arrays differ in length, hold fewer than two pairs or something that is not a number, or one is
            constant.
    """
    one, other = np.asarray(similarities, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    _check_values(one, other)
    if len(one) < 2:
        raise MetricError(f"a correlation needs at least two pairs, not {len(one)}")
    # By powers of two, which change no digit: squares of numbers beyond 1e154 are none.
    return _pearson(*(np.ldexp(values, -np.frexp(np.abs(values).max())[1]) for values in (one, other)))


def _sampled(pairs: ScoredPairs, models: list[Floats], samples: int, seed: int) -> list[SampledCorrelation]:
    """Each model's correlations on the same samples."""
    if samples < 1:
        raise MetricError(f"{samples} samples were asked for; CxC takes {SAMPLES}")
    rng = np.random.default_rng(seed)
    order = np.argsort(pairs.query_ids, kind="stable")
    _, starts, counts = np.unique(pairs.query_ids[order], return_index=True, return_counts=True)
    scores, ranked = RankedValues.of(pairs.scores), [RankedValues.of(similarities) for similarities in models]
    draws = np.empty((len(models), samples))
    for sample in range(samples):
        queries = rng.permutation(len(starts))[: len(starts) // 2]
        places = order[starts[queries] + rng.integers(0, counts[queries])]
        drawn_scores = scores.among(places)
        draws[:, sample] = [_pearson(model.among(places), drawn_scores) for model in ranked]
    return [SampledCorrelation(row, len(starts), len(pairs)) for row in draws]


def _pearson(one: Floats, other: Floats) -> float:
    one, other = one - one.mean(), other - other.mean()
    # Sums rather than products of vectors: BLAS would start threads for them, which costs more than it saves.
    scale = float(np.sqrt((one * one).sum() * (other * other).sum()))
    if not scale > 0:
        raise MetricError("all similarities or all scores are equal, so their correlation is undefined")
    return float((one * other).sum()) / scale


def _ends(draws: Floats, confidence: float) -> tuple[float, float]:
    if not 0 < confidence < 1:
        raise MetricError(f"the confidence is {confidence}; it lies between 0 and 1, 0.95 is usual")
    return percentile_interval(draws, confidence)


def _check_values(similarities: Floats, scores: Floats, query_ids: Ids | None = None) -> None:
    lengths = {len(similarities), len(scores)} | ({len(query_ids)} if query_ids is not None else set())
    if len(lengths) > 1 or similarities.ndim != 1 or scores.ndim != 1:
        ids = "" if query_ids is None else f" and {query_ids.shape} query ids"
        raise MetricError(
            f"{similarities.shape} similarities and {scores.shape} scores{ids}; each pair needs one of each"
        )
    for what, values in (("similarity", similarities), ("score", scores)):
        strange = np.flatnonzero(~np.isfinite(values))
        if len(strange):
            whose = "" if query_ids is None else f" of query {query_ids[strange[0]]}"
            raise MetricError(f"the {what} of pair {strange[0] + 1}{whose} is {values[strange[0]]}")


class Pooling(StrEnum):
    """What an image's several captions are made into one by."""

    MAX = "max"
    """The most similar one: an image and its own caption then have 1, as the paper wants it."""
    MEAN = "mean"


def pseudo_labels(
    image_ids: NDArray[Any],
    caption_ids: NDArray[Any],
    texts: tuple[Ids, NDArray[Any]],
    captions_of: Positives,
    *,
    pooling: Pooling = Pooling.MAX,
    itself: bool = True,
) -> NDArray[np.float64]:
    """(P,) the label of each image × caption, from -1 to 1: the cosine of captions, to six decimals.

    The rounding lets equal texts have equal labels, which float32 embeddings would tell apart by chance.

    Args:
        image_ids, caption_ids: (P,) the pairs.
        texts: ids (N,) and embeddings (N, D) of all captions.
        captions_of: the captions of each image, images being its queries.
        itself: whether a caption is compared with itself where it is the image's own. Without that, the label of an
            original pair tells how like it is to the image's other captions.

    Raises:
        MetricError: an image or a caption is unknown, or no caption is left to compare with.
    """
    if len(image_ids) != len(caption_ids):
        raise MetricError(f"{len(image_ids)} images, but {len(caption_ids)} captions; pairs need both")
    captions = Places.of(texts[0], "captions with embeddings")
    images = (
        Places.of(captions_of.query_ids, "images with captions").need(image_ids, "the pairs").astype(np.int64)
    )
    pair_captions = captions.need(caption_ids, "the pairs").astype(np.int64)
    image_captions = captions.need(captions_of.item_ids, "the images' captions").astype(np.int64)
    labels = np.empty(len(pair_captions))
    for start in range(0, len(labels), _PAIRS):
        part = slice(start, start + _PAIRS)
        pair, other = _comparisons(
            images[part], pair_captions[part], image_captions, captions_of, itself=itself
        )
        near = _cosines(texts[1][other], texts[1][pair_captions[part][pair]])
        labels[part] = _pooled(near, np.bincount(pair), pooling)
    return labels


def _comparisons(
    images: Ids, wanted: Ids, own: Ids, captions_of: Positives, *, itself: bool
) -> tuple[Ids, Ids]:
    """(C,) each: a pair, ascending, and a caption of its image that its caption is compared with."""
    counts, starts = captions_of.counts[images], captions_of.offsets[images]
    pair = np.repeat(np.arange(len(images)), counts)  # (C,) the pair of each comparison
    other = own[spans(starts, starts + counts)]
    compared = np.full(len(pair), True) if itself else other != wanted[pair]
    pair, other = pair[compared], other[compared]
    left = np.bincount(pair, minlength=len(images))
    if not left.all():
        image = captions_of.query_ids[images[left.argmin()]]
        raise MetricError(f"image {image} has no caption to compare with; leave its pairs out")
    return pair, other


def _pooled(near: NDArray[np.float64], counts: Ids, pooling: Pooling) -> NDArray[np.float64]:
    """One number of the ``counts`` (P,) cosines of each pair."""
    firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    if pooling is Pooling.MAX:
        return np.asarray(np.maximum.reduceat(near, firsts), dtype=np.float64)
    return np.asarray(np.add.reduceat(near, firsts) / counts, dtype=np.float64)


def _cosines(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.float64]:
    products, *squares = (
        np.einsum("cd,cd->c", left, right, dtype=np.float64)
        for left, right in ((one, other), (one, one), (other, other))
    )
    if not (np.minimum(*squares) > 0).all():
        raise MetricError("an embedding is zero or holds something that is not a number, so it has no cosine")
    return np.asarray(np.round(products / np.sqrt(squares[0] * squares[1]), 6), dtype=np.float64)
