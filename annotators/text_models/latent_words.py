"""Latent semantic analysis: weighted words projected on their strongest directions of co-occurrence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

WIDTH = 256
SEED = 0


class LatentWords:
    """Dense unit vectors of at most 256 numbers; fewer where the texts hold fewer words.

    Source: Deerwester et al., Indexing by latent semantic analysis, JASIS 1990.
    """

    def __init__(self, width: int = WIDTH) -> None:
        self._width = width
        self._vectorizer = TfidfVectorizer(sublinear_tf=True, norm="l2", dtype=np.float64)
        self._svd: TruncatedSVD | None = None

    def fit(self, texts: Sequence[str]) -> None:
        """Find the directions of these texts, from a fixed seed."""
        # The decomposition's rounding depends on the order of rows.
        weighted = self._vectorizer.fit_transform(sorted(texts))
        # The solver needs a rank below both sides.
        width = min(self._width, min(weighted.shape) - 1)
        if width >= 1:
            self._svd = TruncatedSVD(width, random_state=SEED).fit(weighted)

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """(N, width) rows; of a single text or word there are no directions, and words are compared as they are."""
        weighted = self._vectorizer.transform(texts)
        if self._svd is None:
            whole: NDArray[np.float64] = weighted.toarray()
            return whole
        latent: NDArray[np.float64] = self._svd.transform(weighted)
        length = np.linalg.norm(latent, axis=1, keepdims=True)
        unit: NDArray[np.float64] = latent / np.where(length > 1e-12, length, np.inf)
        return unit

    def products(self, queries: Any, gallery: Any) -> NDArray[np.float64]:
        """(Q, G) in float64."""
        exact: NDArray[np.float64] = queries @ gallery.T
        return exact
