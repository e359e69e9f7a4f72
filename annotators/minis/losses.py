"""Losses over a square block of similarities (B, B) whose diagonal holds the original pairs."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def smooth_triplet(similarities: Tensor, margin: float, temperature: float) -> Tensor:
    """Hinge on the hardest negative of the row and of the column, the maximum smoothed.

    Unfound positives stand among the negatives of a batch, and the hardest negative is mostly one of them; the
    log-sum-exp lets the others be heard.
    Source: the hinge of Faghri et al., VSE++, BMVC 2018, equation 6; the smooth maximum of Oh Song et al., Deep
    metric learning via lifted structured feature embedding, CVPR 2016, equation 4.
    """
    own = torch.eye(len(similarities), dtype=torch.bool, device=similarities.device)
    original = similarities.diag()
    negatives = (similarities / temperature).masked_fill(own, -torch.inf)
    hardest = (temperature * negatives.logsumexp(dim) for dim in (1, 0))
    return torch.stack([(margin + negative - original).clamp(min=0).mean() for negative in hardest]).sum()


def contrast(logits: Tensor) -> Tensor:
    """Cross-entropy of finding the original among the row and among the column.

    Source: Radford et al., CLIP, ICML 2021, figure 3.
    """
    target = torch.arange(len(logits), device=logits.device)
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


def soft_contrast(half_log_odds: Tensor) -> Tensor:
    """Log-likelihood loss of "match" on the diagonal and of "no match" off it, summed over the pairs of an item.

    Args:
        half_log_odds: (B, B, S, T) of all pairs of samples; a probability is the mean of their sigmoid(2 x).
    Source: Chun et al., PCME, CVPR 2021, equations 2 and 3.
    """
    own = torch.eye(len(half_log_odds), dtype=torch.bool, device=half_log_odds.device)
    pairs = math.log(half_log_odds[0, 0].numel())
    match, no_match = (F.logsigmoid(sign * half_log_odds).flatten(2).logsumexp(2) - pairs for sign in (2, -2))
    return -(match[own].sum() + no_match[~own].sum()) / len(half_log_odds)
