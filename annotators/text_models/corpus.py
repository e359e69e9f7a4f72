"""What a text model that learns from texts offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class CorpusModel(Protocol):
    """Learns word weights from a set of texts and compares texts by them; cosine, from -1 to 1."""

    def fit(self, texts: Sequence[str]) -> None:
        """Learn from these texts; their order does not matter."""
        ...

    def vectors(self, texts: Sequence[str]) -> Any:
        """One unit row a text (or a zero row without a known word): float64, dense or sparse."""
        ...

    def products(self, queries: Any, gallery: Any) -> NDArray[np.float64]:
        """(Q, G) inner products of such rows."""
        ...
