"""Texts as vectors over their words: weighted by how rare they are, or projected on directions of co-occurrence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

WIDTH = 256
SEED = 0


class WeightedWords:
    """Sparse unit vectors over words and word pairs: 1 + log(count), times the inverse document frequency."""

    def __init__(self, longest: int = 2) -> None:
        """``longest``: so many neighbouring words are counted together."""
        self._vectorizer = TfidfVectorizer(
            ngram_range=(1, longest), sublinear_tf=True, norm="l2", dtype=np.float64
        )

    def fit(self, texts: Sequence[str]) -> None:
        """Count in how many of these texts each word stands; their order does not matter."""
        self._vectorizer.fit(texts)

    def vectors(self, texts: Sequence[str]) -> Any:
        """(N, vocabulary) unit rows, or a zero row without a known word: float64, dense or sparse."""
        return self._vectorizer.transform(texts)

    def products(self, queries: Any, gallery: Any) -> NDArray[np.float64]:
        """(Q, G); each sum runs over the query's words in one order, so blocks of any size agree."""
        dense: NDArray[np.float64] = (queries @ gallery.T).toarray()
        return dense


class LatentWords(WeightedWords):
    """Latent semantic analysis: dense unit vectors of at most 256 numbers; fewer where the texts hold fewer words.

    Source: Deerwester et al., Indexing by latent semantic analysis, JASIS 1990.
    """

    def __init__(self) -> None:
        super().__init__(longest=1)
        self._svd: TruncatedSVD | None = None

    def fit(self, texts: Sequence[str]) -> None:
        """Find the directions of these texts, from a fixed seed."""
        # The decomposition's rounding depends on the order of rows.
        weighted = self._vectorizer.fit_transform(sorted(texts))
        # The solver needs a rank below both sides.
        width = min(WIDTH, min(weighted.shape) - 1)
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
