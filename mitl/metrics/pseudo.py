"""A model's similarities against pseudo-labels of a whole gallery, a block of queries at a time.

The label of an image and a caption is how like the caption is to the most similar of the image's own ones; see
``mitl.metrics.correlation.pseudo_labels``, which gives the same of single pairs. Source: Li et al., Image-Text
Retrieval with Binary and Continuous Label Supervision, section III-A and eq. 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import Floats, spans
from mitl.errors import MetricError
from mitl.metrics.graded import kendall_dense
from mitl.metrics.positives import Ids, QueryValues

_CELLS = 1 << 23
"""Cosines of captions held at once: 64 MB."""


@dataclass(frozen=True, slots=True, eq=False)
class CaptionLabels:
    """What labels are made from: unit rows of all captions (C, D), and the place of each one's image (C,).

    Raises:
        MetricError: an image has no caption, or a caption's vector is zero or not finite.
    """

    vectors: Floats
    image_places: Ids
    n_images: int

    def __post_init__(self) -> None:
        lengths = np.linalg.norm(self.vectors, axis=1)
        if not (lengths > 0).all() or not np.isfinite(lengths).all():
            raise MetricError(
                "an embedding is zero or holds something that is not a number, so it has no cosine"
            )
        object.__setattr__(self, "vectors", self.vectors.astype(np.float64) / lengths[:, None])
        empty = np.flatnonzero(np.bincount(self.image_places, minlength=self.n_images) == 0)
        if len(empty):
            raise MetricError(
                f"{len(empty)} of {self.n_images} images have no caption, so nothing tells how like a caption is to "
                "them; leave them out"
            )

    def of_images(self, places: Ids) -> Floats:
        """(B, C) labels of some images with every caption."""
        order = np.argsort(self.image_places, kind="stable")
        starts = np.searchsorted(self.image_places[order], np.arange(self.n_images + 1))
        labels = np.empty((len(places), len(self.vectors)))
        most = int(np.diff(starts).max())
        size = max(1, _CELLS // (most * len(self.vectors)))
        for begin in range(0, len(places), size):
            some = places[begin : begin + size]
            counts = starts[some + 1] - starts[some]
            captions = order[spans(starts[some], starts[some + 1])]
            near = self.vectors[captions] @ self.vectors.T
            firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
            labels[begin : begin + size] = np.maximum.reduceat(near, firsts, axis=0)
        return _rounded(labels)

    def of_captions(self, places: Ids) -> Floats:
        """(B, I) labels of some captions with every image."""
        order = np.argsort(self.image_places, kind="stable")
        gallery = self.vectors[order]
        starts = np.searchsorted(self.image_places[order], np.arange(self.n_images))
        labels = np.empty((len(places), self.n_images))
        size = max(1, _CELLS // len(gallery))
        for begin in range(0, len(places), size):
            near = self.vectors[places[begin : begin + size]] @ gallery.T
            labels[begin : begin + size] = np.maximum.reduceat(near, starts, axis=1)
        return _rounded(labels)


def dense_values(query_ids: Ids, similarities: NDArray[Any], labels: Floats) -> tuple[QueryValues, ...]:
    """Kendall's tau-b and Pearson's correlation of each query's similarities with its labels, (B, G) each.

    Queries of which a side tells nothing apart, or which have no similarity to some item (-inf), have neither: they are
    left out and counted.

    Raises:
        MetricError: that is so of every query.
    """
    exact = np.asarray(similarities, dtype=np.float64)
    varied = np.asarray(np.isfinite(exact).all(axis=1))
    varied[varied] = (np.ptp(exact[varied], axis=1) > 0) & (np.ptp(labels[varied], axis=1) > 0)
    if not varied.any():
        raise MetricError("no query's similarities and pseudo-labels tell two items apart, so none correlate")
    ids, left_out = query_ids[varied], int((~varied).sum())
    one, other = exact[varied], labels[varied]
    tau = kendall_dense(ids, one, other)
    one, other = (table - table.mean(axis=1, keepdims=True) for table in (one, other))
    linear = (one * other).sum(axis=1) / np.sqrt((one * one).sum(axis=1) * (other * other).sum(axis=1))
    return (
        QueryValues(tau.metric, ids, tau.values, left_out=left_out),
        QueryValues("Pearson", ids, linear, left_out=left_out),
    )


def _rounded(cosines: Floats) -> Floats:
    """To six decimals, so that equal texts have equal labels whatever the order of the sums."""
    return np.asarray(np.round(cosines, 6), dtype=np.float64)
