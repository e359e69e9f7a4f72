"""The embeddings of one side of a search, read block by block, and how far fast inner products of them may be off.

The bounds assume nothing about the data.
"""

from __future__ import annotations

import ctypes
import math
import threading
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from annotators.base import Encoded
from mitl.errors import RetrievalError
from mitl.records import AnnotatorKind
from mitl.retrieval.processor import loaded_torch

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

VECTOR_KINDS = (AnnotatorKind.INNER_PRODUCT, AnnotatorKind.MULTI_VECTOR)
"""Annotators whose vectors the search multiplies."""
UNIT = 2.0**-24
"""Unit roundoff of float32."""
_MARGIN = 1 + 2.0**-20
"""For the rounding of the bounds themselves."""

LONGEST = 1e19
"""Inner products of vectors up to this length stay within float32."""


class Vectors:
    """``embedding`` of encoded items as (N, K, D), float32 or float16, never copied as a whole.

    Raises:
        RetrievalError: there is no such array, or it is of another shape or type.
    """

    def __init__(self, encoded: Encoded) -> None:
        if "embedding" not in encoded.arrays:
            raise RetrievalError(
                f"encoded {encoded.modality}s hold {sorted(encoded.arrays)}, "
                "but inner products need 'embedding'"
            )
        array = encoded.arrays["embedding"]
        if array.ndim not in (2, 3) or 0 in array.shape[1:] or array.dtype not in (np.float32, np.float16):
            raise RetrievalError(
                f"{encoded.modality} embeddings are {array.dtype} {array.shape}; "
                "expected float32 (N, D) or (N, K, D)"
            )
        self.array: NDArray[Any] = array[:, None, :] if array.ndim == 2 else array
        self.longest = 0.0
        """The largest of the lengths that were asked for."""
        self._encoded = encoded
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.array)

    @property
    def per_item(self) -> int:
        """K, the vectors of an item."""
        return int(self.array.shape[1])

    @property
    def width(self) -> int:
        """D, the numbers of a vector."""
        return int(self.array.shape[2])

    def only(self, places: NDArray[np.int64]) -> Vectors:
        """A copy of some items."""
        arrays = {"embedding": self._encoded.arrays["embedding"][places]}
        return Vectors(Encoded(self._encoded.modality, self._encoded.ids[places], arrays))

    def block(self, rows: slice) -> Floats:
        """Items as float32 (n, K, D); a view where they are float32 already."""
        return singles(self.array[rows])

    def sample(self, most: int) -> Floats:
        """At most so many vectors (n, D), evenly spread over the items."""
        items = max(1, most // self.per_item)
        step = max(1, -(-len(self) // items))
        return np.ascontiguousarray(self.array[::step], np.float32).reshape(-1, self.width)

    def lengths(self, block: Floats, start: int) -> Doubles:
        """An upper bound of the Euclidean length of each item's longest vector, (n,), for rows from ``start``.

        Exactly 0 for items that are all zeros.

        Raises:
            RetrievalError: a vector is not finite or too long; the message names the item.
        """
        return self.checked(largest_lengths(block), start)

    def checked(self, lengths: Doubles, start: int) -> Doubles:
        """The same lengths of items from ``start`` on; RetrievalError names the first one that cannot be used."""
        bad = np.flatnonzero(~(lengths <= LONGEST))
        if len(bad):
            raise RetrievalError(
                f"the embedding of {self._encoded.modality} {self._encoded.ids[start + bad[0]]} is not finite "
                f"or longer than {LONGEST:g}; normalise or encode again"
            )
        with self._lock:
            self.longest = max(self.longest, float(lengths.max(initial=0)))
        return lengths


def largest_lengths(block: Floats) -> Doubles:
    """An upper bound of the length of the longest vector of each item, (n,), for (n, K, D).

    NaN or infinite where a vector is not finite or its squared length leaves float32; 0 only for zeros.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        squares = np.vecdot(block, block).max(axis=1)
    lengths = bounded(squares, block.shape[2])
    for row in np.flatnonzero(squares == 0):
        if not block[row].any():
            lengths[row] = 0
    return lengths


def bounded(squares: NDArray[Any], width: int) -> Doubles:
    """Upper bounds of the lengths of vectors (n, ``width``), squares added in float32 or better in any order."""
    lengths = np.sqrt(squares.astype(np.float64)) * (1 + 2 * gamma(width))
    # Squares below 2^-126 may have been lost: at most sqrt(D) 2^-63 of the length.
    return np.asarray(lengths + math.sqrt(width) * 2.0**-62)


def singles(array: NDArray[Any]) -> Floats:
    """The same numbers in float32, the same memory where they are."""
    if array.dtype != np.float16:
        return np.asarray(array, np.float32)
    converted = np.empty(array.shape, np.float32)
    convert(np.array(array), converted)  # a copy, since torch warns of read-only ones
    return converted


def convert(array: NDArray[Any], out: NDArray[Any]) -> None:
    """Put numbers into an array of another type; torch reads half precision ten times as fast as numpy."""
    torch = loaded_torch()
    if torch is None or array.dtype != np.float16:
        np.copyto(out, array)
    else:
        torch.from_numpy(out).copy_(torch.from_numpy(array))


def writeable(array: NDArray[Any]) -> NDArray[Any]:
    """The same memory, or a copy, as an array that torch takes and does not warn about; nobody writes to it."""
    if array.flags.writeable and min(array.strides) >= 0:
        return array
    if not array.flags.c_contiguous:
        return array.copy()
    memory = (ctypes.c_byte * array.nbytes).from_address(array.ctypes.data)
    return np.ctypeslib.as_array(memory).view(array.dtype).reshape(array.shape)


def bits_of_halves(array: NDArray[Any]) -> NDArray[Any]:
    """The same memory, float16 as uint16: compiled loops know no float16."""
    return array.view(np.uint16) if array.dtype == np.float16 else array


def gamma(width: int, unit: float = UNIT) -> float:
    """The relative error of a sum of ``width`` products in any order, gamma_n = n u / (1 - n u).

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 3.1, with two roundings to spare.
    """
    n = (width + 2) * unit
    return n / (1 - n)


def product_errors(
    lengths: Doubles, losses: Doubles, other_lengths: Doubles, other_losses: Doubles, width: int, unit: float
) -> Doubles:
    """The most by which products of each of n vectors with each of m others may be off, (n, m).

    A product multiplies q' and x' instead of q and x and accumulates with unit roundoff ``unit``. Then, by the
    inequality of Cauchy and Schwarz,

        |q'x' - qx| <= |q - q'| |x| + |q'| |x - x'| + gamma_D |q'| |x'|,

    with measured norms of what rounding took away. Added are the scaling of the accumulated number (5 u), the
    rounding of the canonical similarity to float32 (u), its float64 sum (2^-40) and what underflow may lose. A vector
    of zeros has similarity 0, and no product says otherwise.

    Args:
        lengths, losses: (n,) upper bounds of |q| and |q - q'|.
        other_lengths, other_losses: (m,) upper bounds of |x| and |x - x'|.
    """
    near = lengths + losses
    terms = np.stack([losses, near, near > 0], axis=1)
    return np.asarray(terms @ error_terms(other_lengths, other_losses, width, unit))


def error_terms(lengths: Doubles, losses: Doubles, width: int, unit: float) -> Doubles:
    """What ``product_errors`` multiplies |q - q'|, |q| + |q - q'| and "q is not zero" with, (3, m)."""
    near = lengths + losses
    tiny = 2.0**-124 * math.sqrt(width)
    relative = gamma(width, unit) + 6 * UNIT + 2.0**-40
    terms = np.stack([lengths, losses + relative * near, np.zeros_like(near)])
    terms *= _MARGIN
    terms[1] += tiny
    terms[2] = 2.0**-124 * width + tiny * near
    return terms


def error_factors(lengths: Doubles, losses: Doubles, width: int, side: Literal["left", "right"]) -> Floats:
    """Two numbers of each vector (2, n), whose products with those of a vector of the other side are together a bound.

    It is that of ``product_errors`` for exact sums of one pair. In float32 no number of the seven operations that add
    it to such a sum is larger than three times |q'| |x'|, and what they round is below 16 u of it, underflow too: the
    losses must hold as much of |q'| or |x'| besides.
    """
    near = lengths + losses
    factors = np.stack([near, losses])
    if side == "right":
        factors = error_terms(lengths, losses, width, 0.0)[[1, 0]]
    return np.where(near > 0, np.nextafter(factors.astype(np.float32), np.float32(np.inf)), np.float32(0))
