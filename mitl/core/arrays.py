"""Names of the arrays that most modules work on, and pairs of ids as single integers.

Packed pairs can be sorted, compared and looked up by the million. The arrays' shapes stand where they are used.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from mitl.records import Pair

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


def mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """As random as hashes: the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


_CAPTION_BITS = 32
_DENSE = 8
"""Up to so many times their count, numbers are looked up in a table: sorting millions takes ten times as long."""


def pack_ids(image_ids: Ints, caption_ids: Ints) -> Ints:
    """Packed pairs, (n,) int64, that sort by image, then caption; ids must be from 0 to 2^31 - 1."""
    images, captions = np.asarray(image_ids, np.int64), np.asarray(caption_ids, np.int64)
    assert not len(images) or (
        min(images.min(), captions.min()) >= 0 and max(images.max(), captions.max()) < 2**31
    )
    return np.asarray(images << _CAPTION_BITS | captions)


def unpack_ids(packed: Ints) -> tuple[Ints, Ints]:
    """Image ids and caption ids of packed pairs."""
    return packed >> _CAPTION_BITS, packed & ((1 << _CAPTION_BITS) - 1)


def pack_pair(pair: Pair) -> int:
    """One pair packed."""
    return pair.image_id << _CAPTION_BITS | pair.caption_id


def pack_pairs(pairs: Iterable[Pair]) -> Ints:
    """Packed pairs, sorted and distinct."""
    return distinct(pack_each(pairs))


def pack_each(pairs: Iterable[Pair]) -> Ints:
    """Packed pairs as given, repeated ones too."""
    rows = np.array([(pair.image_id, pair.caption_id) for pair in pairs], np.int64).reshape(-1, 2)
    return pack_ids(rows[:, 0], rows[:, 1])


def unpack_pairs(packed: Ints) -> list[Pair]:
    """The pairs as records, in the order given."""
    images, captions = unpack_ids(packed)
    return [Pair(image, caption) for image, caption in zip(images.tolist(), captions.tolist(), strict=True)]


def distinct(packed: Ints) -> Ints:
    """The distinct values, sorted: sort and compare neighbours, which is far faster than ``np.unique``."""
    values = np.sort(packed)
    return values[np.append(True, values[1:] != values[:-1])] if len(values) else values


def coded(values: Ints) -> tuple[Ints, Ints]:
    """The distinct values, sorted, and the place of each value among them."""
    if len(values) and values.min() >= 0 and values.max() < _DENSE * len(values):
        is_there = np.zeros(int(values.max()) + 1, np.bool_)
        is_there[values] = True
        return np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[values]
    levels = distinct(values)
    return levels, np.searchsorted(levels, values)


def places(rising: NDArray[np.integer], values: NDArray[np.integer]) -> Ints:
    """Where each of ``values``, of any shape, is in ``rising``; -1 where it is not."""
    if not len(rising):
        return np.full(np.shape(values), -1)
    at = np.minimum(np.searchsorted(rising, values), len(rising) - 1)
    return np.where(rising[at] == values, at, -1)


def contains(packed: Ints, values: Ints) -> NDArray[np.bool_]:
    """Whether each of ``values`` is in ``packed``, which must be sorted."""
    return places(packed, values) >= 0


def spans(starts: NDArray[np.integer], ends: NDArray[np.integer]) -> Ints:
    """The places from each start to before its end, one span after the other."""
    lengths = (ends - starts).astype(np.int64)
    first = np.cumsum(lengths) - lengths
    return np.asarray(np.arange(lengths.sum(), dtype=np.int64) - np.repeat(first - starts, lengths), np.int64)
