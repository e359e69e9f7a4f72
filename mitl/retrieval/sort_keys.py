"""A similarity and a gallery position in one integer, the smaller the better.

The high half holds the float32, the highest first; the low half the position. So one sort of integers orders by
similarity falling, then by position, and equal similarities are ordered exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

NOTHING = np.uint64(0xFFFFFFFFFFFFFFFF)
"""Worse than every key: a free place, or a bound that is not known yet."""
MOST_POSITIONS = 1 << 32

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def keys_of(values: NDArray[np.float32], positions: NDArray[Any]) -> Keys:
    """The keys of values, NaN excluded, at positions below 2^32; -0.0 counts as 0.0."""
    bits = (values + np.float32(0)).view(np.int32)
    # Rising integers for rising floats: the magnitude of negative ones is turned over; then all for "falling".
    falling = (~(bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF)))).view(np.uint32) ^ np.uint32(0x80000000)
    keys = falling.astype(np.uint64)
    keys <<= _HALF
    keys |= positions.astype(np.uint64)
    return keys


def values_of(keys: Keys) -> NDArray[np.float32]:
    """The similarities of keys; of ``NOTHING`` minus infinity."""
    falling = (keys >> _HALF).astype(np.uint32)
    rising = (~(falling ^ np.uint32(0x80000000))).view(np.int32)
    bits = rising ^ ((rising >> 31) & np.int32(0x7FFFFFFF))
    return np.where(keys == NOTHING, np.float32(-np.inf), bits.view(np.float32))


def positions_of(keys: Keys) -> NDArray[np.int64]:
    """The gallery positions of keys."""
    return (keys & _LOW).astype(np.int64)


def bounds_of(values: NDArray[np.float32]) -> Keys:
    """The worst keys of items that reach ``values``."""
    return keys_of(values, np.full(values.shape, MOST_POSITIONS - 1, np.uint64))
