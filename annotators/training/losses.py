"""The losses by name, and the labels that they learn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import torch
from torch import Tensor

from annotators.training.binary import (
    GAMMA,
    MARGIN,
    hardest_negative,
    semi_hard,
    soft_negative,
    softmax_common,
    softmax_own_outside,
    sum_of_hinges,
)
from annotators.training.continuous import (
    ALPHA,
    BETA,
    TAU,
    graded_contrast,
    hard_sliding_window,
    kendall,
    ladder_like,
    odds_of_cosines,
    sam_like,
    sliding_window,
    soft_grades,
)
from mitl.errors import TrainingError


class Unjudged(StrEnum):
    """What a pair means that nobody judged and that is no original."""

    NEGATIVE = "negative"
    """No match, as the papers take it: most are, but those that are one teach the opposite."""
    LEFT_OUT = "left-out"
    """Nothing: it is in no sum, no window and no maximum."""


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """What is known of the pairs of a batch, of I images and C captions.

    Raises:
        TrainingError: the three differ in shape, or relevance is not within -1 and 1 where known.
    """

    matches: Tensor
    """(I, C) bool: own pairs, and pairs that people call a match."""
    relevance: Tensor
    """(I, C) float, -1 to 1: 1 for a full match, 0 for nothing in common. Grades of people go from 0 to 1; the cosine
    of a sentence encoder can be below 0."""
    known: Tensor
    """(I, C) bool: pairs outside it take no part."""

    def __post_init__(self) -> None:
        if not self.matches.shape == self.relevance.shape == self.known.shape:
            shapes = ", ".join(
                str(tuple(table.shape)) for table in (self.matches, self.relevance, self.known)
            )
            raise TrainingError(
                f"matches, relevance and known have the shapes {shapes}; they should be equal"
            )
        strange = ~(self.relevance.abs() <= 1) & self.known
        if bool(strange.any()):
            value = float(self.relevance[strange][0])
            raise TrainingError(f"a pair has the relevance {value:g}; it should be from -1 to 1")

    @classmethod
    def of(cls, matches: Tensor, relevance: Tensor, judged: Tensor, unjudged: Unjudged) -> Self:
        """Labels of a batch of which only some pairs were judged; own pairs always count.

        Args:
            matches: (I, C) bool.
            relevance: (I, C); read where it is a match, judged or taken as a negative.
            judged: (I, C) bool.
        """
        if unjudged is Unjudged.NEGATIVE:
            return cls(matches, relevance, torch.ones_like(matches))
        return cls(matches, relevance, matches | judged)

    @classmethod
    def of_own(cls, own: Tensor, images: int) -> Self:
        """Labels by the originals alone, all else a negative: ``own`` (C,), the image's row of each caption."""
        matches = own == torch.arange(images, device=own.device)[:, None]
        return cls(matches, matches.float(), torch.ones_like(matches))


Loss = Callable[[Tensor, Labels], Tensor]
"""(I, C) similarities with a gradient, and their labels -> a scalar."""


@dataclass(frozen=True, slots=True)
class LossSettings:
    """The numbers in the losses; one that a loss does not have is not read."""

    margin: float = MARGIN
    """m, in triplets."""
    gamma: float = GAMMA
    """Of Triplet-SN."""
    alpha: float = ALPHA
    """By how much labels must differ in Kendall's loss; the size of a window."""
    beta: float = BETA
    """The stride of windows."""
    tau: float = TAU
    """By which the margins of ``sam`` are divided."""
    scale: float = 12.5
    """Of similarities in the softmax: 1 over the temperature 0.08, for cosines. CxC's own products have none."""


def _soft(s: Tensor, of: Labels, by: LossSettings) -> Tensor:
    return soft_negative(s, of.matches, by.margin, by.gamma, of.known)


def _windows(s: Tensor, of: Labels, by: LossSettings) -> Tensor:
    return hard_sliding_window(s, of.relevance, by.alpha, by.beta, of.known)


Formula = Callable[[Tensor, Labels, LossSettings], Tensor]
_SUMMED: Mapping[str, Formula] = {
    "hinges": lambda s, of, by: sum_of_hinges(s, of.matches, by.margin, of.known),
    "semi-hard": lambda s, of, by: semi_hard(s, of.matches, by.margin, of.known),
    "triplet-hn": lambda s, of, by: hardest_negative(s, of.matches, by.margin, of.known),
    "triplet-sn": _soft,
    "kendall": lambda s, of, by: kendall(s, of.relevance, by.alpha, of.known),
    "kendall-sw": lambda s, of, by: sliding_window(s, of.relevance, by.alpha, by.beta, of.known),
    "kendall-sw-hs": _windows,
    "bcls": lambda s, of, by: _soft(s, of, by) + _windows(s, of, by),
    "sam": lambda s, of, by: sam_like(s, of.matches, of.relevance, by.tau, of.known),
    "ladder": lambda s, of, by: ladder_like(s, of.relevance, known=of.known),
    "probabilistic": lambda s, of, by: graded_contrast(
        odds_of_cosines(s), soft_grades(of.relevance), of.known
    ),
}
"""The losses that are printed as sums over the batch."""
_AVERAGED: Mapping[str, Formula] = {
    "softmax": lambda s, of, by: softmax_common(s, of.matches, by.scale, of.known),
    "softmax-own-outside": lambda s, of, by: softmax_own_outside(s, of.matches, by.scale, of.known),
}
"""Those that are printed as means."""
_FORMULAS = {**_SUMMED, **_AVERAGED}
SOFTMAXES = tuple(_AVERAGED)
"""Losses that read logits."""


def loss_of(name: str, settings: LossSettings | None = None) -> Loss:
    """The loss of that name; sums are divided by the number of captions.

    Similarities of half precision are computed with in float32: a log-sum-exp of 50 s has no digits left in them.

    Raises:
        TrainingError: there is no such loss.
    """
    given = settings or LossSettings()
    if name not in _FORMULAS:
        raise TrainingError(f"there is no loss {name!r}; known: {', '.join(_FORMULAS)}")

    def loss(similarities: Tensor, labels: Labels) -> Tensor:
        s = similarities if similarities.dtype == torch.float64 else similarities.float()
        value = _FORMULAS[name](s, labels, given)
        # The papers print sums; divided by C, a rate that is right for one batch is right for another.
        return value if name in _AVERAGED else value / max(1, s.shape[1])

    return loss


LOSSES: Mapping[str, Loss] = {name: loss_of(name) for name in _FORMULAS}
"""All losses with the numbers of the papers."""
