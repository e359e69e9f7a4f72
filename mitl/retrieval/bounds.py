"""How far a fast inner product may be from the canonical similarity: bounds that assume nothing about the data."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

UNIT = 2.0**-24
"""Unit roundoff of float32."""
_MARGIN = 1 + 2.0**-20
"""For the rounding of the bounds themselves."""


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
    near, other_near = lengths + losses, other_lengths + other_losses
    tiny = 2.0**-124 * math.sqrt(width)
    relative = gamma(width, unit) + 6 * UNIT + 2.0**-40
    one = np.stack([losses, near, near > 0], axis=1)
    other = np.stack([other_lengths, other_losses + relative * other_near, np.zeros_like(other_near)])
    other *= _MARGIN
    other[1] += tiny
    other[2] = 2.0**-124 * width + tiny * other_near
    return np.asarray(one @ other)
