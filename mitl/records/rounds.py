"""Rounds of the loop: their steps, and the frames of what may be chosen, what was chosen and what teaches."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mitl.records.frames import Schema  # importing it brings numpy


class RoundStep(StrEnum):
    """The steps of a round, in their order; each can be repeated by itself and is done once."""

    TRAIN = "train"
    """Annotators learn from the usable answers so far."""
    PROPOSE = "propose"
    """They rank, and what they propose is stored as a run."""
    FUSE = "fuse"
    """Every ranked pair gets a probability of a match."""
    CHOOSE = "choose"
    """A strategy says which open pairs are asked."""
    PUBLISH = "publish"
    """They are posted, and nothing else but what audits want."""
    HARVEST = "harvest"
    """Answers come in until every chosen pair is answered."""
    LABEL = "label"
    """The machine labels what is sure enough, under the bound of a sample."""
    CERTIFY = "certify"
    """The bounds are written down and the round is closed."""


DOUBTS = "doubts"
"""The strategy that chooses among pairs that have an answer or a machine label; they are asked of further workers."""

POOL: Schema = {
    "pair": ("int64", "packed, ascending and distinct: every ranked pair"),
    "probability": (
        "float64",
        "fused, 0 to 1, that the pair is a match; NaN where nothing is fused yet; of doubts after the pair's answers",
    ),
    "open": (
        "bool",
        "whether it may be asked: nobody was asked, no sample for machine labels holds it, no machine labelled it; "
        "of doubts whether it may be asked again",
    ),
    "positive": ("bool", "whether people's answers so far call it a match"),
    "negative": ("bool", "whether they refuse it"),
}
"""What a strategy chooses from; who ranked a pair where stands in a frame of ``PROPOSALS`` beside it."""

CHOSEN: Schema = {
    "pair": ("int64", "packed, distinct, open"),
    "place": ("int64", "in the order in which they are asked, from 1; ascending"),
    "score": ("float64", "by which its strategy chose it"),
    "strategy": ("str", "which chose it"),
}
"""The pairs that a round asks."""

CHOSEN_BY: Schema = {
    "pair": ("int64", "packed, ascending and distinct"),
    "round": ("int32", "number of the round that chose it first"),
    "strategy": ("str", "which chose it"),
}
"""Which round chose a pair."""

TEACHING: Schema = {
    "pair": ("int64", "packed, ascending and distinct"),
    "grade": ("float64", "0 to 1: the mean over the answers of 1, 2/3, 1/3 and 0 for the four levels"),
    "positive": ("bool", "whether more answers call it a match than not"),
    "n": ("int32", "usable answers in asked roles; 0 for an original pair that nobody was asked about"),
    "original": ("bool", "whether the right item was made for the left one"),
}
"""Pairs that teach an annotator. Answers of audits, and on pairs drawn to bound machine labels, are not among them."""
