"""Kendall's ranking loss: what is more relevant to a query should be closer to it, for every two of its items.

Every function takes ``similarities`` (I, C), ``relevance`` (I, C), at most 1 and at least -1, and perhaps ``known``
(I, C): a pair outside it takes part in no comparison. Images and captions need not be as many; either side asks once,
and nothing is divided by the batch. There is no parameter of the margin in equations 4, 17, 18 and 19; equation 6 has
one, so ``margin`` is 0 unless given.

Where BCLS is silent, this holds:

- **Windows.** Relevance goes from -1 to 1. The window m of the M has its top at 1 - (M - m) beta and its bottom alpha
  lower; positives are at its top or above, negatives strictly below its bottom, so that they differ by more than alpha
  as equation 17 wants. Of all places that a window can have, M leaves out the lowest alone, which has no negatives. The
  positives of the top window are the pairs of relevance 1. Where (2 - alpha) / beta is no whole number, it is cut.
- **Empty sets.** A window without positives or without negatives adds nothing to its query; it still counts in M.
- **Labels from 0 to 1** are as good: windows below 0 are then empty.

Source: Li et al., Image-Text Retrieval with Binary and Continuous Label Supervision (BCLS), equations 4 and 17 to 20.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from annotators.training.triplet import greatest
from mitl.errors import TrainingError

ALPHA, BETA = 0.2, 0.1
"""The window's size and its stride: BCLS, section IV-A."""
_ROUNDING = 1e-6
"""How far a label may be off a window's edge and still be on it: sums of 0.1 are not exact."""

OneWay = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(Q, G) similarities, relevance and which pairs are known -> a scalar."""


def kendall(
    similarities: Tensor,
    relevance: Tensor,
    alpha: float = 0.0,
    known: Tensor | None = None,
    margin: float = 0.0,
) -> Tensor:
    """Scalar: each two items of a query whose relevance differs by more than alpha, where the lesser is closer.

    Takes memory for Q G^2 + G Q^2 numbers.

    Source: BCLS, equation 4 (alpha = 0), 17; 6 with its margin.
    """

    def one_way(s: Tensor, r: Tensor, counted: Tensor) -> Tensor:
        ordered = r[:, :, None] > r[:, None, :] + alpha  # (Q, G, G): the first should be the closer one
        ordered &= counted[:, :, None] & counted[:, None, :]
        lacking = (s[:, None, :] - s[:, :, None] + margin).clamp(min=0)
        return (lacking * ordered).sum()

    return _both_ways(similarities, relevance, known, one_way)


def sliding_window(
    similarities: Tensor,
    relevance: Tensor,
    alpha: float = ALPHA,
    beta: float = BETA,
    known: Tensor | None = None,
) -> Tensor:
    """Scalar: in every window, each positive with each negative that is closer to the query.

    Two items that many windows part count as often. Takes memory as ``kendall`` does.

    Source: BCLS, equation 18.
    """
    tops, bottoms = windows(alpha, beta)

    def one_way(s: Tensor, r: Tensor, counted: Tensor) -> Tensor:
        above, below = _sets(r, counted, tops, bottoms)  # (Q, M, G)
        times = above.to(s.dtype).transpose(1, 2) @ below.to(s.dtype)  # (Q, G, G): windows that part the two
        lacking = (s[:, None, :] - s[:, :, None]).clamp(min=0)
        return (lacking * times).sum()

    return _both_ways(similarities, relevance, known, one_way)


def hard_sliding_window(
    similarities: Tensor,
    relevance: Tensor,
    alpha: float = ALPHA,
    beta: float = BETA,
    known: Tensor | None = None,
    margin: float = 0.0,
) -> Tensor:
    """Scalar: in every window the farthest positive and the closest negative, averaged over the M windows.

    Source: BCLS, equations 19 and 20.
    """
    tops, bottoms = windows(alpha, beta)

    def one_way(s: Tensor, r: Tensor, counted: Tensor) -> Tensor:
        above, below = _sets(r, counted, tops, bottoms)  # (Q, M, G)
        each = s[:, None].expand_as(above)
        farthest, closest = -greatest(-each, above), greatest(each, below)
        return (closest - farthest + margin).clamp(min=0).sum() / len(tops)

    return _both_ways(similarities, relevance, known, one_way)


def windows(alpha: float, beta: float) -> tuple[Tensor, Tensor]:
    """(M,) the tops of all windows, from the highest on, and (M,) their bottoms; float64.

    Raises:
        TrainingError: the window is as large as the scale or negative, or the stride leaves no window.
    Source: BCLS, section III-D: M = (2 - alpha) / beta.
    """
    if not 0 <= alpha < 2:
        raise TrainingError(
            f"the window alpha is {alpha:g}; it is a difference of labels from -1 to 1: take one from 0 to below 2, "
            "such as 0.2"
        )
    if not 0 < beta <= 2 - alpha:
        raise TrainingError(
            f"the stride beta is {beta:g}; with alpha {alpha:g} take one above 0 and up to {2 - alpha:g}, such as 0.1"
        )
    count = math.floor((2 - alpha) / beta + _ROUNDING)
    tops = 1 - beta * torch.arange(count, dtype=torch.float64)
    return tops, tops - alpha


def _sets(r: Tensor, counted: Tensor, tops: Tensor, bottoms: Tensor) -> tuple[Tensor, Tensor]:
    """(Q, M, G) which items are positives of each window, and which are its negatives."""
    top, bottom = (edge.to(r.device)[None, :, None] - _ROUNDING for edge in (tops, bottoms))
    each = r.double()[:, None, :]
    return (each >= top) & counted[:, None, :], (each < bottom) & counted[:, None, :]


def _both_ways(similarities: Tensor, relevance: Tensor, known: Tensor | None, one_way: OneWay) -> Tensor:
    counted = torch.ones_like(relevance, dtype=torch.bool) if known is None else known
    return one_way(similarities, relevance, counted) + one_way(similarities.T, relevance.T, counted.T)
