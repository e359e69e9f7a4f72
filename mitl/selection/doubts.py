"""Pairs whose call is in doubt: answered or labelled by machine, and not yet beyond question."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.core.arrays import Floats, Ints
from mitl.records.frames import LABELS, NONE, frame
from mitl.records.rounds import POOL

MOST_ANSWERS = 3
"""A pair with so many is not asked again, nor is one on which two agree."""
_CERTAIN = 2e-3
"""Nearer to 0 and 1 no fused probability is believed."""
_STRENGTH = 20.0
"""Answers to each truth that the crowd's habit is worth in a worker's own."""
_PASSES = 6
_POSITIVE = np.array([label.is_positive for label in LABELS] + [False])  # the last is for NONE


@dataclass(frozen=True, slots=True, eq=False)
class GivenAnswers:
    """Usable answers, one in each row."""

    rows: Ints
    """(a,) the place of the pair that each is about."""
    labels: NDArray[np.int8]
    """(a,) place in Label."""
    workers: Ints
    """(a,) from 0."""

    def votes(self, n: int) -> tuple[Ints, Ints]:
        """(n,) how many call each pair a match, and how many do not."""
        yes = _POSITIVE[self.labels]
        return np.bincount(self.rows[yes], minlength=n), np.bincount(self.rows[~yes], minlength=n)


def called_pairs(
    pairs: Ints, probability: Floats, answers: GivenAnswers, machine: NDArray[np.int8]
) -> pd.DataFrame:
    """``POOL`` of the pairs that have an answer or a machine label, with what is to be held of them.

    Positive is what people's majority calls a match, a machine where nobody answered; as in a release, workers who are
    evenly divided call it none. The probability is that of a match after the answers; open is what may be asked again:
    a pair with fewer than three answers on which no two workers agree alone.

    Args:
        pairs: (n,) packed, ascending and distinct.
        probability: (n,) fused without the pair's own answers.
        answers: on these pairs.
        machine: (n,) place in Label of a machine's label; NONE where it gave none.
    """
    yes, no = answers.votes(len(pairs))
    match = match_probability(probability, answers)
    called = np.where(yes + no > 0, yes > no, _POSITIVE[machine])
    known = (yes + no > 0) | (machine != NONE)
    columns = {
        "pair": pairs,
        "probability": match,
        "open": (yes + no < MOST_ANSWERS) & (np.abs(yes - no) < 2),
        "positive": called,
        "negative": ~called,
    }
    return frame(POOL, {name: values[known] for name, values in columns.items()})


def match_probability(probability: Floats, answers: GivenAnswers) -> Floats:
    """(n,) of a match, by the fused probability (n,) and the answers together.

    What an answer weighs is learnt from all of them by expectation maximisation: each worker has chances of the four
    answers on matches and on others, drawn towards the crowd's. The fused probability, which has not read the pair's
    own answers, is its prior.

    Source: Dawid and Skene, 1979, with a prior for each pair in place of one for all.
    """
    n, rows, labels = len(probability), answers.rows, answers.labels
    _, who = np.unique(answers.workers, return_inverse=True)
    kept = probability.clip(_CERTAIN, 1 - _CERTAIN)
    prior = np.log(kept / (1 - kept))
    weight = np.zeros(len(rows))
    for _ in range(_PASSES):
        match = 1 / (1 + np.exp(-prior - np.bincount(rows, weight, n)))
        logs = []
        for share in (match[rows], 1 - match[rows]):
            crowd = 1 + np.bincount(labels, share, 4)
            own = np.bincount(4 * who + labels, share, 4 * (who.max(initial=0) + 1)).reshape(-1, 4)
            own = own + _STRENGTH * crowd / crowd.sum()
            logs.append(np.log(own / own.sum(axis=1, keepdims=True)))
        weight = (logs[0] - logs[1])[who, labels]
    return np.asarray(1 / (1 + np.exp(-prior - np.bincount(rows, weight, n))), np.float64)
