"""TF-IDF: words and pairs of neighbouring words, weighted by how rare they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer


class WeightedWords:
    """Sparse unit vectors over words and word pairs: 1 + log(count), times the inverse document frequency."""

    def __init__(self) -> None:
        self._vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, norm="l2", dtype=np.float64)

    def fit(self, texts: Sequence[str]) -> None:
        """Count in how many of these texts each word stands."""
        self._vectorizer.fit(texts)

    def vectors(self, texts: Sequence[str]) -> Any:
        """(N, vocabulary) sparse rows."""
        return self._vectorizer.transform(texts)

    def products(self, queries: Any, gallery: Any) -> NDArray[np.float64]:
        """(Q, G); each sum runs over the query's words in one order, so blocks of any size agree."""
        dense: NDArray[np.float64] = (queries @ gallery.T).toarray()
        return dense
