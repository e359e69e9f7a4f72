"""The strategies by name: a new one is a module with a function, and an entry here."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from mitl.core.packed import contains
from mitl.errors import UsageError
from mitl.selection.bandit import bandit
from mitl.selection.baselines import at_random, disagreement, exhaustive, expected, uncertainty
from mitl.selection.choice import Choice, Strategy
from mitl.selection.coreset import coreset
from mitl.selection.diverse import Spread, diverse
from mitl.selection.hard_pairs import hard_negatives

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


def select(name: str, choice: Choice, spread: Spread | None = None) -> pd.DataFrame:
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
