"""Pseudo-labels of image-caption pairs: how like a caption is to the captions that were written for the image.

Source: Li et al., Image-Text Retrieval with Binary and Continuous Label Supervision, section III-A: the label of
an image and a caption is the similarity of the image's own caption with it. The paper names one own caption; COCO has
five.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.metrics.positives import Ids, Places, Positives

_PAIRS = 4096
"""Pairs looked at in one go."""


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
    known = Places.of(texts[0], "captions with embeddings")
    images = (
        Places.of(captions_of.query_ids, "images with captions").need(image_ids, "the pairs").astype(np.int64)
    )
    wanted = known.need(caption_ids, "the pairs").astype(np.int64)
    own = known.need(captions_of.item_ids, "the images' captions").astype(np.int64)
    labels = np.empty(len(wanted))
    for start in range(0, len(labels), _PAIRS):
        part = slice(start, start + _PAIRS)
        labels[part] = _pooled(images[part], wanted[part], own, texts[1], captions_of, pooling, itself=itself)
    return labels


def _pooled(
    images: Ids,
    wanted: Ids,
    own: Ids,
    embeddings: NDArray[Any],
    captions_of: Positives,
    pooling: Pooling,
    *,
    itself: bool,
) -> NDArray[np.float64]:
    counts = captions_of.counts[images]
    starts = np.concatenate([[0], np.cumsum(counts)])
    pair = np.repeat(np.arange(len(images)), counts)  # (C,) the pair of each comparison
    other = own[np.arange(starts[-1]) + np.repeat(captions_of.offsets[images] - starts[:-1], counts)]
    compared = np.full(len(pair), True) if itself else other != wanted[pair]
    pair, other = pair[compared], other[compared]
    left = np.bincount(pair, minlength=len(images))
    if not left.all():
        image = captions_of.query_ids[images[left.argmin()]]
        raise MetricError(f"image {image} has no caption to compare with; leave its pairs out")
    near = _cosines(embeddings[other], embeddings[wanted[pair]])
    firsts = np.concatenate([[0], np.cumsum(left)[:-1]])
    if pooling is Pooling.MAX:
        return np.asarray(np.maximum.reduceat(near, firsts), dtype=np.float64)
    return np.asarray(np.add.reduceat(near, firsts) / left, dtype=np.float64)


def _cosines(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.float64]:
    products, *squares = (
        np.einsum("cd,cd->c", left, right, dtype=np.float64)
        for left, right in ((one, other), (one, one), (other, other))
    )
    if not (np.minimum(*squares) > 0).all():
        raise MetricError("an embedding is zero or holds something that is no number, so it has no cosine")
    return np.asarray(np.round(products / np.sqrt(squares[0] * squares[1]), 6), dtype=np.float64)
