"""Two other ways to learn from continuous labels, as baselines: margins that follow the labels, and levels.

The papers of both were not at hand: what BCLS says of them (section II-B) is kept, and the rest is our own design, so
their figures are no reproduction. Arguments are as in ``triplet`` and ``kendall``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from annotators.training.triplet import greatest, hardest_negative

TAU = 5.0
"""Labels go from -1 to 1, so margins go up to 0.4."""


def sam_like(
    similarities: Tensor,
    matches: Tensor,
    relevance: Tensor,
    tau: float = TAU,
    known: Tensor | None = None,
) -> Tensor:
    """Scalar: a triplet whose margin is how much less relevant the negative is, divided by tau.

    For each positive pair the negative that lacks most counts. A negative that is as relevant as the positive needs no
    distance, and one that is more relevant may be closer.

    Source: the idea of Biten et al., Is an image worth five sentences?, WACV 2022, as BCLS tells it; mining is ours.
    """
    # s_n - s_p + (r_p - r_n) / tau is the hinge of s - r / tau without a margin.
    return hardest_negative(similarities - relevance / tau, matches, 0.0, known)


@dataclass(frozen=True, slots=True)
class Rung:
    """A threshold of relevance; what reaches it should be closer by ``margin`` than what does not."""

    threshold: float
    margin: float
    weight: float


LADDER = (Rung(1.0, 0.2, 1.0), Rung(0.6, 0.05, 0.25))
"""Ours: the matches first, then what is closely related."""


def ladder_like(
    similarities: Tensor,
    relevance: Tensor,
    rungs: tuple[Rung, ...] = LADDER,
    known: Tensor | None = None,
) -> Tensor:
    """Scalar: at each rung, the farthest item that reaches it against the closest one that does not.

    A query without items on one side of a rung adds nothing there.

    Source: the idea of Zhou et al., Ladder loss for coherent visual-semantic embedding, AAAI 2020, as BCLS tells it;
    thresholds, margins, weights and mining are ours.
    """
    counted = torch.ones_like(relevance, dtype=torch.bool) if known is None else known
    total = similarities.sum() * 0
    for rung in rungs:
        reached = relevance >= rung.threshold
        for s, above, among in (
            (similarities, reached, counted),
            (similarities.T, reached.T, counted.T),
        ):
            farthest, closest = -greatest(-s, above & among), greatest(s, ~above & among)
            total = total + rung.weight * (closest - farthest + rung.margin).clamp(min=0).sum()
    return total
