"""The strategies by name, and those of one score: the paper's exhaustive one, chance, probabilities, disagreement.

A new one is a function, in a module of its own where it needs more, and an entry of ``STRATEGIES``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from mitl.core.packed import contains
from mitl.errors import RoundError, UsageError
from mitl.selection.bandit import bandit
from mitl.selection.choice import Floats, SelectionProblem, Strategy, draws, highest
from mitl.selection.coreset import coreset
from mitl.selection.diverse import Spread, diverse
from mitl.selection.hard_pairs import hard_negatives


def disagreement(choice: SelectionProblem) -> pd.DataFrame:
    """``CHOSEN``: the pairs whose standardised similarities vary most from annotator to annotator.

    The score is the variance of ``nearness`` over the annotators, the mean over the directions in which two of
    them searched.

    Raises:
        RoundError: fewer than two annotators rank in one direction.

    Source: Seung et al., COLT 1992 (query by committee); the variance in place of votes is ours.
    """
    return highest(choice, _variance(choice), "disagreement")


def _variance(choice: SelectionProblem) -> Floats:
    by_direction: dict[str, list[Floats]] = {}
    for name, values in choice.nearness.items():
        by_direction.setdefault(name.rpartition(".")[2], []).append(values)
    total, count = np.zeros(len(choice.pairs)), np.zeros(len(choice.pairs))
    for columns in by_direction.values():
        stacked = np.stack(columns)
        known = ~np.isnan(stacked)
        n = known.sum(axis=0)
        values = np.where(known, stacked, 0)
        mean = values.sum(axis=0) / np.maximum(n, 1)
        variance = np.where(known, (values - mean) ** 2, 0).sum(axis=0) / np.maximum(n, 1)
        total += np.where(n > 1, variance, 0)
        count += n > 1
    if not count.any():
        raise RoundError(
            "disagreement needs two annotators that rank in one direction, and there are not so many; propose with "
            "another one, or choose by another strategy"
        )
    return np.asarray(total / np.maximum(count, 1))


def exhaustive(choice: SelectionProblem) -> pd.DataFrame:
    """``CHOSEN``: each pair among the first ``top_k`` of any annotator in any direction, the best ranks first.

    The score is the best rank, negative. Pairs ranked deeper are never asked, so there may be fewer than the budget.

    Source: ECCV Caption, section 3.2, where all of them are asked.
    """
    return highest(
        choice, -choice.best_rank.astype(np.float64), "exhaustive", choice.best_rank <= choice.top_k
    )


def at_random(choice: SelectionProblem) -> pd.DataFrame:
    """``CHOSEN``: ranked pairs by chance, each as likely as any other."""
    return highest(choice, draws(choice.pairs, choice.seed, "random choice"), "random")


def entropy(probability: Floats) -> Floats:
    """(n,) of yes or no at these probabilities, in bits: 1 at one half, 0 at certainty."""
    p = np.stack([probability, 1 - probability])
    return np.asarray(-(p * np.log2(np.where(p > 0, p, 1))).sum(axis=0), np.float64)


def uncertainty(choice: SelectionProblem) -> pd.DataFrame:
    """``CHOSEN``: the pairs whose fused probability says least, by entropy in bits.

    Raises:
        RoundError: nothing is fused.

    Source: Lewis and Gale, SIGIR 1994 (uncertainty sampling).
    """
    return highest(choice, entropy(choice.probability), "uncertainty")


def expected(choice: SelectionProblem) -> pd.DataFrame:
    """``CHOSEN``: the pairs that promise most new positives per cent: probability over price.

    All pairs of a round cost the same, so the order is that of the probability; see ``SelectionProblem.cents`` for what
    the price depends on.

    Raises:
        RoundError: nothing is fused.
    """
    return highest(choice, choice.probability / choice.cents, "expected")


STRATEGIES: Mapping[str, Strategy] = {
    "exhaustive": exhaustive,
    "random": at_random,
    "uncertainty": uncertainty,
    "disagreement": disagreement,
    "expected": expected,
    "bandit": bandit,
    "coreset": coreset,
    "hard-negatives": hard_negatives,
}


def select(name: str, choice: SelectionProblem, spread: Spread | None = None) -> pd.DataFrame:
    """``CHOSEN`` by the strategy of this name, spread over items where that is asked for.

    Raises:
        UsageError: there is no such strategy.
        RoundError: it lacks what it goes by.
    """
    if name not in STRATEGIES:
        raise UsageError(f"no strategy is called {name!r}; choose one of {', '.join(STRATEGIES)}")
    strategy = STRATEGIES[name] if spread is None else diverse(STRATEGIES[name], spread)
    chosen = strategy(choice)
    pairs = chosen["pair"].to_numpy()
    assert len(chosen) <= choice.budget and len(np.unique(pairs)) == len(pairs), (
        "within the budget, each once"
    )
    assert contains(choice.pairs[choice.open_at], pairs).all(), "open pairs alone"
    return chosen
