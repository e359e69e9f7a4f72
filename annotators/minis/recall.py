"""Recall@K of originals on a world whose captions stand image by image."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

KS = (1, 5, 10)


def recalls(similarities: NDArray[np.float32], captions_per_image: int) -> tuple[float, ...]:
    """R@1, R@5, R@10 of images as queries, then of captions as queries, from 0 to 1.

    Args:
        similarities: (N, N C); the captions of image n are the columns n C to n C + C - 1.
    """
    own = np.arange(similarities.shape[1]) // captions_per_image  # (N C,)
    images = np.arange(len(similarities))
    by_image = own[_order(similarities)] == images[:, None]  # (N, N C), best first
    by_caption = _order(similarities.T) == own[:, None]  # (N C, N)
    return tuple(float(hits[:, :k].any(1).mean()) for hits in (by_image, by_caption) for k in KS)


def _order(similarities: NDArray[np.float32]) -> NDArray[np.int64]:
    return np.argsort(-similarities, axis=1, kind="stable")
