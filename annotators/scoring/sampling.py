"""Samples of Gaussian embeddings whose noise belongs to the item, so that no other item changes them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from annotators.base import Modality

VERSION = 1
"""Raised when the same seed gives an item other noise."""


def samples(
    mean: NDArray[np.float32], log_sigma: NDArray[np.float32], noise: NDArray[np.float32]
) -> NDArray[np.float32]:
    """(N, S, D) mean + exp(log_sigma) noise, for (N, D), (N, D) and (N, S, D); samples are not normalised again.

    Source: Chun et al., PCME, CVPR 2021, section 3.1.2. ``log_sigma`` is the logarithm of the standard deviation.
    """
    sigma = torch.from_numpy(log_sigma).exp()
    drawn: NDArray[np.float32] = (
        torch.from_numpy(noise).mul(sigma[:, None]).add_(torch.from_numpy(mean)[:, None]).numpy()
    )
    return drawn


def noise(
    seed: int, modality: Modality, external_ids: Sequence[str], samples: int, width: int
) -> NDArray[np.float32]:
    """(N, S, D) standard normal numbers; an item's depend on the seed, its side and its own id alone.

    PCME's code draws from torch's global generator in the order in which items come, images first, so that there a
    sample depends on all items before it, on their batches and on the version of torch. Here a subset, another order
    or another batch changes nothing. NumPy promises that ``RandomState`` gives the same numbers in every version.
    """
    drawn = np.empty((len(external_ids), samples, width), np.float32)
    for row, external_id in enumerate(external_ids):
        digest = hashlib.sha256(f"{seed}\n{modality}\n{external_id}".encode(errors="surrogatepass")).digest()
        state = np.random.RandomState(np.frombuffer(digest, "<u4"))
        drawn[row] = state.standard_normal((samples, width))
    return drawn
