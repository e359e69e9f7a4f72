"""PCME's loss for a probability of a match, for labels that are yes or no and for labels between.

Source: Chun et al., Probabilistic embeddings for cross-modal retrieval (PCME), CVPR 2021, equations 1 to 3.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

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


def odds_of_cosines(similarities: Tensor, shift: float = SHIFT, scale: float = SCALE) -> Tensor:
    """(I, C, 1, 1) half log-odds of two unit vectors with this cosine, by their distance: shift - scale d.

    What a network without Gaussians gives to ``graded_contrast``: one sample an item, and odds that do not learn.
    """
    distance = ((2 - 2 * similarities).clamp(min=0) + 1e-6).sqrt()
    return (shift - scale * distance)[..., None, None]


def soft_grades(relevance: Tensor) -> Tensor:
    """(I, C) relevance as grades: what is below 0 is no match at all."""
    return torch.clamp(relevance, 0, 1)
