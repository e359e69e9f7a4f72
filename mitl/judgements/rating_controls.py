"""What the controls of rating pages should get, and which of them are not to be trusted."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.records.frames import Flags
from mitl.records.similarity import SIMILARITY_ROLES, SimilarityRole

LEAST_IDENTICAL = 4.0
MOST_RANDOM = 2.0
MOST_APART = 1.0
"""Between the two scores of a repeated pair."""
FEWEST_CAREFUL = 3
"""Raters by whom a random pair can be found alike."""

ASKED, IDENTICAL, RANDOM, REPEATED = (SIMILARITY_ROLES.index(role) for role in SimilarityRole)


def apart(answered: pd.DataFrame) -> pd.DataFrame:
    """``assignment`` of each repeated pair with a score, and ``apart``: how far it is from that of its first showing.

    Args:
        answered: rows of ``RATINGS`` that have a score, by submission and place.
    """
    first = answered[answered["role"] == ASKED].drop_duplicates(["assignment", "pair"])
    again = answered[answered["role"] == REPEATED].merge(
        first, on=["assignment", "pair"], suffixes=("", "_first")
    )
    # In whole steps, since 3.2 - 2.2 is more than 1 in binary.
    steps = np.abs(np.rint(100 * again["score"]) - np.rint(100 * again["score_first"]))
    return pd.DataFrame({"assignment": again["assignment"], "apart": steps / 100})


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
