"""Continuous labels from a sentence encoder, and how much they err: the spread of captions of one image.

Source: Li et al., Image-Text Retrieval with Binary and Continuous Label Supervision (BCLS), sections III-A and III-D.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mitl.errors import TrainingError

Floats = NDArray[np.float32]


def co_caption_similarities(vectors: Floats, image_of: NDArray[np.int64]) -> NDArray[np.float64]:
    """(P,) cosines of each two captions of one image, once a pair, image by image.

    Args:
        vectors: (C, D) unit rows of a sentence encoder.
        image_of: (C,) the image that each caption was written for.
    """
    order = np.argsort(image_of, kind="stable")
    starts = np.flatnonzero(np.diff(image_of[order])) + 1
    found = [np.empty(0)]
    for rows in np.split(order, starts):
        cosines = vectors[rows].astype(np.float64) @ vectors[rows].astype(np.float64).T
        found.append(cosines[np.triu_indices(len(rows), 1)])
    return np.concatenate(found)


def measured_alpha(vectors: Floats, image_of: NDArray[np.int64]) -> float:
    """The standard deviation of the similarities of co-captions, by which pseudo-labels of one meaning differ.

    Over all pairs of captions of one image, each once, about their common mean: the paper does not say whether it
    is this or the mean of each image's own; on COCO and Flickr30K it found about 0.2.

    Raises:
        TrainingError: fewer than two pairs of captions have a common image.
    """
    cosines = co_caption_similarities(vectors, image_of)
    if len(cosines) < 2:
        raise TrainingError(
            f"{len(cosines)} pairs of captions have an image in common; alpha is their spread, so give images of two "
            "captions or more, or say alpha yourself, such as 0.2"
        )
    return float(cosines.std())


def pseudo_relevance(own: Floats, vectors: Floats, image_of: NDArray[np.int64]) -> Floats:
    """(I, C) how like each caption is to what was written for each image; 1 for own pairs, else at least -1.

    BCLS draws one caption an image, and r(V_i, T_j) is the cosine of T_i and T_j. Here an image is told by the vectors
    of one caption or, averaged over their cosines, of several.

    Args:
        own: (I, K, D) unit rows of K captions of each image.
        vectors: (C, D) unit rows of the captions of the batch.
        image_of: (C,) the row of the image that each of these was written for.
    """
    products = np.einsum("ikd,cd->ick", own.astype(np.float64), vectors.astype(np.float64))
    relevance: Floats = np.clip(products.mean(axis=2), -1, 1).astype(np.float32)
    relevance[np.asarray(image_of) == np.arange(len(own))[:, None]] = 1
    return relevance
