"""Losses for continuous labels: Kendall's ranking loss of BCLS, two baselines, PCME's for graded labels; alpha.

Kendall's ranking loss: what is more relevant to a query should be closer to it, for every two of its items. Every
function of it takes ``similarities`` (I, C), ``relevance`` (I, C), at most 1 and at least -1, and perhaps ``known``
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

The papers of the baselines, SAM and Ladder, were not at hand: what BCLS says of them (section II-B) is kept, and the
rest is our own design, so their figures are no reproduction.

Source: Li et al., Image-Text Retrieval with Binary and Continuous Label Supervision (BCLS), sections III-A and III-D,
equations 4 and 17 to 20.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from annotators.training.binary import greatest, hardest_negative
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
) -> Tensor:
    """Scalar: in every window the farthest positive and the closest negative, averaged over the M windows.

    Source: BCLS, equations 19 and 20.
    """
    tops, bottoms = windows(alpha, beta)

    def one_way(s: Tensor, r: Tensor, counted: Tensor) -> Tensor:
        above, below = _sets(r, counted, tops, bottoms)  # (Q, M, G)
        by_window = s[:, None].expand_as(above)
        farthest, closest = -greatest(-by_window, above), greatest(by_window, below)
        return (closest - farthest).clamp(min=0).sum() / len(tops)

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
    relevance = r.double()[:, None, :]
    return (relevance >= top) & counted[:, None, :], (relevance < bottom) & counted[:, None, :]


def _both_ways(similarities: Tensor, relevance: Tensor, known: Tensor | None, one_way: OneWay) -> Tensor:
    counted = torch.ones_like(relevance, dtype=torch.bool) if known is None else known
    return one_way(similarities, relevance, counted) + one_way(similarities.T, relevance.T, counted.T)


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


SHIFT = SCALE = 8.0
"""Of the odds of cosines: a match is as likely as not at a distance of 1, as at the start of the small twin."""


def graded_contrast(half_log_odds: Tensor, grades: Tensor, known: Tensor | None = None) -> Tensor:
    """Scalar: minus the log-likelihood of the labels, summed over the known pairs.

    A grade g counts as the share g of a match and 1 - g of none: with grades 0 and 1 that is the paper's loss, between
    them it is our extension, least where the probability is the grade.

    Args:
        half_log_odds: (I, C, S, T) of all pairs of S and T samples; a probability is the mean of their sigmoid(2 x).
        grades: (I, C) from 0 to 1.
    """
    pairs = math.log(half_log_odds.shape[2] * half_log_odds.shape[3])
    match, none = (F.logsigmoid(sign * half_log_odds).flatten(2).logsumexp(2) - pairs for sign in (2, -2))
    loss = -(grades * match + (1 - grades) * none)
    return loss.sum() if known is None else (loss * known).sum()


def odds_of_cosines(similarities: Tensor) -> Tensor:
    """(I, C, 1, 1) half log-odds of two unit vectors with this cosine, by their distance: SHIFT - SCALE d.

    What a network without Gaussians gives to ``graded_contrast``: one sample an item, and odds that do not learn.
    """
    distance = ((2 - 2 * similarities).clamp(min=0) + 1e-6).sqrt()
    return (SHIFT - SCALE * distance)[..., None, None]


def soft_grades(relevance: Tensor) -> Tensor:
    """(I, C) relevance as grades: what is below 0 is no match at all."""
    return torch.clamp(relevance, 0, 1)


Floats = NDArray[np.float32]


def co_caption_similarities(vectors: Floats, image_of: NDArray[np.int64]) -> NDArray[np.float64]:
    """(P,) cosines of each two captions of one image, once a pair, image by image.

    Args:
        vectors: (C, D) unit rows of a sentence encoder.
        image_of: (C,) the image that each caption was written for.
    """
    order = np.argsort(image_of, kind="stable")
    starts = np.flatnonzero(np.diff(image_of[order])) + 1
    per_image = [np.empty(0)]
    for rows in np.split(order, starts):
        cosines = vectors[rows].astype(np.float64) @ vectors[rows].astype(np.float64).T
        per_image.append(cosines[np.triu_indices(len(rows), 1)])
    return np.concatenate(per_image)


def measured_alpha(vectors: Floats, image_of: NDArray[np.int64]) -> float:
    """The standard deviation of the similarities of co-captions, by which pseudo-labels of one meaning differ.

    Over all pairs of captions of one image, each once, about their common mean: the paper does not say whether it
    is this or the mean of each image's own; on COCO and Flickr30K it found about 0.2.

    Raises:
        TrainingError: fewer than two pairs of captions have a common image.
    """
    cosines = co_caption_similarities(vectors, image_of)
    if len(cosines) < 2:
        raise TrainingError(
            f"{len(cosines)} pairs of captions have an image in common; alpha is their spread, so give images of two "
            "captions or more, or say alpha yourself, such as 0.2"
        )
    return float(cosines.std())


def pseudo_relevance(own: Floats, vectors: Floats, image_of: NDArray[np.int64]) -> Floats:
    """(I, C) how like each caption is to what was written for each image; 1 for own pairs, else at least -1.

    BCLS draws one caption an image, and r(V_i, T_j) is the cosine of T_i and T_j. Here an image is told by the vectors
    of one caption or, averaged over their cosines, of several.

    Args:
        own: (I, K, D) unit rows of K captions of each image.
        vectors: (C, D) unit rows of the captions of the batch.
        image_of: (C,) the row of the image that each of these was written for.
    """
    products = np.einsum("ikd,cd->ick", own.astype(np.float64), vectors.astype(np.float64))
    relevance: Floats = np.clip(products.mean(axis=2), -1, 1).astype(np.float32)
    relevance[np.asarray(image_of) == np.arange(len(own))[:, None]] = 1
    return relevance
