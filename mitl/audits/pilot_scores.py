"""A probability of a match for each candidate from annotators' ranks and similarities, learned from a pilot alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import Floats, Ints
from mitl.core.statistics import expit, logistic

FOLDS = 5
RIDGE = 1.0


def pilot_scores(
    features: Floats, queries: Ints, answered: Ints, matches: NDArray[np.bool_], seed: int
) -> Floats:
    """(N,) probabilities by logistic regression; no pair's comes from answers on its own query.

    Args:
        features: (N, F) of the candidates, higher is likelier; 0 where an annotator does not list the pair.
        queries: (N,) whose pair each is.
        answered: (n,) places of the answered pairs.
        matches: (n,) whether people called each a match.
    """
    spread = features.std(axis=0)
    own = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    form = np.hstack([np.ones((len(own), 1)), own])
    names, at = np.unique(queries, return_inverse=True)
    fold = np.random.default_rng(seed).permutation(len(names))[at] % FOLDS
    ridge = np.append(1e-3, np.full(own.shape[1], RIDGE))
    found = np.empty(len(form))
    for number in range(FOLDS):
        heard = fold[answered] != number
        taught, ones = form[answered[heard]], np.ones(int(heard.sum()))
        weights = logistic(taught, matches[heard].astype(np.float64), ones, 0 * ones, ridge)
        found[fold == number] = expit(form[fold == number] @ weights)
    return found


def rank_features(sources: Ints, pairs: Ints, ranks: Ints, similarities: Floats, count: int) -> Floats:
    """(N, F): of each source (annotator and direction) 1 / rank and the standardised similarity, then how many list it.

    Args:
        sources: (P,) which one lists the pair, from 0.
        pairs: (P,) the place of the pair among ``count``.
        ranks: (P,) from 1.
    """
    n = int(sources.max(initial=-1)) + 1
    place, likeness = np.zeros((count, n)), np.zeros((count, n))
    place[pairs, sources] = 1 / ranks
    for number in range(n):
        own = sources == number
        values = similarities[own]
        spread = values.std()
        if np.isfinite(values).all() and spread > 0:
            likeness[pairs[own], number] = (values - values.mean()) / spread
    listed = (place > 0).sum(axis=1, keepdims=True).astype(np.float64)
    return np.hstack([place, likeness, listed])
