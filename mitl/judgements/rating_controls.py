"""What the controls of rating pages should get, and which of them are not to be trusted."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.records.frames import Flags
from mitl.records.similarity import SIMILARITY_ROLES, SimilarityRole

Scores = NDArray[np.float64] | float
"""One score, or several."""

LEAST_IDENTICAL = 4.0
MOST_RANDOM = 2.0
MOST_APART = 1.0
"""Between the two scores of a repeated pair."""
FEWEST_CAREFUL = 3
"""Raters by whom a random pair can be found alike."""

ASKED, IDENTICAL, RANDOM, REPEATED = (SIMILARITY_ROLES.index(role) for role in SimilarityRole)


def passes(role: SimilarityRole, scores: Scores, before: Scores = math.nan) -> Flags:
    """Whether a score, or (n,) each of several, is what a control of this role should get.

    Where people are really asked, every score is.

    Args:
        before: the score of a repeated pair's first showing.
    """
    if role is SimilarityRole.IDENTICAL:
        return np.asarray(scores >= LEAST_IDENTICAL)
    if role is SimilarityRole.RANDOM:
        return np.asarray(scores <= MOST_RANDOM)
    return np.asarray(role is SimilarityRole.ASKED) | (between(scores, before) <= MOST_APART)


def between(scores: Scores, before: Scores) -> NDArray[np.float64]:
    """How far two scores of one pair are apart: in whole steps, since 3.2 - 2.2 is more than 1 in binary."""
    return np.asarray(np.abs(np.rint(100 * scores) - np.rint(100 * before)) / 100)


def apart(answered: pd.DataFrame) -> pd.DataFrame:
    """``assignment`` of each repeated pair with a score, and ``apart``: how far it is from that of its first showing.

    Args:
        answered: rows of ``RATINGS`` that have a score, by submission and place.
    """
    first = answered[answered["role"] == ASKED].drop_duplicates(["assignment", "pair"])
    again = answered[answered["role"] == REPEATED].merge(
        first, on=["assignment", "pair"], suffixes=("", "_first")
    )
    distance = between(again["score"].to_numpy(), again["score_first"].to_numpy())
    return pd.DataFrame({"assignment": again["assignment"], "apart": distance})


def untrusted(ratings: pd.DataFrame) -> Flags:
    """(rows,) whether each row of ``RATINGS`` is on a random control that is none: careful raters find it alike.

    Random pairs are drawn, and nobody has looked at them; a small or dense data set draws some that are alike. Careful
    on a page is who passed its identical and its repeated control and rated the identical pair a level above the random
    one, which who answers everything alike does not. More than half of these have to have given a random pair more than
    ``MOST_RANDOM``, and three at least.
    """
    answered = ratings[ratings["score"].notna()]
    twice = apart(answered)
    unsteady = twice.loc[twice["apart"] > MOST_APART, "assignment"]
    # Of several identical pairs the one that was rated lowest.
    identical = answered[answered["role"] == IDENTICAL].groupby("assignment")["score"].min()
    random = answered[answered["role"] == RANDOM]
    beside = random["assignment"].map(identical)  # NaN where the page has none
    is_careful = (beside >= LEAST_IDENTICAL) & (
        (100 * (beside - random["score"])).round() >= 100 * MOST_APART
    )
    careful = random[is_careful & ~random["assignment"].isin(unsteady)]
    by_pair = careful.assign(alike=careful["score"] > MOST_RANDOM).groupby("pair")
    n_raters = by_pair["worker"].nunique()
    alike = n_raters.index[(n_raters >= FEWEST_CAREFUL) & (by_pair["alike"].mean() > 1 / 2)]
    found: NDArray[np.bool_] = (ratings["role"].to_numpy() == RANDOM) & ratings["pair"].isin(alike).to_numpy()
    return found
