"""Originals that people or CxC refused: the candidates for exclusion lists."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mitl.positives.pair_answers import PairAnswer
from mitl.positives.rules import CXC_POSITIVE
from mitl.records import Label, Pair


@dataclass(frozen=True, slots=True)
class RefusedOriginal:
    """A caption with its own image, and what speaks against the pair."""

    pair: Pair
    answer: PairAnswer | None
    """What people answered, where they were asked and all said no match."""
    score: float | None
    """CxC's rating, where it is under the threshold."""


def refused_originals(
    originals: Collection[Pair],
    answers: Mapping[Pair, PairAnswer],
    ratings: Mapping[Pair, float],
    *,
    cxc_below: float = CXC_POSITIVE,
) -> list[RefusedOriginal]:
    """The originals that people answered ``no``, or that CxC rates under ``cxc_below``, in order of the pairs.

    Source: Chun et al., ECCV Caption, appendix C.1, step 1. On the COCO test split CxC alone refuses 29 originals;
    all of them are among the 32 captions that the paper lists.
    """
    found = []
    for pair in sorted(originals):
        answer, score = answers.get(pair), ratings.get(pair)
        refused = answer if answer is not None and answer.label is Label.NO else None
        low = score if score is not None and score < cxc_below else None
        if refused is not None or low is not None:
            found.append(RefusedOriginal(pair, refused, low))
    return found
