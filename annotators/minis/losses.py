"""Losses over a square block of similarities (B, B) whose diagonal holds the original pairs."""

from __future__ import annotations

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


def soft_contrast(logits: Tensor) -> Tensor:
    """Log-likelihood loss of "match" on the diagonal and "no match" off it, summed over the batch's pairs per item.

    ``logits`` are half log-odds: the matching probability is sigmoid(2 * logits).
    Source: Chun et al., PCME, CVPR 2021, equation 3; each pair with the same weight.
    """
    own = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    return (F.softplus(-2 * logits[own]).sum() + F.softplus(2 * logits[~own]).sum()) / len(logits)
