"""Whether proposers favour themselves: how scores and places move without the positives that only one proposed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError

Floats = NDArray[np.float64]
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Shift:
    """One model on one metric, with all positives and without those that only one annotator proposed."""

    model: str
    score: float
    without: float
    place: int
    """Among the models, from 1, with all positives."""
    place_without: int
    low: float
    high: float
    """Ends of the interval of ``shift``, over resampled queries."""

    @property
    def shift(self) -> float:
        """How the score moves when those positives go."""
        return self.without - self.score


@dataclass(frozen=True, slots=True)
class Favour:
    """How much further one annotator's score falls than the mean of the others' when its own positives go."""

    fall: float
    """Above 0 where it lived on them more than others did."""
    low: float
    high: float


def shifts(
    models: tuple[str, ...], whole: Floats, without: Floats, *, samples: int, seed: int
) -> tuple[Shift, ...]:
    """Each model's shift, with a paired bootstrap interval over the queries.

    Args:
        whole, without: (A, Q) the values of the same queries under both sets of positives.

    Raises:
        MetricError: fewer than two queries.
    """
    moves = without - whole
    ends = _ends(moves, samples, seed)
    before, after = whole.mean(axis=1), without.mean(axis=1)
    return tuple(
        Shift(
            name,
            float(before[row]),
            float(after[row]),
            1 + int((before > before[row]).sum()),
            1 + int((after > after[row]).sum()),
            *ends[row],
        )
        for row, name in enumerate(models)
    )


def favour(own: int, whole: Floats, without: Floats, *, samples: int, seed: int) -> Favour:
    """How the annotator in row ``own`` falls against the mean of the others; arguments as of :func:`shifts`."""
    falls = whole - without
    apart = falls[own] - np.delete(falls, own, axis=0).mean(axis=0)
    ((low, high),) = _ends(apart[None], samples, seed)
    return Favour(float(apart.mean()), low, high)


def _ends(values: Floats, samples: int, seed: int) -> list[tuple[float, float]]:
    """Percentile intervals of the rows' means, all on the same resamples of the queries (A, Q)."""
    queries = values.shape[1]
    if queries < 2:
        raise MetricError(f"{queries} query is too few to tell a shift from chance; it takes 2")
    rng = np.random.default_rng([seed, 3])
    tail = (1 - CONFIDENCE) / 2
    counts = rng.multinomial(queries, np.full(queries, 1 / queries), size=samples)  # (S, Q)
    means = values @ counts.T / queries  # (A, S)
    low, high = np.quantile(means, [tail, 1 - tail], axis=1)
    return [(float(a), float(b)) for a, b in zip(low, high, strict=True)]
