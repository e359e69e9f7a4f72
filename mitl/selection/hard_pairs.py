"""Jo et al.'s hard negatives for pairs, where people judge and nobody writes.

There, an item without a partner is scored by the texts to which it is nearer than their nearest other image. Here every
item has its partner, and what is unknown is whether a pair matches. The adaptation, which is ours:

* an *anchor* is a query (either direction) with pairs that people refused; these judged negatives stand for the
  paired images other than the text's own (Z without z_j), its positives for z_j, which is left out;
* a *candidate* is an open pair of it. It exceeds the threshold where an annotator has it nearer than the nearest judged
  negative: it is either a harder negative than any known, or a match that is missing;
* a query of which no pair was refused, above all one that was never asked, has no threshold of its own. It takes its
  annotator's mean threshold, and where nobody refused anything yet, that of the last pair of its ranking.

A pair's score is the sum of its surpluses over annotators and directions, on the scale of ``nearness``.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from mitl.core.packed import Ints
from mitl.records import Direction
from mitl.records.frames import Flags
from mitl.selection.choice import Floats, SelectionProblem, highest


def hard_negatives(choice: SelectionProblem) -> pd.DataFrame:
    """``CHOSEN``: the pairs that most exceed what people refused of the same query.

    Source: Jo et al., eq. 2, 5 and 6, as adapted above.
    """
    scores = np.zeros(len(choice.pairs))
    for name, nearness in choice.nearness.items():
        queries = choice.items[name.rpartition(".")[2] != Direction.I2T]
        surplus = nearness - query_thresholds(queries, nearness, choice.negative)
        scores += np.where(surplus > 0, surplus, 0)  # NaN, where the item did not search, is not above
    return highest(choice, scores, "hard-negatives")


def query_thresholds(queries: Ints, nearness: Floats, refused: Flags) -> Floats:
    """(n,) of each pair's query the nearest refused pair; the mean over queries where it has none.

    Args:
        queries: (n,) each pair's query.
        nearness: (n,) NaN where the query did not search.
        refused: (n,) judged negatives.
    """
    known, at = np.unique(queries, return_inverse=True)
    searched = ~np.isnan(nearness)
    own = np.full(len(known), -np.inf)
    anchors = refused & searched
    np.maximum.at(own, at[anchors], nearness[anchors])
    has_own = np.isfinite(own)
    if has_own.any():
        return np.asarray(np.where(has_own, own, own[has_own].mean())[at])
    last = np.full(len(known), np.inf)
    np.minimum.at(last, at[searched], nearness[searched])
    return np.asarray(last[at])
