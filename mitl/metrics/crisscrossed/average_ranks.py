"""Average ranks of many subsets of one list of values, by counting: the values are sorted once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.metrics.positives import Ids

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class RankedValues:
    """The place of each value (P,) among the ``distinct`` different ones, in rising order."""

    codes: Ids
    distinct: int

    @classmethod
    def of(cls, values: NDArray[Any]) -> RankedValues:
        """Values without NaN."""
        known, codes = np.unique(values, return_inverse=True)
        return cls(codes.reshape(-1).astype(np.int64), len(known))

    def among(self, places: Ids) -> Floats:
        """(n,) the rank, from 1, of the values at ``places`` among them; equal values share their mean rank."""
        codes = self.codes[places]
        counts = np.bincount(codes, minlength=self.distinct)
        upto = np.cumsum(counts)
        return np.asarray((upto - (counts - 1) / 2)[codes], dtype=np.float64)
